"""What the samplers inside the workers left in the run's folder, read back in the training process."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpuprof.probes.sampler import PERIOD_S
from jupyter_gpuprof.probes.stacks import Stacks, stack_counts
from jupyter_gpuprof.probes.workersampler import FEEDER, Loan
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.samples import Samples, Where

#: Files of workers that ended are put together once there are so many, for loaders that start new workers
#: each epoch.
MAX_FILES = 64


def doing(functions: Sequence[str], thread: str) -> Where | None:
    """What a worker's thread is seen in; None if it waits for something to do.

    Args:
        functions: the functions on its stack, innermost first, as torch's `_worker_loop` and
            `multiprocessing.Queue` name them.
        thread: the thread's name; any but `FEEDER` is the main one.
    """
    names = [function.rpartition(".")[2] for function in functions]
    calls = set(zip(names[1:], names, strict=False))
    if thread == FEEDER:
        return None if ("_feed", "wait") in calls or "_feed" not in names else "step"
    if ("_worker_loop", "get") in calls:
        return None
    deep = "_worker_loop" not in names
    return "fetch" if deep or ("_worker_loop", "fetch") in calls or names[0] == "_worker_loop" else "step"


def busy(stacks: Stacks) -> Stacks:
    """Stacks of workers' threads by name as stacks by what they were seen in, without the waiting ones."""
    found: Stacks = Counter()
    for (thread, spots), times in stacks.items():
        if where := doing([spot[1] for spot in spots], thread):
            found[where, spots] += times
    return found


class WorkerReports:
    """Lends workers their sampler and reads what they report.

    The folder is made for the first loader with workers, in the process that the run is in; it is gone
    after `stop`.
    """

    def __init__(self) -> None:
        self.own_bytes: Number = Missing("no worker was there long enough to read its memory")
        self.free_bytes: Number = Missing("no worker was there long enough to read the free memory")
        self.remarks: list[str] = []
        self._pid = os.getpid()
        self._folder: Path | None = None
        self._ended = False
        self._stacks: Stacks = Counter()
        self._workers = self._killed = self._left_out = 0
        self._wall_s = self._cpu_s = 0.0
        self._core_wait_s: Number = 0.0

    def lend(self, loader: Any) -> Loan | None:
        """A sampler for the workers that ``iter(loader)`` is about to start; None if it starts none."""
        if self._ended or loader.num_workers == 0 or os.getpid() != self._pid:
            return None
        if loader.persistent_workers and getattr(loader, "_iterator", None) is not None:
            return None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="gpuprof-"))
        elif len(files := list(self._folder.glob("*.json"))) > MAX_FILES:
            self._read(files, only_ended=True)
        return Loan(loader, str(self._folder))

    def stop(self) -> Samples | None:
        """What all workers reported, busy samples only; None without workers. The folder is removed."""
        self._ended = True
        if self._folder is None or os.getpid() != self._pid:
            return None
        # Workers that are still there find it no more under its old name, and end their sampling.
        aside = self._folder.with_name(f"{self._folder.name}.ended")
        try:
            self._folder.rename(aside)
            self._read(aside.glob("*.json"))
        except OSError as error:
            self.remarks.append(f"The samples of the workers could not be read ({error}).")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)
            self._folder = None
        return self._samples() if self._workers else None

    def _samples(self) -> Samples:
        if self._left_out:
            self.remarks.append(f"{self._left_out} samples of rare stacks of workers were left out.")
        if self._killed:
            self.remarks.append(f"{self._killed} workers were killed; what they did last is missing.")
        return Samples(
            source="workers",
            stacks=stack_counts(busy(self._stacks)),
            period_s=PERIOD_S,
            threads=self._workers,
            cpu_s=self._cpu_s,
            core_wait_s=self._core_wait_s,
            wall_s=self._wall_s,
            remarks=tuple(self.remarks),
        )

    def _read(self, files: Iterable[Path], *, only_ended: bool = False) -> None:
        alive = {str(process.pid) for process in multiprocessing.active_children()}
        for file in files:
            try:
                report = json.loads(file.read_text())
                if only_ended and not report["ended"]:
                    continue
                self._add(report, gone=file.name.partition("-")[0] not in alive)
            except (OSError, ValueError, LookupError, TypeError) as error:
                self.remarks.append(f"A worker's samples could not be read ({error!r}).")
            file.unlink(missing_ok=True)

    def _add(self, report: dict[str, Any], *, gone: bool) -> None:
        spots = [(str(s[0]), str(s[1]), *map(int, s[2:6])) for s in report["spots"]]
        for thread, stack, times in report["stacks"]:
            self._stacks[str(thread), tuple(spots[i] for i in stack)] += int(times)
        self._workers += 1
        self._killed += gone and not report["ended"]
        self._left_out += report["left_out"]
        self._wall_s += report["ticks"] * PERIOD_S
        self._cpu_s += report["cpu_s"]
        waited_s = report["core_wait_s"]
        if waited_s is None:
            self._core_wait_s = Missing("the kernel does not count how long a thread waits for a core")
        elif not isinstance(self._core_wait_s, Missing):
            self._core_wait_s += waited_s
        own, free = report["memory"].get("own"), report["memory"].get("free")
        if own is not None:
            self.own_bytes = max(own, self.own_bytes) if isinstance(self.own_bytes, int) else own
        if free is not None:
            self.free_bytes = min(free, self.free_bytes) if isinstance(self.free_bytes, int) else free
