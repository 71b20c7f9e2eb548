"""What a process of an audit is told beside its job, and what it leaves behind, line by line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.resumeaudit import SeenStep

_TASK, _TRAIL = "audit.json", "trail.jsonl"


@dataclass(frozen=True)
class Task:
    """One process of an audit.

    Args:
        work: the folder that stands for the person's.
        stop_after: end after so many steps.
        two_epochs: end a little after the second epoch.
        kill_after: be interrupted after so many steps; 0 is never.
        kill_how: "SIGKILL" or "SIGTERM".
        kill_write: be killed just before so many files are opened, renamed or removed; 0 is never.
        save: the person's function that saves; "" where the cell saves itself.
        save_from: call it after each step from this one on; 0 is never.
        load: the person's function that loads, called before the cell; "" for a new run.
        renamed: variables that name folders, and what they name here.
        allow_writes: let the cell write elsewhere too.
    """

    work: str
    stop_after: int
    two_epochs: bool = False
    kill_after: int = 0
    kill_how: str = "SIGKILL"
    kill_write: int = 0
    save: str = ""
    save_from: int = 0
    load: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    allow_writes: bool = False

    @property
    def checkpoint(self) -> str:
        """The path that the person's functions are given."""
        return os.path.join(self.work, "checkpoint")


@dataclass(frozen=True)
class Write:
    """A file that was about to be opened for writing, renamed or removed, and after how many steps."""

    what: str
    path: str
    steps: int


@dataclass(frozen=True)
class Left:
    """What a process left.

    Args:
        steps: what it did.
        writes: the files it wrote, in order.
        refused: a file outside of its folder that it was not let write.
        error: of the cell, in one line.
        ended: whether the loop came to its end.
    """

    steps: tuple[SeenStep, ...] = ()
    writes: tuple[Write, ...] = ()
    refused: str = ""
    error: str = ""
    ended: bool = False


def write_task(folder: Path, task: Task) -> None:
    """Before the process starts."""
    (folder / _TASK).write_text(json.dumps(asdict(task)), encoding="utf-8")


def read_task(folder: Path) -> Task:
    """In the process."""
    return Task(**json.loads((folder / _TASK).read_text(encoding="utf-8")))


class Lines:
    """Written in the process; each line is there once `write` returns, whatever happens to the process then.

    Args:
        folder: of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / _TRAIL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, value: Any) -> None:
        """One line."""
        os.write(self._file, json.dumps([kind, encode(value)]).encode() + b"\n")


def read_lines(folder: Path) -> Left:
    """What the process has left."""
    steps, writes = list[SeenStep](), list[Write]()
    rest: dict[str, Any] = {}
    try:
        lines = (folder / _TRAIL).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            kind, value = json.loads(line)
        except ValueError:  # cut off by the kill
            continue
        if kind == "step":
            lists = {name: tuple(value[name]) for name in ("samples", "rates", "losses")}
            steps.append(SeenStep(**{**value, **lists}))
        elif kind == "write":
            writes.append(Write(**value))
        else:
            rest.setdefault(kind, value)
    return Left(tuple(steps), tuple(writes), **rest)
