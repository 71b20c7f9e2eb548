"""The routes over the real monitor: a real kernel, the pretended driver, and answers as described."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from jupyter_gpuprof.records.ledger import STATES
from tests.fakenvml import GIB, FakeNvml, Gpu, why_not
from tests.server.realserver import ROOT, Server, eventually, serving
from tests.server.test_prometheus import parsed, value

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=str(why_not()))]

API = "gpuprof/api/v1"
CONFIG = """
c.ServerApp.jpserver_extensions = {"jupyter_gpuprof": True}
c.GpuProf.sample_period = 0.2
c.GpuProf.allocation = "held"
c.GpuProfReaper.keep_max = 7200
c.GpuProfReaper.start_grace = 0.0
c.GpuProfReaper.cpu_ratio = 0.9
c.GpuProfReaper.exempt = ["teaching/*"]
"""


@dataclass
class World:
    server: Server
    nvml: FakeNvml
    kernel_id: str

    def get(self, name: str) -> Any:
        reply = self.server.get(f"{API}/{name}")
        assert reply.status == 200, reply.body
        return reply.json()

    def holder(self) -> Any:
        (found,) = [h for h in self.get("holders")["holders"] if h["holder_id"] == self.kernel_id]
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("real")
    nvml = FakeNvml(folder, [Gpu(used_bytes=3 * GIB, utilisation=0), Gpu(name="Fake L4")])
    env = {**nvml.env, "JUPYTER_GPUPROF_DATABASE": str(folder / "ledger.db")}
    with serving(folder, CONFIG, base_url="/user/x/", env=env) as server:
        session = {"path": "a.ipynb", "name": "a", "type": "notebook", "kernel": {"name": "python3"}}
        made = server.call("POST", "api/sessions", session)
        assert made.status == 201, made.body
        world = World(server, nvml, made.json()["kernel"]["id"])
        try:
            eventually(lambda: [h for h in world.get("holders")["holders"] if h["pid"]])
            nvml.set(0, processes={world.holder()["pid"]: 2 * GIB})
            eventually(lambda: world.holder()["holds"])
            yield world
        finally:
            server.call("DELETE", f"api/kernels/{world.kernel_id}")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())


def conforms(document: dict[str, Any], path: str, method: str, body: Any) -> None:
    """The answer is as docs/openapi.yaml says."""
    response = document["paths"][path][method]["responses"]["200"]
    response = document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    schema = response["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(body)


@pytest.mark.parametrize("name", ["status", "devices", "holders", "reaper", "runs", "ledger", "audit"])
def test_answers_are_as_described(world: World, document: dict[str, Any], name: str) -> None:
    conforms(document, f"/gpuprof/api/v1/{name}", "get", world.get(name))


def test_a_holder_is_told_by_its_notebook(world: World) -> None:
    holder, device = world.holder(), world.get("devices")["devices"][0]
    assert (holder["path"], holder["held_bytes"]) == ("a.ipynb", 2 * GIB)
    assert [h["path"] for h in device["holders"]] == ["a.ipynb"]
    assert device["unattributed"]["held_bytes"] == GIB


def test_a_keep_holds_and_ends(world: World, document: dict[str, Any]) -> None:
    path = f"{API}/holders/{world.kernel_id}/keep"
    kept = world.server.call("POST", path, {"hours": 100, "why": "long eval"}).json()
    conforms(document, "/gpuprof/api/v1/holders/{holder_id}/keep", "post", kept)
    assert (kept["asked_s"], kept["granted_s"]) == (360_000, 7200)
    eventually(lambda: (world.holder()["keep"] or {}).get("why") == "long eval")
    assert world.get("audit?limit=1")["rows"][0]["action"] == "keep"
    assert world.server.call("POST", path, {"hours": 0}).json()["keep"] is None


def test_a_release_is_an_answer_and_an_audit_row(world: World, document: dict[str, Any]) -> None:
    eventually(lambda: world.holder()["state"] == "idle")
    reply = world.server.call("POST", f"{API}/holders/{world.kernel_id}/release", {"action": "free"})
    assert reply.status == 200, reply.body
    conforms(document, "/gpuprof/api/v1/holders/{holder_id}/release", "post", reply.json())
    audit = world.get("audit")
    conforms(document, "/gpuprof/api/v1/audit", "get", audit)
    assert next(row["action"] for row in audit["rows"] if row["holder_id"] == world.kernel_id) == "free"


def test_what_there_is_not_is_not_touched(world: World) -> None:
    for path in ("holders/nobody/release", "holders/nobody/keep", f"orphans/{os.getpid()}-1/end"):
        body = {"hours": 1} if path.endswith("keep") else None
        reply = world.server.call("POST", f"{API}/{path}", body)
        assert (reply.status, reply.json()["error"]["code"]) == (404, "holder_not_found")


def test_metrics_and_ledger_say_the_same(world: World) -> None:
    eventually(lambda: world.get("ledger?by=device")["groups"])
    before = world.get("ledger?by=device")["total"]["capacity_s"]
    series = parsed(world.server.get("gpuprof/metrics").body.decode())
    after = world.get("ledger?by=device")["total"]["capacity_s"]
    seconds = {key: number for key, number in series.items() if key[0] == "gpuprof_device_seconds_total"}
    assert before - 1e-6 <= sum(seconds.values()) <= after + 1e-6
    assert len(seconds) == 2 * len(STATES)
    own = {"uuid": world.nvml.devices[0].uuid, "name": "Fake H200"}
    assert value(series, "gpuprof_device_memory_used_bytes", **own) == 3 * GIB
    assert value(series, "gpuprof_holders", state="idle") == 1


def test_a_read_is_no_look_at_the_driver(world: World) -> None:
    looks = world.get("status")["sampling"]["looks"]
    for _ in range(50):
        world.get("devices")
    assert world.get("status")["sampling"]["looks"] - looks < 25
