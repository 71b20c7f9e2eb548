"""A process that is interrupted in each phase of a scaling, and tells what was left each time."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from jupyter_gpuprof.probes import jobs
from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.launch import Local
from jupyter_gpuprof.session.reruns.scale import Scale
from jupyter_gpuprof.session.reruns.scaleoptions import ScaleOptions
from jupyter_gpuprof.store.trials import recent_curves
from tests.scale.cells import CELL, namespace


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Heavy:
    """Takes its time to be shipped."""

    def __reduce__(self) -> Any:
        interrupt()
        time.sleep(60)
        return str, ()


class Interrupting(Local):
    """This machine, where one submission or one cancellation is interrupted."""

    def __init__(self, submission: int = 0, cancellation: int = 0) -> None:
        super().__init__(2, 1)
        self.submission, self.cancellation = submission, cancellation
        self.tags: list[str] = []
        self.cancelled = 0

    def submit(self, folder: Path, count: int) -> Any:
        started = super().submit(folder, count)
        self.tags.append(started.tag)
        if len(self.tags) == self.submission:
            interrupt()
        return started

    def cancel(self, handle: Any) -> None:
        self.cancelled += 1
        if self.cancelled == self.cancellation:
            interrupt()
        super().cancel(handle)


def running(_: Scaling, progress: ScalingProgress) -> None:
    if progress.running is not None or ("running" in progress.what and progress.done > 0.05):
        interrupt()


def told(name: str, backend: Interrupting, more: dict[str, Any], on_update: Any = None) -> None:
    names = {**namespace(), **more}
    cell = CELL.replace("optimizer.step()", "optimizer.step(); time.sleep(0.02)")
    options = ScaleOptions((1, 2), steps=60, repeats=1)
    before = len(recent_curves(Scaling))
    record = Scale(
        Cell(f"{', '.join(more)}\n{cell}"), None, names, options, backend=backend, on_update=on_update
    ).run()
    left = {
        "finished": record.finished,
        "outcomes": [point.outcome for point in record.points],
        "interrupted": any("interrupted" in note for note in record.notes),
        "saved": len(recent_curves(Scaling)) - before,
        "processes": [p.cmdline() for tag in backend.tags for p in jobs.tagged(tag)],
        "jobs": len(backend.tags),
        "folders": [str(path) for path in Path(tempfile.gettempdir()).glob("gpuprof-*")],
    }
    print(json.dumps({name: left}), flush=True)


if __name__ == "__main__":
    told("shipping", Interrupting(), {"heavy": Heavy()})
    # The job is started, and nobody knows it yet; while it is ended, somebody presses the keys again.
    told("launching", Interrupting(submission=1, cancellation=1), {})
    told("running", Interrupting(), {}, running)
    told("between", Interrupting(submission=2), {})
