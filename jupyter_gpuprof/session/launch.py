"""Where the ranks of a job run: one small interface, and this machine as its first implementation."""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from jupyter_gpuprof.probes import jobs

#: What a rank's process runs: its ``sys.path`` is the kernel's before anything of ours is imported.
RANK_PROGRAM = """\
import json, pathlib, sys
folder = sys.argv[1]
sys.path[:] = json.loads((pathlib.Path(folder) / "job.json").read_text())["sys_path"]
import jupyter_gpuprof.session.rank_child as child
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
        """Start the launcher, which starts the ranks."""
        program = folder / "rank.py"
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
        return jobs.start(command, tag=tag, env=env, output=folder / "output.txt"), tag

    def status(self, handle: Any) -> Status:
        """Whether the launcher still runs."""
        process, _ = handle
        return Status("ended" if jobs.ended(process, 0.2) else "running")

    def cancel(self, handle: Any) -> None:
        """End the launcher and all ranks, wherever they went."""
        jobs.end(*handle)
