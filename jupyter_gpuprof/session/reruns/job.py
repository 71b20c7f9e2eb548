"""What a fresh process is told to run, and what it answers: files in a folder of the job's own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from jupyter_gpuprof.records.run import Run

Outcome = Literal["measured", "out of memory", "failed", "no step", "hung", "timed out"]


@dataclass(frozen=True)
class Job:
    """A rerun of a cell.

    Args:
        source: plain Python (`jupyter_gpuprof.session.reruns.cell.plain_source`).
        name: how to call its run.
        steps: counted steps to run.
        warmup: steps to leave out; None chooses.
        settings: changes, as ``name=value``.
        threads: torch's threads; None leaves them.
        device_module: what gave torch a kind of device that is not its own; imported before all else.
        sys_path: of the kernel.
        cwd: of the kernel.
        names: the file of the shipped names.
        mode: how ranks share the work: "weak", "strong", or "" for one process.
        raw: the cell distributes its work by itself.
        device_kind: what each rank has one of.
        find_unused: the cell's steps leave parameters unused.
        script: a script to run instead of `source`, and its arguments.
        seed: of torch, numpy and random, so that reruns do the same work.
        guard_writes: refuse to write files outside of the temporary folder.
    """

    source: str
    name: str
    steps: int
    warmup: int | None = None
    settings: tuple[str, ...] = ()
    threads: int | None = None
    device_module: str = ""
    sys_path: tuple[str, ...] = ()
    cwd: str = ""
    names: str = ""
    mode: str = ""
    raw: bool = False
    device_kind: str = "cpu"
    find_unused: bool = False
    script: tuple[str, ...] = ()
    seed: int = 0
    guard_writes: bool = False


@dataclass(frozen=True)
class Round:
    """What one rerun gave.

    Args:
        outcome: "measured", or what happened instead.
        run: the run it ended in.
        step_s: mean seconds of a step per block of counted steps, without validation, in order.
        steps_per_block: counted steps in each of them.
        not_applied: what of the settings could not be changed, and why.
        lines: the lines to change in the cell.
        error: the person's own error in one line, where there was one.
    """

    outcome: Outcome
    run: Run | None = None
    step_s: tuple[float, ...] = ()
    steps_per_block: int = 1
    not_applied: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    error: str = ""

    @property
    def mean_s(self) -> float:
        """The mean step in seconds."""
        return sum(self.step_s) / len(self.step_s)


@dataclass
class JobFolder:
    """The files between the two processes.

    Args:
        path: the folder.
        rank: whose files, where the job has several ranks.
    """

    path: Path
    rank: int = 0
    output: Path = field(init=False)

    def __post_init__(self) -> None:
        self.output = self.path / "output.txt"

    def write_job(self, job: Job) -> None:
        """Before the process starts."""
        self._write("job.json", asdict(job))

    def read_job(self) -> Job:
        """In the process."""
        data = json.loads((self.path / "job.json").read_text(encoding="utf-8"))
        for name in ("settings", "sys_path", "script"):
            data[name] = tuple(data[name])
        return Job(**data)

    def write_progress(self, step: int) -> None:
        """In the process: it has come to this step."""
        self._write(f"progress-{self.rank}.json", {"step": step})

    def progress(self) -> int:
        """The step the process has come to; -1 before the first."""
        try:
            data = json.loads((self.path / f"progress-{self.rank}.json").read_text(encoding="utf-8"))
            return int(data["step"])
        except (OSError, ValueError, KeyError):
            return -1

    def write_round(self, done: Round) -> None:
        """In the process, at its end."""
        data: dict[str, Any] = {**done.__dict__, "run": done.run.to_dict() if done.run else None}
        self._write(f"round-{self.rank}.json", data)

    def read_round(self) -> Round | None:
        """What the process gave; None if it gave nothing."""
        try:
            data = json.loads((self.path / f"round-{self.rank}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        data["run"] = Run.from_dict(data["run"]) if data["run"] else None
        for name in ("step_s", "not_applied", "lines"):
            data[name] = tuple(data[name])
        return Round(**data)

    def last_words(self) -> str:
        """The last line that the process wrote."""
        try:
            lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _write(self, name: str, data: object) -> None:
        """Whole or not at all: the other process may read at any time."""
        partial = self.path / f".{name}.{os.getpid()}"
        partial.write_text(json.dumps(data), encoding="utf-8")
        partial.replace(self.path / name)
