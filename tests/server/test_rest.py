"""The routes of a real server: who may, what is refused and how, what counts as activity.

What the routes answer comes from a scripted monitor; the server, its login, its authorizer and its XSRF
check are real, and unauthenticated access is forbidden.
"""

from __future__ import annotations

import http.cookies
import json
import threading
from collections.abc import Iterator

import pytest

from jupyter_gpuprof.server.apihandler import MOST_BODY_BYTES
from tests.server.realserver import Reply, Server, serving
from tests.server.scriptedmonitor import BUSY, CONFIG, KERNEL, ORPHAN

pytestmark = pytest.mark.slow

API = "gpuprof/api/v1"
READS = [
    *(f"{API}/{name}" for name in ("status", "devices", "holders", "reaper", "runs", "runs/last", "audit")),
    f"{API}/ledger",
    f"{API}/ledger?format=csv",
    "gpuprof/metrics",
]  # fmt: skip
KEEP, RELEASE, END = (
    f"{API}/holders/{KERNEL}/keep",
    f"{API}/holders/{KERNEL}/release",
    f"{API}/orphans/{ORPHAN}/end",
)
WRITES = [(KEEP, {"hours": 2}), (RELEASE, {}), (RELEASE, {"action": "shutdown"}), (END, None)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rest")
    with serving(folder, CONFIG, env={"JUPYTER_GPUPROF_DATABASE": str(folder / "ledger.db")}) as running:
        yield running


def error(reply: Reply) -> dict[str, str]:
    body = reply.json()
    assert body["protocol"] == 1
    assert body["error"].keys() == {"code", "message", "hint"}
    assert reply.headers["X-Gpuprof-Protocol"] == "1"
    assert "Traceback" not in body["error"]["message"]
    return body["error"]


def cookies(server: Server) -> http.cookies.SimpleCookie:
    """Those of a browser that has logged in: the form sets _xsrf, the token the login."""
    jar = http.cookies.SimpleCookie()
    for reply in (server.call("GET", "login", token=False), server.get("login")):
        for line in reply.headers.get_all("Set-Cookie"):
            jar.load(line)
    return jar


# Login, rights, XSRF -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"), [*(("GET", p) for p in READS), *(("POST", p) for p, _ in WRITES)]
)
def test_every_route_asks_for_login(server: Server, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "token wrong"}):
        reply = server.call(method, path, {}, headers, token=False)
        assert reply.status == 403
        assert error(reply)["code"] == "login_required"
        assert "token" in error(reply)["hint"]


def test_the_server_has_nothing_against_our_routes(server: Server) -> None:
    assert "Extension endpoints without" not in server.log


@pytest.mark.parametrize("path", READS)
def test_a_read_asks_for_read_on_gpuprof_and_no_more(server: Server, path: str) -> None:
    assert server.get(path, X_Only="read:gpuprof").status == 200
    refused = server.get(path, X_Only="write:gpuprof,read:kernels,read:gpuprof2")
    assert refused.status == 403
    assert error(refused)["code"] == "forbidden"


@pytest.mark.parametrize(("path", "body"), WRITES)
def test_a_write_asks_for_write_on_gpuprof_and_what_ends_for_kernels_too(
    server: Server, path: str, body: dict
) -> None:
    ends = path == END or body == {"action": "shutdown"}
    expected = {
        "read:gpuprof": 403,
        "write:kernels": 403,
        "execute:gpuprof": 403,
        "write:gpuprof": 403 if ends else 200,
        "write:gpuprof,write:kernels": 200,
    }
    found = {only: server.call("POST", path, body, {"X-Only": only}).status for only in expected}
    assert found == expected


def test_the_first_call_does_not_decide_for_the_later_ones(server: Server) -> None:
    """The trap of ``@authorized`` without arguments: whatever is called first is remembered."""
    for first, second in [(READS, WRITES), (WRITES, READS)]:
        for item in [*first, *second]:
            path, body = (item, None) if isinstance(item, str) else item
            reply = server.call(
                "GET" if isinstance(item, str) else "POST", path, body, {"X-Only": "read:gpuprof"}
            )
            assert reply.status == (200 if isinstance(item, str) else 403)


def test_a_cookie_alone_writes_nothing(server: Server) -> None:
    jar = cookies(server)
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in jar.items())
    own = {"Cookie": cookie, "Referer": server.url}
    assert server.call("GET", f"{API}/status", headers=own, token=False).status == 200
    for path, body in WRITES:
        refused = server.call("POST", path, body, own, token=False)
        assert refused.status == 403
        assert error(refused)["code"] == "forbidden"
        assert "_xsrf" in error(refused)["message"]
    xsrf = {**own, "X-XSRFToken": jar["_xsrf"].value}
    assert server.call("POST", KEEP, {"hours": 1}, xsrf, token=False).status == 200


def test_a_page_of_another_origin_gets_nothing(server: Server) -> None:
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in cookies(server).items())
    foreign = {"Cookie": cookie, "Origin": "http://elsewhere.example", "Referer": "http://elsewhere.example/"}
    assert server.call("GET", f"{API}/status", headers=foreign, token=False).status in (403, 404)
    assert server.call("POST", KEEP, {"hours": 1}, foreign, token=False).status in (403, 404)


# Activity ------------------------------------------------------------------------------------------


def test_polling_is_no_activity_of_the_server(server: Server) -> None:
    def last() -> str:
        return server.get("api/status").json()["last_activity"]

    before = last()
    for path in READS * 2:
        assert server.get(path).status == 200
    assert server.get(f"{API}/runs/nothing").status == 404  # a refused read is none either
    assert last() == before
    assert server.call("POST", KEEP, {"hours": 1}).status == 200
    assert last() > before


# What is asked, and errors -------------------------------------------------------------------------


def test_answers_carry_the_protocol(server: Server) -> None:
    reply = server.get(f"{API}/status")
    assert reply.json()["protocol"] == 1
    assert reply.headers["X-Gpuprof-Protocol"] == "1"
    assert reply.headers["Cache-Control"] == "no-store"


def test_who_asks_and_what_for_comes_to_the_monitor(server: Server) -> None:
    kept = server.call("POST", KEEP, {"hours": 1.5, "why": "long eval"}).json()
    assert kept["asked_s"] == 5400
    assert kept["keep"]["why"] == "long eval by somebody with the server's token"
    assert server.call("POST", RELEASE).json()["action"] == "free"
    assert server.call("POST", RELEASE, {"action": "offload"}).json()["action"] == "offload"
    assert server.call("POST", KEEP, {"hours": 0}).json()["keep"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", f"{API}/runs/nothing", None, 404, "run_not_found"),
        ("GET", f"{API}/runs/a%20b", None, 400, "bad_id"),
        ("GET", f"{API}/runs/..%2f..%2fetc", None, 400, "bad_id"),
        ("GET", f"{API}/runs/{'x' * 200}", None, 400, "bad_id"),
        ("GET", f"{API}/runs/%ff", None, 400, "bad_request"),
        ("GET", f"{API}/runs?limit=0", None, 400, "bad_value"),
        ("GET", f"{API}/audit?limit=1e3", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?by=password", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?format=xml", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?since_s=nan", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?since_s=0", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?since_s=1e300", None, 400, "bad_value"),
        ("GET", f"{API}/ledger?price=-1", None, 400, "bad_value"),
        ("DELETE", f"{API}/status", None, 405, "method_not_allowed"),
        ("POST", f"{API}/holders", {}, 405, "method_not_allowed"),
        ("GET", KEEP, None, 405, "method_not_allowed"),
        ("POST", f"{API}/holders/unknown/keep", {"hours": 1}, 404, "holder_not_found"),
        ("POST", f"{API}/orphans/unknown/end", None, 404, "holder_not_found"),
        ("POST", f"{API}/holders/{BUSY}/release", {}, 409, "release_refused"),
        ("POST", KEEP, {"hours": 1, "why": "nonsense"}, 400, "bad_request"),
        ("POST", KEEP, {}, 400, "bad_value"),
        ("POST", KEEP, {"hours": -1}, 400, "bad_value"),
        ("POST", KEEP, {"hours": True}, 400, "bad_value"),
        ("POST", KEEP, b'{"hours": NaN}', 400, "bad_value"),
        ("POST", KEEP, b'{"hours": 1e400}', 400, "bad_value"),
        ("POST", KEEP, {"hours": 1, "why": 5}, 400, "bad_value"),
        ("POST", KEEP, {"hours": 1, "why": "x" * 501}, 400, "bad_value"),
        ("POST", KEEP, {"hours": 1, "who": "me"}, 400, "bad_request"),
        ("POST", KEEP, b"hours=1", 400, "bad_json"),
        ("POST", KEEP, b"\xff\xfe", 400, "bad_json"),
        ("POST", KEEP, [1], 400, "bad_json"),
        ("POST", KEEP, b"[" * 60_000, 400, "bad_json"),
        ("POST", RELEASE, {"action": "kill"}, 400, "bad_value"),
        ("POST", RELEASE, {"action": ["free"]}, 400, "bad_value"),
        ("POST", END, {"sure": True}, 400, "bad_request"),
    ],
)
def test_refusals_are_typed(
    server: Server, method: str, path: str, body: object, status: int, code: str
) -> None:
    reply = server.call(method, path, body)
    assert (reply.status, error(reply)["code"]) == (status, code)
    if status == 405:
        assert reply.headers["Allow"] == ("POST, OPTIONS" if path == KEEP else "GET, OPTIONS")


def test_the_hint_of_an_error_is_told_apart_from_its_sentence(server: Server) -> None:
    told = error(server.call("POST", f"{API}/holders/{BUSY}/release"))
    assert (told["message"], told["hint"]) == ("A cell is running.", "Wait until it has ended.")


def test_the_inside_of_a_failure_stays_inside(server: Server) -> None:
    reply = server.get(f"{API}/runs/broken")
    assert reply.status == 500
    assert error(reply)["code"] == "internal"
    assert b"secret of the inside" not in reply.body
    assert "a secret of the inside" in server.log


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", [KEEP, RELEASE, END])
def test_a_body_is_bounded(server: Server, path: str, chunked: bool) -> None:
    large = b'{"hours": 1, "why": "' + b"x" * (2 * MOST_BODY_BYTES) + b'"}'
    reply = server.call("POST", path, large, chunked=chunked)
    assert reply.status == 413
    assert error(reply)["code"] == "too_large"
    padded = json.dumps({"hours": 1}).encode().ljust(MOST_BODY_BYTES)
    assert server.call("POST", KEEP, padded, chunked=chunked).status == 200


def test_a_body_larger_than_allowed_is_not_kept(server: Server) -> None:
    before = resident_bytes(server.process.pid)
    assert server.call("POST", KEEP, b"x" * 100_000_000).status == 413
    assert resident_bytes(server.process.pid) - before < 20_000_000


def test_a_slow_answer_stops_nobody(server: Server) -> None:
    """A locked ledger file must not stop the server: what reads it runs in a thread."""
    slow = threading.Thread(target=server.get, args=(f"{API}/runs/slow",))
    slow.start()
    try:
        assert server.get(f"{API}/status").status == 200
        assert slow.is_alive()
    finally:
        slow.join()


def resident_bytes(pid: int) -> int:
    import psutil

    return psutil.Process(pid).memory_info().rss
