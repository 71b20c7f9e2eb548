"""The sampler inside each worker of a DataLoader, put there by the loader's own ``worker_init_fn``.

The function is lent to the loader for the one call that starts workers. Each worker samples itself and
writes what it counted to a file of its own, about twice a second and when it ends; the file is replaced
in one go, so that a worker may be killed at any moment. A worker whose folder is gone stops sampling: the
run has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes import hostmemory
from jupyter_gpuprof.probes.corewait import core_wait_ns
from jupyter_gpuprof.probes.sampler import Ticks
from jupyter_gpuprof.probes.stacks import Spot, StackCounts

#: A worker writes no more often than this, and spends no more than one part in so many on it.
WRITE_S, WRITE_PART = 0.5, 100
#: The thread of a `multiprocessing.Queue` that pickles and sends what was put into it.
FEEDER = "QueueFeederThread"


class WorkerInit:
    """A ``worker_init_fn`` that calls the person's own and then begins to sample.

    Args:
        own: the person's function, if there is one.
        folder: where the worker's counts go.
    """

    def __init__(self, own: Callable[[int], Any] | None, folder: str) -> None:
        self._own, self._folder = own, folder

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        __tracebackhide__ = True
        if self._own is not None:
            self._own(worker_id)
        try:
            _Inside(Path(self._folder)).start()
        except Exception:
            pass  # the worker goes on without us, and has no file that says otherwise


class Loan:
    """Our function in place of a loader's ``worker_init_fn``, from `give` to `take_back`.

    Args:
        loader: a DataLoader.
        folder: where its workers' counts go.
    """

    def __init__(self, loader: Any, folder: str) -> None:
        self._loader, self._own = loader, loader.worker_init_fn
        self._ours = WorkerInit(self._own, folder)

    def give(self) -> None:
        """Put it in; a loader that does not take it stays as it is."""
        try:
            self._loader.worker_init_fn = self._ours
        except Exception:
            pass

    def take_back(self) -> None:
        """Put the person's own back, unless somebody else already changed it."""
        if self._loader.worker_init_fn is self._ours:
            self._loader.worker_init_fn = self._own


class _Inside:
    """Samples this worker: its main thread, and the one that hands batches over."""

    def __init__(self, folder: Path) -> None:
        from multiprocessing.util import Finalize

        from torch.utils.data._utils.worker import _worker_loop

        name = f"{os.getpid()}-{clock.now_ns()}"
        self._file, self._draft = folder / f"{name}.json", folder / f"{name}.draft"
        self._loop: CodeType = _worker_loop.__code__
        self._main = threading.get_ident()
        self._counts = StackCounts()
        self._ticks = Ticks(self._take)
        self._seen = 0
        self._cpu_ns, self._core_wait_ns = clock.process_ns(), core_wait_ns()
        self._memory: dict[str, int] = {}
        self._threads: set[int] = set()
        self._feeders: list[int] = []
        self._due_ns = 0
        self._write()
        Finalize(None, self._end, exitpriority=100)  # atexit does not run in a forked process

    def start(self) -> None:
        self._ticks.start()

    def _take(self, ticks: int) -> None:
        if not self._file.parent.is_dir():
            self._ticks.end()  # the run has ended
            return
        frames = sys._current_frames()
        if frames.keys() != self._threads:
            self._threads = set(frames)
            self._feeders = [t.ident for t in threading.enumerate() if t.name == FEEDER and t.ident]
        self._counts.add(frames.get(self._main), "MainThread", ticks, until=self._loop)
        for feeder in self._feeders:
            self._counts.add(frames.get(feeder), FEEDER, ticks)
        self._seen += ticks
        del frames  # nobody's objects should live longer for our sake
        if clock.now_ns() >= self._due_ns:
            self._write(measure=not self._memory)

    def _end(self) -> None:
        self._ticks.stop()
        try:
            self._write(measure=True, ended=True)
        except Exception:
            pass  # the run has ended, or the disk is full

    def _read_memory(self) -> None:
        own, free = hostmemory.own_bytes(), hostmemory.free_bytes()
        if own is not None:
            self._memory["own"] = max(own, self._memory.get("own", 0))
        if isinstance(free, int):
            self._memory["free"] = min(free, self._memory.get("free", free))

    def _core_wait_s(self) -> float | None:
        now = core_wait_ns()
        return None if now is None or self._core_wait_ns is None else (now - self._core_wait_ns) * 1e-9

    def _write(self, *, measure: bool = False, ended: bool = False) -> None:
        begun = clock.now_ns()
        if measure:
            self._read_memory()
        spots: dict[Spot, int] = {}
        rows = [
            [kind, [spots.setdefault(spot, len(spots)) for spot in stack], times]
            for (kind, stack), times in self._counts.stacks().items()
        ]
        report = {
            "ended": ended,
            "ticks": self._seen,
            "cpu_s": (clock.process_ns() - self._cpu_ns) * 1e-9,
            "core_wait_s": self._core_wait_s(),
            "memory": self._memory,
            "left_out": self._counts.left_out,
            "spots": list(spots),
            "stacks": rows,
        }
        self._draft.write_text(json.dumps(report))
        os.replace(self._draft, self._file)
        now = clock.now_ns()
        self._due_ns = now + max(int(WRITE_S * 1e9), WRITE_PART * (now - begun))
