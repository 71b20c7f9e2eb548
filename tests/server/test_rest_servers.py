"""Below a base URL, as under JupyterHub, and several servers of one user on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tornado.web import Application

from jupyter_gpuprof.clock import unix_ns
from jupyter_gpuprof.records.ledger import LedgerRow
from jupyter_gpuprof.server.apihandler import MONITOR
from jupyter_gpuprof.server.routes import API, METRICS, register, routes
from jupyter_gpuprof.store.ledger import LedgerWriter
from tests.server.realserver import serving
from tests.server.scriptedmonitor import CONFIG, KERNEL, ScriptedMonitor


def test_routes_are_below_the_base_url() -> None:
    for base_url in ("/", "/user/x/", "/user/a.b@c/"):
        for path, *_ in routes(base_url):
            assert path.replace("\\", "").startswith(base_url + "gpuprof/")


def test_a_base_url_is_no_pattern() -> None:
    (first, *_), *_ = routes("/user/a.b/")
    app = Application([(first, object)])
    assert app.wildcard_router.rules[0].matcher.regex.fullmatch("/user/a.b/gpuprof/api/v1/status")
    assert not app.wildcard_router.rules[0].matcher.regex.fullmatch("/user/axb/gpuprof/api/v1/status")


def test_register_puts_the_monitor_beside_the_routes() -> None:
    app = Application(base_url="/")
    monitor = ScriptedMonitor()
    register(app, monitor)
    assert app.settings[MONITOR] is monitor


@pytest.mark.slow
def test_two_servers_of_one_user_and_a_hub_prefix(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    env = {"JUPYTER_GPUPROF_DATABASE": str(ledger)}
    plain, hub = serving(tmp_path, CONFIG, env=env), serving(tmp_path, CONFIG, env=env, base_url="/user/x/")
    with plain as first, hub as second:
        for server, other in [(first, second), (second, first)]:
            for path in (f"{API}/status", f"{API}/holders", METRICS):
                assert server.get(path).status == 200
                stolen = {"Authorization": f"token {other.token}"}
                assert server.call("GET", path, headers=stolen, token=False).status == 403
            kept = server.call("POST", f"{API}/holders/{KERNEL}/keep", {"hours": 1})
            assert kept.status == 200
        outside = first.call("GET", f"user/x/{API}/status")
        assert outside.status == 404
        second.base_url = "/"
        assert second.get(f"{API}/status").status == 404, "not outside of its prefix"
        second.base_url = "/user/x/"
        # One ledger, read by both, whoever writes.
        writer = LedgerWriter(ledger)
        hour = int(unix_ns() * 1e-9 // 3600)
        assert writer.add([LedgerRow(hour, "GPU-1", "Fake H200", "busy", 7.5, 1, notebook="a.ipynb")])
        writer.close()
        for server in (first, second):
            assert server.get(f"{API}/ledger").json()["total"]["seconds"]["busy"] == 7.5
            csv = server.get(f"{API}/ledger?format=csv&by=device")
            assert csv.headers["Content-Type"] == "text/csv; charset=utf-8"
            head, line = csv.body.decode().splitlines()
            assert head.startswith("device,busy_seconds")
            assert line.startswith('"Fake H200, GPU-1",7.5')
            assert 'filename="gpuprof-ledger-by-device.csv"' in csv.headers["Content-Disposition"]
