"""Where the ranks of a job run: one small interface, and this machine as its first implementation."""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.probes import jobs

#: How a rank's process ends that has left a round in which nothing was measured.
TOLD = 33
#: What a rank's process runs: its ``sys.path`` is the kernel's before anything of ours is imported.
RANK_PROGRAM = """\
import json, pathlib, sys
folder = sys.argv[1]
sys.path[:] = json.loads((pathlib.Path(folder) / "job.json").read_text())["sys_path"]
import jupyter_gpuprof.session.reruns.rank_child as child
child.main(folder)
"""


@dataclass(frozen=True)
class Status:
    """Where a submitted job is, and the launcher's own words for it."""

    state: Literal["queued", "running", "ended"]
    words: str = ""


class Backend(Protocol):
    """Runs the ranks of a job; their answers are files in the job's folder (`JobFolder`)."""

    name: str

    def most(self) -> int | None:
        """The most devices it has; None if it cannot tell."""
        ...

    def submit(self, folder: Path, count: int) -> Any:
        """Start `count` ranks of the folder's job; a handle for the other calls.

        Raises:
            RerunError: the launcher refused.
        """
        ...

    def status(self, handle: Any) -> Status:
        """Where it is; waits a moment."""
        ...

    def cancel(self, handle: Any) -> None:
        """End whatever is left of it; called in the end for every job, also for one that has ended."""
        ...


@dataclass(frozen=True)
class _Started:
    """A launcher on this machine."""

    process: subprocess.Popen[bytes]
    tag: str  # in the environment of all that came of it
    output: Path


class Local:
    """This machine, by torch's elastic launcher with a rendezvous of its own.

    Args:
        devices: how many ranks this machine has room for.
        threads: OMP_NUM_THREADS of each rank, the same for every count.
    """

    name = "local"

    def __init__(self, devices: int, threads: int) -> None:
        self._devices, self._threads = devices, threads

    def most(self) -> int | None:
        """The devices of this machine."""
        return self._devices

    def submit(self, folder: Path, count: int) -> Any:
        """Start the launcher, which starts the ranks.

        Raises:
            RerunError: it does not start.
        """
        program, output = folder / "rank.py", folder / "output.txt"
        program.write_text(RANK_PROGRAM, encoding="utf-8")
        tag = secrets.token_hex(8)
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"),
            *("--nproc-per-node", str(count), str(program), str(folder)),
        ]
        env = {
            "OMP_NUM_THREADS": str(self._threads),
            "JUPYTER_GPUPROF_DATABASE": str(folder / "ledger.db"),  # where the ranks meet
            "PYTHONUNBUFFERED": "1",
        }
        try:
            return _Started(jobs.start(command, tag=tag, env=env, output=output), tag, output)
        except OSError as error:
            raise RerunError(f"The launcher does not start: {error.strerror}.") from None

    def status(self, handle: Any) -> Status:
        """Whether the launcher still runs; in the end, what became of the rank that failed first."""
        started: _Started = handle
        if not jobs.ended(started.process, 0.2):
            return Status("running")
        try:
            return Status("ended", _last_words(started.output.read_text(encoding="utf-8", errors="replace")))
        except OSError:
            return Status("ended")

    def cancel(self, handle: Any) -> None:
        """End the launcher and all ranks, wherever they went."""
        started: _Started = handle
        jobs.end(started.process, started.tag)


#: Of torch's launcher: its log lines, and what it writes of the rank that failed first.
_LOG = re.compile(r"^[WE]\d{4} ", re.MULTILINE)
_CAUSE = re.compile(r"Root Cause.*?rank +: (\d+).*?exitcode +: (-?\d+)", re.DOTALL)


def _last_words(output: str) -> str:
    """Why ranks are missing, from what they and torch's launcher wrote; "" if nothing says it."""
    own = [line.strip() for line in _LOG.split(output)[0].splitlines() if line.strip()]
    cause = _CAUSE.search(output)
    if cause is None:
        return own[-1][:300] if own else ""
    rank, code = int(cause[1]), int(cause[2])
    if code == TOLD:
        return ""
    if code >= 0:
        return f"rank {rank} ended with {code}" + (f": {own[-1][:300]}" if own else "")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"rank {rank} was ended by {name}"
