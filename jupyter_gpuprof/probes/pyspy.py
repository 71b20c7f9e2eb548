"""Stacks of loader workers that run already when a run begins, read from outside by py-spy.

Nothing of ours is inside them. Each look is one ``py-spy dump`` of one worker; the worker is not stopped
for it, so a look fails now and then, and sees lines, not calls.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes import hostmemory
from jupyter_gpuprof.probes.stacks import Stacks, stack_counts
from jupyter_gpuprof.probes.workerreports import busy
from jupyter_gpuprof.probes.workersampler import FEEDER
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.samples import Samples

#: Looks at one worker a second, and at all of them together: one look keeps a core busy for 10 to 20 ms.
LOOKS_PER_S, MOST_LOOKS_PER_S = 5, 10
#: The name that torch gives its workers' processes.
WORKER = "pt_data_worker"

_INSTEAD = "Workers that start inside the profiled code need none of this: begin the iterator there."


def find() -> str | None:
    """The py-spy program beside this interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def running_workers() -> list[int]:
    """The process ids of the loader workers that this process has started and that still run."""
    children = multiprocessing.active_children()
    if not children:
        return []
    import psutil

    found = []
    for child in children:
        try:
            if child.pid is not None and psutil.Process(child.pid).name() == WORKER:
                found.append(child.pid)
        except psutil.Error:
            pass  # it just ended
    return found


class OutsideSampler(threading.Thread):
    """Looks at workers from outside, in turn, until `stop`.

    Args:
        program: py-spy.
        workers: process ids.
    """

    def __init__(self, program: str, workers: list[int]) -> None:
        super().__init__(name="gpuprof py-spy", daemon=True)
        self.own_bytes: Number = Missing("the workers' memory could not be read")
        self._program, self._workers = program, workers
        self._ending = threading.Event()
        self._looking: subprocess.Popen[bytes] | None = None
        self._stacks: Stacks = Counter()
        self._looks = self._failed = 0
        self._remarks: list[str] = []
        self._wall_s = 0.0
        self._cpu_s: dict[int, list[float]] = {pid: [] for pid in workers}  # when first and last read

    def run(self) -> None:
        """The thread's work."""
        try:
            self._run()
        except Exception as error:
            if not self._ending.is_set():
                self._remarks.append(f"Looking at the workers with py-spy failed ({error!r}).")

    def _run(self) -> None:
        begun = clock.now_s()
        self._read_cpu()
        sizes = [size for pid in self._workers if (size := hostmemory.own_bytes(pid)) is not None]
        self.own_bytes = max(sizes, default=self.own_bytes)
        pause_s = 1 / min(LOOKS_PER_S * len(self._workers), MOST_LOOKS_PER_S)
        while self._workers and not self._ending.is_set():
            for pid in list(self._workers):
                if pid not in self._workers:
                    break  # we may not look at any
                due = clock.now_s() + pause_s
                self._look(pid)
                if self._ending.wait(max(0.0, due - clock.now_s())):
                    break
            now = clock.now_s()
            self._wall_s += (now - begun) * len(self._workers)
            begun = now
            self._read_cpu()

    def _look(self, pid: int) -> None:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            # Without pipes and without close_fds the program is started by posix_spawn, and a worker
            # that is forked meanwhile holds no end of a pipe that we would wait for.
            self._looking = subprocess.Popen(
                [self._program, "dump", "--json", "--nonblocking", "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                close_fds=False,
            )
            code = self._looking.wait()
            self._looking = None
            output.seek(0)
            errors.seek(0)
            if self._ending.is_set():
                return
            if code:
                self._failure(pid, errors.read().decode(errors="replace"))
                return
            self._count(json.load(output))

    def _failure(self, pid: int, message: str) -> None:
        self._failed += 1
        if not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            self._workers.remove(pid)  # it ended
        elif is_refused(message):
            self._remarks.append(why_refused(pid))
            self._workers.clear()

    def _count(self, threads: list[dict[str, Any]]) -> None:
        self._looks += 1
        for thread in threads:
            name = thread["thread_name"]
            if name not in ("MainThread", FEEDER):
                continue
            spots = []
            for frame in thread["frames"]:
                spots.append((frame["filename"], frame["name"], frame["line"], 0, 0, 0))
                if frame["name"] == "_worker_loop":
                    break  # what the process was forked from does not matter
            self._stacks[name, tuple(spots)] += 1

    def _read_cpu(self) -> None:
        import psutil

        for pid in self._workers:
            try:
                times = psutil.Process(pid).cpu_times()
                seconds = times.user + times.system
                self._cpu_s[pid] = [*self._cpu_s[pid][:1], seconds]
            except psutil.Error:
                pass  # it just ended

    def stop(self) -> Samples:
        """End it; what it saw of the workers' busy time."""
        self._ending.set()
        looking = self._looking
        if looking is not None:
            looking.kill()
        if self.is_alive():
            self.join(timeout=2.0)
        if self._failed > self._looks / 5 and not self._remarks:
            self._remarks.append(f"py-spy failed {self._failed} times of {self._failed + self._looks}.")
        return Samples(
            source="py-spy",
            stacks=stack_counts(busy(self._stacks)),
            period_s=self._wall_s / self._looks if self._looks else 1 / LOOKS_PER_S,
            threads=len(self._cpu_s),
            cpu_s=sum(read[-1] - read[0] for read in self._cpu_s.values() if read),
            wall_s=self._wall_s,
            remarks=tuple(self._remarks),
        )


def is_refused(message: str) -> bool:
    """Whether py-spy says that it may not look."""
    return any(words in message.lower() for words in ("permission denied", "operation not permitted"))


def why_refused(pid: int, root: Path = Path("/")) -> str:
    """What keeps py-spy from looking at a process of ours, and what to do.

    Args:
        pid: of the process.
        root: where ``proc`` and the marks of containers are.
    """
    refused = "py-spy may not look into the workers that ran before"
    try:
        scope = int((root / "proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    try:
        owner = (root / f"proc/{pid}").stat().st_uid
    except OSError:
        owner = os.getuid()
    if owner != os.getuid():
        why = "they belong to another user."
    elif scope >= 3:
        why = "this kernel forbids it to everybody until it is restarted (ptrace_scope 3)."
    elif scope == 2:
        why = "only an administrator may on this machine (ptrace_scope 2)."
    elif any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")):
        why = "the container lacks the right to. Start it with: --cap-add=SYS_PTRACE."
    elif scope == 1:
        why = "only a parent may (ptrace_scope 1). To allow it: sudo sysctl kernel.yama.ptrace_scope=0."
    else:
        why = "this process lacks the right to (CAP_SYS_PTRACE); in Docker, start with --cap-add=SYS_PTRACE."
    return f"{refused}: {why} {_INSTEAD}"
