"""The JSON that the panel's tests and the server's tests share, made by the code that answers for real.

``python -m tests.panel.golden`` writes the files of tests/golden anew; a test compares.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof.analysis.ledger_report import report
from jupyter_gpuprof.records.audit import AuditRow
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.devices import (
    Attribution,
    DeviceReading,
    GpmReading,
    Holder,
    Snapshot,
    Unattributed,
    UnattributedProcess,
)
from jupyter_gpuprof.records.idleness import (
    Action,
    Activity,
    Decision,
    Keep,
    KernelFacts,
    OrphanFacts,
    Process,
    Reason,
    Step,
    Work,
)
from jupyter_gpuprof.records.ledger import LedgerSum, State
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sighting import KernelSight, OrphanSight, Sighting
from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION
from jupyter_gpuprof.views.marks import run_mark, scaling_mark
from jupyter_gpuprof.views.sighting_json import devices_json, holders_json, policy_json
from tests.scaled_curve import a_scaling
from tests.views.conftest import _RUN

FOLDER = Path(__file__).parents[1] / "golden"
GIB = 2**30
NOW_S = 10_000.0
UUIDS = [f"GPU-{n}1c2a9b4-0000-4000-8000-00000000000{n}" for n in range(3)]
KERNELS = [f"{n}a5c0f3e-0000-4000-8000-00000000000{n}" for n in range(4)]
POLICY = Policy(action="free", exempt=("keep/*",))


def _work(held: Number, cpu_s: float) -> Work:
    return Work(cpu_s, driver_bytes=held)


def _decision(
    holder: str, action: Action, activity: Activity, reason: Reason, sentence: str,
    idle_s: Number, due_s: Number, next_action: Action,
) -> Decision:  # fmt: skip
    vetoes = () if reason == "idle" else (sentence,)
    return Decision(
        holder, action, activity, reason, sentence, vetoes, (), idle_s, due_s, next_action, 1, None, False
    )


def _kernel(
    n: int, path: str | Missing, activity: Activity, state: str, held_gib: float, decision: Decision,
    *, keep: Keep | None = None, steps: tuple[Step, ...] = (), device: int = 0,
) -> KernelSight:  # fmt: skip
    process = Process(4000 + n, 1_700_000_000.0 + n, 1000)
    held = int(held_gib * GIB)
    facts = KernelFacts(
        KERNELS[n], path, "python3", process, 100.0, 7, int(activity in ("training", "waiting for input")), 0,
        None, activity == "training", _work(held, 120.0), keep,
    )  # fmt: skip
    holding = Holder(
        KERNELS[n], None, "" if isinstance(path, Missing) else path, UUIDS[device], (process.pid,), held,
        held // 2, held * 3 // 4, 0.8 if activity == "training" else 0.0, True,
    )  # fmt: skip
    return KernelSight(facts, decision, state, (holding,) if held else (), steps, connections=1)


def sighting() -> Sighting:
    """Three devices; four notebooks that train, wait to be freed, are kept, hold nothing; an orphan."""
    no = Missing("the driver does not tell it")
    devices = (
        DeviceReading(
            0, UUIDS[0], "NVIDIA H200", "ok", total_bytes=140 * GIB, used_bytes=int(92.5 * GIB),
            reserved_bytes=GIB, utilisation_ratio=0.97, processes=(), work=(),
            gpm=GpmReading(1.0, 0.83, 0.61, 0.4, no, no),
        ),
        DeviceReading(
            1, UUIDS[1], "NVIDIA H200", "ok", total_bytes=140 * GIB, used_bytes=int(61.25 * GIB),
            reserved_bytes=GIB, utilisation_ratio=0.0, processes=(), work=(), gpm=no,
        ),
        DeviceReading(
            2, UUIDS[2], "NVIDIA H200", "ok", total_bytes=140 * GIB, used_bytes=int(1.5 * GIB),
            reserved_bytes=GIB, utilisation_ratio=no, mig=True, processes=(), work=(), gpm=no,
        ),
    )  # fmt: skip
    none = Missing("nothing is due")
    busy = Missing("it is not idle")
    kernels = (
        _kernel(0, "work/train-resnet.ipynb", "training", "training", 92.0,
                _decision(KERNELS[0], "none", "training", "busy", "It trains.", busy, none, "none")),
        _kernel(1, "work/explore.ipynb", "idle", "finished and holding", 41.0,
                _decision(KERNELS[1], "none", "idle", "not idle long enough", "It has been idle for 56 min.",
                          3355.0, 245.0, "free"),
                steps=(Step("warn", NOW_S - 55.0),), device=1),
        _kernel(2, "work/long-eval.ipynb", "idle", "idle", 12.0,
                _decision(KERNELS[2], "none", "idle", "keep", "It is kept.", 600.0, 6600.0, "warn"),
                keep=Keep(NOW_S - 600.0, NOW_S + 3000.0, "long eval"), device=1),
        _kernel(3, Missing("no session has the kernel"), "idle", "idle", 0.0,
                _decision(KERNELS[3], "none", "idle", "holds too little", "It holds no device.", 30.0, none,
                          "none")),
    )  # fmt: skip
    process = Process(4711, 1_700_000_100.0, 1000)
    orphan = OrphanSight(
        "4711-1700000100",
        OrphanFacts("dead0000-0000-4000-8000-000000000009", "work/crashed.ipynb", process, process, 1000,
                    NOW_S - 760.0, _work(8 * GIB, 3.0)),
        _decision("pid 4711", "none", "idle", "orphans are only reported", "Orphans are only reported.",
                  760.0, none, "none"),
        ((UUIDS[1], 8 * GIB),),
    )  # fmt: skip
    rest = Unattributed(UUIDS[2], int(1.5 * GIB), (UnattributedProcess(99, no, "of another user"),))
    return Sighting(
        NOW_S - 0.5, 1_790_000_000.0, 0.004, Snapshot(NOW_S - 0.5, "ok", "", "580.65", devices),
        Attribution((), (rest,)), kernels, (orphan,),
    )  # fmt: skip


def ledger() -> dict[str, Any]:
    """Two devices over a day, by notebook."""

    def row(key: str, state: State, hours: float) -> LedgerSum:
        return LedgerSum(key, "2026-09-01", state, "gr_active", hours * 3600, int(hours * 3600))

    sums = [
        row("work/train-resnet.ipynb", "busy", 9.5), row("work/train-resnet.ipynb", "input_stall", 3.25),
        row("work/train-resnet.ipynb", "host_idle", 0.75), row("work/explore.ipynb", "busy", 0.5),
        row("work/explore.ipynb", "held_idle", 8.0), row("work/crashed.ipynb", "orphan", 2.0),
        row("", "free", 24.0),
    ]  # fmt: skip
    return report(sums, "notebook", devices=2).to_dict()


def audit() -> dict[str, Any]:
    """One action of the reaper and one of a person."""
    rows = (
        AuditRow("2026-09-01T10:05:00+00:00", KERNELS[1], "work/explore.ipynb", "warn", "reaper", "done",
                 "It has been idle for 55 min and holds 41.0 GiB.", ("idle for 3300 s",), (UUIDS[1],)),
        AuditRow("2026-09-01T09:50:00+00:00", KERNELS[2], "work/long-eval.ipynb", "keep", "ann", "done",
                 "It is kept for 1 h (long eval)."),
    )  # fmt: skip
    return {"rows": [encode(replace(row, audit_id=2 - n)) for n, row in enumerate(rows)]}


def status() -> dict[str, Any]:
    """Everything works, on devices that are not real."""
    return {
        "protocol": PROTOCOL_VERSION, "version": "0.1.0", "allocation": "held", "kernels": 4,
        "devices": {"state": "ok", "reason": "", "driver": "580.65", "count": 3, "simulated": True},
        "sampling": {"awake": True, "period_s": 1.0, "looks": 9, "look_ago_s": 0.5, "look_took_s": 0.004},
        "reaper": policy_json(POLICY), "ledger": {"trouble": "", "remarks": [], "lost_s": 0.0},
        "warnings": ["The server's own culler is on too: cull_idle_timeout is 3600 s."],
    }  # fmt: skip


def run() -> dict[str, Any]:
    """A run with remedies that can be tried."""
    settings = ("num_workers=4", "pin_memory=True", "")
    remedies = tuple(replace(r, setting=s) for r, s in zip(_RUN.remedies, settings, strict=True))
    return replace(_RUN, remedies=remedies).to_dict()


def answers() -> dict[str, Any]:
    """All of them, by the name of the file."""
    seen = sighting()
    return {
        "devices": devices_json(seen, NOW_S),
        "holders": holders_json(seen, NOW_S, {}),
        "status": status(),
        "audit": audit(),
        "ledger": ledger(),
        "run": run(),
        "marks": [run_mark(_RUN), scaling_mark(a_scaling())],
    }


def text_of(answer: Any) -> str:
    """As it stands in the file."""
    return json.dumps(answer, indent=1, allow_nan=False) + "\n"


if __name__ == "__main__":
    for name, answer in answers().items():
        (FOLDER / f"{name}.json").write_text(text_of(answer))
