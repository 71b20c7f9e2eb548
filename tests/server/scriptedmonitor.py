"""A monitor that answers what the protocol says, with the real ledger behind it.

This module is an extension of a real jupyter_server, see `CONFIG`. Its authorizer allows what the header
X-Only of a request lists (``read:gpuprof,write:kernels``), and everything without one.
"""

from __future__ import annotations

import time
from typing import Any

from jupyter_server.auth import Authorizer

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.ledger_report import report
from jupyter_gpuprof.errors import HolderNotFound, OptionError, ReleaseRefused, RunNotFound
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION
from jupyter_gpuprof.server.routes import register
from jupyter_gpuprof.store.ledger import ledger_sums

CONFIG = """
c.ServerApp.jpserver_extensions = {"tests.server.scriptedmonitor": True}
c.ServerApp.authorizer_class = "tests.server.scriptedmonitor.HeaderAuthorizer"
"""
GIB = 2**30
KERNEL = "6a5c0f3e-0000-4000-8000-000000000001"
BUSY = "6a5c0f3e-0000-4000-8000-000000000002"
ORPHAN = "4711-1700000000"
DEVICES = [("GPU-1", "Fake H200"), ("GPU-2", 'Odd "name" \\ of\na device')]
MISSING = {"missing": "not read"}
POLICY = {
    "enabled": True, "idle_timeout_s": 3600.0, "warn_before_s": 300.0, "action": "warn",
    "busy_timeout_s": None, "min_held_bytes": 1, "exempt": ["keep/*"], "orphans": "report",
    "keep_max_s": 86400.0, "dry_run": False,
    "step_wait_s": 30.0, "start_grace_s": 60.0, "cpu_ratio": 0.05, "device_ratio": 0.01,
    "kernelspecs": {"python3": {"action": "free"}}, "hook": False,
}  # fmt: skip


def decision(holder_id: str) -> dict[str, Any]:
    return {
        "holder_id": holder_id, "action": "none", "activity": "idle", "reason": "not idle long enough",
        "sentence": "It is idle for 10 s.", "vetoes": ["not idle long enough"], "evidence": [],
        "idle_s": 10.0, "due_in_s": 3290.0, "next_action": "warn", "dry_run": False,
        "steps": [{"action": "warn", "ago_s": 3.0}], "acting": "",
    }  # fmt: skip


def row(action: str, outcome: str, by: str = "reaper", at: str | None = None) -> dict[str, Any]:
    return {
        "audit_id": 1, "at": at or clock.utc_now(), "holder_id": KERNEL, "path": "a.ipynb", "action": action,
        "by": by, "outcome": outcome, "sentence": "Done.", "evidence": ["idle for 1 h"],
        "device_uuids": ["GPU-1"], "freed_bytes": GIB,
    }  # fmt: skip


class ScriptedMonitor:
    """Two devices, two kernels, an orphan."""

    def status(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL_VERSION, "version": "0.1", "allocation": "held", "kernels": 2,
            "reaper": POLICY,
            "devices": {"state": "ok", "reason": "", "driver": "580", "count": 2, "simulated": True},
            "sampling": {"awake": True, "period_s": 1.0, "looks": 3, "look_ago_s": 0.5,
                         "look_took_s": MISSING},
            "ledger": {"trouble": "", "remarks": [], "lost_s": 0.0}, "warnings": [],
        }  # fmt: skip

    def devices(self) -> dict[str, Any]:
        gpm = {
            "interval_s": 1.0, "active_ratio": 0.75, "sm_ratio": 0.5, "occupancy_ratio": MISSING,
            "tensor_ratio": MISSING, "dram_ratio": MISSING,
        }  # fmt: skip
        held = {
            "holder_id": KERNEL,
            "kernel_id": KERNEL,
            "path": "a.ipynb",
            "held_bytes": GIB,
            "orphan": False,
        }
        foreign = {"pid": 12, "used_bytes": MISSING, "why": "of another user"}
        return {
            "state": "ok", "reason": "", "driver": "580", "look_ago_s": 0.5,
            "devices": [
                {"index": 0, "uuid": DEVICES[0][0], "name": DEVICES[0][1], "state": "ok", "reason": "",
                 "mig": False, "total_bytes": 140 * GIB, "used_bytes": 2 * GIB, "reserved_bytes": GIB,
                 "utilisation_ratio": 0.9, "used_includes_reserved": False, "gpm": gpm, "holders": [held],
                 "unattributed": {"held_bytes": GIB, "why": "", "processes": [foreign]}},
                {"index": 1, "uuid": DEVICES[1][0], "name": DEVICES[1][1], "state": "lost",
                 "reason": "it fell off the bus", "mig": False, "total_bytes": 140 * GIB,
                 "used_bytes": MISSING, "reserved_bytes": MISSING, "utilisation_ratio": MISSING,
                 "used_includes_reserved": False, "gpm": MISSING, "holders": [], "unattributed": None},
            ],
        }  # fmt: skip

    def holders(self) -> dict[str, Any]:
        def holder(holder_id: str, state: str) -> dict[str, Any]:
            device = {
                "uuid": "GPU-1", "name": "Fake H200", "held_bytes": GIB, "allocated_bytes": MISSING,
                "reserved_bytes": MISSING, "work_ratio": 0.0, "pids": [1],
            }  # fmt: skip
            return {
                "holder_id": holder_id, "kernel_id": holder_id, "path": "a.ipynb", "kernelspec": "python3",
                "remote": False, "pid": 1, "state": state, "holds": True, "held_bytes": GIB,
                "devices": [device], "cpu_s": 1.0, "open_requests": 0, "connections": 1, "idle_s": 10.0,
                "keep": {"until_in_s": 60.0, "why": "long"}, "reaper": decision(holder_id),
            }  # fmt: skip

        orphan = {
            "orphan_id": ORPHAN, "pid": 4711, "kernel_id": KERNEL, "path": "", "gone_ago_s": 5.0,
            "certain": True, "held_bytes": GIB, "state": "orphan", "reaper": decision(ORPHAN),
            "devices": [{"uuid": "GPU-1", "name": "Fake H200", "held_bytes": GIB}],
        }  # fmt: skip
        return {
            "look_ago_s": 0.5, "holders": [holder(KERNEL, "idle"), holder(BUSY, "training")],
            "orphans": [orphan], "unattributed": [],
        }  # fmt: skip

    def reaper(self) -> dict[str, Any]:
        return {"policy": POLICY, "decisions": [decision(KERNEL)], "warnings": ["Two cullers are on."]}

    def audit(self, limit: int = 100) -> dict[str, Any]:
        rows = [
            row("warn", "done"), row("warn", "done"), row("free", "would be done"),
            row("keep", "done", by="ann"), row("warn", "done", at="2020-01-01T00:00:00+00:00"),
        ]  # fmt: skip
        return {"rows": rows[:limit]}

    def ledger(self, by: str = "notebook", since_s: float | None = None, price: float | None = None) -> Any:
        since = 0.0 if since_s is None else clock.unix_ns() * 1e-9 - since_s
        sums, devices = ledger_sums(by, since_unix_s=since)  # type: ignore[arg-type]
        cost = Missing("no price was given") if price is None else price
        return report(sums, by, devices=devices, price=cost).to_dict()  # type: ignore[arg-type]

    def runs(self, limit: int = 100) -> dict[str, Any]:
        run = {"run_id": "2026-01-01-abcdef", "name": "", "started_at": "2026-01-01T00:00:00+00:00"}
        return {"runs": [{**run, "label": "input-bound", "wall_s": MISSING, "steps": 20}]}

    def run(self, run_id: str) -> dict[str, Any]:
        if run_id == "slow":
            time.sleep(1.0)
        if run_id == "broken":
            raise RuntimeError("a secret of the inside")
        if run_id != "last":
            raise RunNotFound(f"The ledger holds no run {run_id!r}.")
        parts: dict[str, Any] = {"device": {}, "steps": {}, "shares": {}, "verdict": {}}
        return {"schema_version": 1, "run_id": "2026-01-01-abcdef", "name": "", "started_at": "now", **parts}

    async def keep(self, holder_id: str, hours: float, why: str = "", by: str = "") -> dict[str, Any]:
        self._known(holder_id)
        if why == "nonsense":
            raise OptionError("That is nonsense.")
        keep = {"until_in_s": hours * 3600, "why": f"{why} by {by}"} if hours else None
        return {"holder_id": holder_id, "keep": keep, "asked_s": hours * 3600, "granted_s": hours * 3600}

    async def release(self, holder_id: str, action: str = "free", by: str = "") -> dict[str, Any]:
        self._known(holder_id)
        if holder_id == BUSY:
            raise ReleaseRefused("A cell is running.", "Wait until it has ended.")
        return {
            "holder_id": holder_id, "action": action, "outcome": "released", "sentence": f"Done for {by}.",
            "freed_bytes": GIB, "still_held": [{"name": "model", "bytes": 1}],
        }  # fmt: skip

    async def end_orphan(self, orphan_id: str, by: str = "") -> dict[str, Any]:
        if orphan_id != ORPHAN:
            raise HolderNotFound("There is no such process.")
        return {"orphan_id": orphan_id, "outcome": "released", "sentence": by, "freed_bytes": MISSING}

    def _known(self, holder_id: str) -> None:
        if holder_id not in (KERNEL, BUSY):
            raise HolderNotFound("There is no such kernel.")


class HeaderAuthorizer(Authorizer):
    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        only = handler.request.headers.get("X-Only")
        return only is None or f"{action}:{resource}" in only.split(",")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    register(server.web_app, ScriptedMonitor())
