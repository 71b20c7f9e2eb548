"""A jupyter_server extension whose monitor answers with the golden JSON, and does what it is told.

``GET gpuprof/test/log`` tells what was asked of it, so that a browser test can see when polling stops;
``POST`` lets it begin anew.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from jupyter_gpuprof.errors import RunNotFound
from jupyter_gpuprof.server.routes import register
from tests.panel.golden import KERNELS, answers


class ScriptedMonitor:
    """Holders that can be kept, released and ended; time goes on."""

    def __init__(self) -> None:
        self._answers = answers()
        self._began_s = time.monotonic()
        self.asked: Counter[str] = Counter()
        self.done: list[list[Any]] = []

    def _answer(self, name: str) -> dict[str, Any]:
        self.asked[name] += 1
        return copy.deepcopy(self._answers[name])

    def status(self) -> dict[str, Any]:
        return self._answer("status")

    def devices(self) -> dict[str, Any]:
        return self._answer("devices")

    def holders(self) -> dict[str, Any]:
        answer = self._answer("holders")
        passed_s = time.monotonic() - self._began_s
        for holder in answer["holders"]:
            told = holder["reaper"]
            for name, sign in (("idle_s", 1), ("due_in_s", -1)):
                if isinstance(told[name], float):
                    told[name] += sign * passed_s
            holder["idle_s"] = told["idle_s"]
        return answer

    def audit(self, limit: int = 100) -> dict[str, Any]:
        return self._answer("audit")

    def ledger(self, by: str = "notebook", since_s: Any = None, price: Any = None) -> dict[str, Any]:
        return self._answer("ledger")

    def run(self, run_id: str) -> dict[str, Any]:
        if run_id != self._answers["run"]["run_id"]:
            raise RunNotFound(f"The ledger holds no run {run_id!r}.")
        return self._answer("run")

    async def keep(self, holder_id: str, hours: float, why: str = "", by: str = "") -> dict[str, Any]:
        """The keep of the third notebook was made in the notebook itself, and stands."""
        self.done.append(["keep", holder_id, hours])
        (holder,) = [h for h in self._answers["holders"]["holders"] if h["holder_id"] == holder_id]
        if hours or holder_id != KERNELS[2]:
            holder["keep"] = {"until_in_s": hours * 3600, "why": ""} if hours else None
        asked_s, keep = hours * 3600, holder["keep"]
        return {
            "holder_id": holder_id, "keep": keep, "ended": keep is None, "asked_s": asked_s,
            "granted_s": asked_s,
        }  # fmt: skip

    async def release(self, holder_id: str, action: str = "free", by: str = "") -> dict[str, Any]:
        self.done.append(["release", holder_id, action])
        if action == "shutdown":
            return {
                "holder_id": holder_id, "action": action, "outcome": "not released",
                "sentence": "Memory is still held by process 4002.", "freed_bytes": 0, "still_held": [],
            }  # fmt: skip
        holders = self._answers["holders"]["holders"]
        holders[:] = [holder for holder in holders if holder["holder_id"] != holder_id]
        return {
            "holder_id": holder_id, "action": action, "outcome": "released",
            "sentence": "41.0 GiB are free again.", "freed_bytes": 41 * 2**30, "still_held": [],
        }  # fmt: skip

    async def end_orphan(self, orphan_id: str, by: str = "") -> dict[str, Any]:
        self.done.append(["end", orphan_id])
        self._answers["holders"]["orphans"].clear()
        return {
            "orphan_id": orphan_id, "outcome": "released", "sentence": "Process 4711 is gone.",
            "freed_bytes": 8 * 2**30,
        }  # fmt: skip


class LogHandler(APIHandler):
    @web.authenticated
    async def get(self) -> None:
        monitor = self.settings["gpuprof_monitor"]
        self.finish({"asked": dict(monitor.asked), "done": monitor.done})

    @web.authenticated
    async def post(self) -> None:
        self.settings["gpuprof_monitor"].__init__()
        self.finish({})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    register(server.web_app, ScriptedMonitor())
    here = url_path_join(server.web_app.settings["base_url"], "gpuprof/test/log")
    server.web_app.add_handlers(".*$", [(here, LogHandler)])
