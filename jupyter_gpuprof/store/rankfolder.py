"""What the ranks of a live distributed run leave for rank 0: two small files each, gone once read.

No port and no process group is used: the group may be destroyed before the run ends, or never come up.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.run import Device, Run
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.records.trace import GpuOps, Marks, RankTrace
from jupyter_gpuprof.store.database import database_path

_POLL_S = 0.05


@dataclass(frozen=True, eq=False)
class RankReport:
    """One rank's run, the table behind it, and what its kernel window recorded."""

    rank: int
    run: Run
    table: StepTable
    trace: RankTrace | None


def rank_of(environment: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Rank and world size as torch's launchers tell them; (0, 1) without a launcher."""
    env = os.environ if environment is None else environment
    try:
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, world) if 0 <= rank < world else (0, 1)


def rank_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder that the ranks of this job, and of no other, share."""
    env = os.environ if environment is None else environment
    job = env.get("TORCHELASTIC_RUN_ID", "none")
    if job == "none":  # the default of a launcher on one machine: its process is the job
        job = f"{env.get('MASTER_PORT', 'job')}-{os.getppid()}"
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in job)
    return database_path().parent / "ranks" / safe


def forget(folder: Path, rank: int) -> None:
    """Remove what an earlier start of the same job left for this rank."""
    for suffix in (".json", ".npz"):
        (folder / f"rank{rank}{suffix}").unlink(missing_ok=True)


def leave(folder: Path, report: RankReport) -> None:
    """Leave a report for rank 0; it is there as a whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"table.seconds": report.table.seconds, "table.sample_s": report.table.sample_s}
    body: dict[str, Any] = {
        "run": report.run.to_dict(),
        "table": {
            "steps_per_row": report.table.steps_per_row,
            "steps": report.table.steps,
            "missing": {str(int(part)): why for part, why in report.table.missing.items()},
        },
        "trace": None,
    }
    if report.trace is not None:
        body["trace"] = _flatten(report.trace, arrays)
    stem = folder / f"rank{report.rank}"
    with open(stem.with_suffix(".npz.part"), "wb") as file:
        np.savez(file, **arrays)
    stem.with_suffix(".json.part").write_text(json.dumps(body), encoding="utf-8")
    stem.with_suffix(".npz.part").replace(stem.with_suffix(".npz"))
    stem.with_suffix(".json.part").replace(stem.with_suffix(".json"))


def collect(
    folder: Path,
    ranks: int,
    *,
    patience_s: float,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = clock.now_s,
) -> list[RankReport]:
    """The reports of the other ranks (1 to `ranks` - 1), as far as they come in time; removes the folder.

    Args:
        folder: from `rank_folder`.
        ranks: the world size.
        patience_s: how long to wait for the last one.
        sleep, now_s: the clock.
    """
    wanted = {rank: folder / f"rank{rank}.json" for rank in range(1, ranks)}
    deadline = now_s() + patience_s
    while not all(path.exists() for path in wanted.values()) and now_s() < deadline:
        sleep(_POLL_S)
    found = [_read(rank, path) for rank, path in wanted.items() if path.exists()]
    shutil.rmtree(folder, ignore_errors=True)
    for parent in (folder.parent, folder.parent.parent):  # of this job, of all jobs
        with suppress(OSError):  # others are in it
            parent.rmdir()
    return found


def _read(rank: int, path: Path) -> RankReport:
    body = json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz")) as arrays:
        table = StepTable(
            seconds=arrays["table.seconds"],
            steps_per_row=body["table"]["steps_per_row"],
            missing={Part(int(part)): why for part, why in body["table"]["missing"].items()},
            steps=body["table"]["steps"],
            sample_s=arrays["table.sample_s"],
        )
        run = Run.from_dict(body["run"])
        trace = _unflatten(body["trace"], arrays, run.device) if body["trace"] else None
    return RankReport(rank, run, table, trace)


_MARKS = ("steps", "loaders", "optimizers", "collectives")
_PLAIN = ("source", "rank", "world_size", "names", "events", "complete", "notes")


def _flatten(trace: RankTrace, arrays: dict[str, Any]) -> dict[str, Any]:
    """The plain values of a trace; its arrays go into `arrays` by name."""
    for name, group in (("ops", trace.ops), *((mark, getattr(trace, mark)) for mark in _MARKS)):
        for field in fields(group):
            arrays[f"{name}.{field.name}"] = getattr(group, field.name)
    arrays["host_op_ns"] = trace.host_op_ns
    return {name: getattr(trace, name) for name in _PLAIN}


def _unflatten(plain: dict[str, Any], arrays: Mapping[str, Any], device: Device) -> RankTrace:
    def group(kind: Any, name: str) -> Any:
        return kind(**{field.name: arrays[f"{name}.{field.name}"] for field in fields(kind)})

    values: dict[str, Any] = {name: group(Marks, name) for name in _MARKS}
    for name in _PLAIN:
        values[name] = tuple(plain[name]) if isinstance(plain[name], list) else plain[name]
    return RankTrace(device=device, ops=group(GpuOps, "ops"), host_op_ns=arrays["host_op_ns"], **values)
