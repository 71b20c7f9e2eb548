"""A few steps under torch.profiler: what the device did, op by op.

The raw event list of Kineto is read through this one adapter (building torch's own tables takes
seconds), and becomes the same `RankTrace` that a stored trace gives. What the loader and the optimizer
did comes from our own hooks, on the same clock (Kineto's times are Unix nanoseconds).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from jupyter_gpuprof.clock import unix_ns
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.traceevents import TraceCollector
from jupyter_gpuprof.probes.tracejson import Args, Event
from jupyter_gpuprof.records.trace import RankTrace

#: Set once a window recorded an accelerator in this process: the driver's tracing library stays loaded,
#: and a process that used it cannot be suspended.
_used_device_tracing = False

#: What our own marks say better.
_OUR_OWN_MARKS = ("enumerate(DataLoader)#", "ProfilerStep", "Optimizer.step#")
#: What Kineto's activity of an event is called in a trace file, where `activity_type` does not tell.
_GPU_CATEGORIES = ("Memcpy", "Memset")


def suspendable() -> bool:
    """Whether this process may still be suspended as far as kernel windows go."""
    return not _used_device_tracing


def why_no_window() -> str:
    """Why a window cannot be opened now, or ""."""
    import torch

    if torch.autograd._profiler_enabled():
        return "another profiler is on, and a second one would empty it"
    return ""


class KernelWindow:
    """One window: `start`, some steps, `stop`.

    Args:
        device_kind: as torch names it; "cpu" records operators of the host.
        host_too: on an accelerator, record the host's operators as well: dearer, and only because some
            versions of Kineto give no device events without them.
    """

    def __init__(self, device_kind: str, *, host_too: bool = False) -> None:
        self._kind = device_kind
        self._host_too = host_too
        self._profiler: Any = None
        self._marks: list[Event] = []
        self._base_ns = 0
        self._fetch_ns = self._step_ns = -1
        self._settled = False
        self.steps = 0

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: torch's profiler does not start.
        """
        global _used_device_tracing
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU if self._kind == "cpu" else _device_activity(self._kind)]
        if self._host_too and self._kind != "cpu":
            activities.append(ProfilerActivity.CPU)
        _used_device_tracing = _used_device_tracing or self._kind != "cpu"
        self._base_ns = unix_ns()
        profiler = profile(activities=activities)
        with quiet_stderr():
            profiler.start()
        self._profiler = profiler

    # -- marks of our hooks; `now` in Unix nanoseconds ---------------------------------------------

    def begin_step(self) -> None:
        """A step begins (and the one before it ends)."""
        now = unix_ns()
        if self._settled:
            self._mark(f"ProfilerStep#{self.steps}", self._step_ns, now)
            self.steps += 1
        self._settled = self._step_ns >= 0  # the first whole step still feels the profiler's start
        self._step_ns = now

    def begin_fetch(self) -> None:
        """``next()`` is called."""
        self._fetch_ns = unix_ns()

    def end_fetch(self) -> None:
        """``next()`` returned."""
        self._mark("enumerate(DataLoader)#watched", self._fetch_ns, unix_ns())

    def _mark(self, name: str, start_ns: int, end_ns: int) -> None:
        self._marks.append(self._event("user_annotation", name, start_ns, end_ns - start_ns))

    def _event(self, category: str, name: str, start_ns: int, length_ns: int, **where: Any) -> Event:
        # Relative to the window, so that microseconds as floats keep their nanoseconds.
        start_us, length_us = (start_ns - self._base_ns) / 1e3, length_ns / 1e3
        return Event("X", category, name, start_us, length_us, tid=0, **where)

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> RankTrace | None:
        """End the window, whatever happened in it.

        Returns:
            What was recorded; None where that is nothing (which never means that the device idled).
        """
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return None
        try:
            with quiet_stderr():
                profiler.stop()
            return self._read(profiler) if self.steps else None
        finally:
            del profiler
            gc.collect()  # CUDA's buffers of a window are only freed with the garbage

    def _read(self, profiler: Any) -> RankTrace | None:
        collector = TraceCollector("kernel window")
        events = [event for event in map(self._convert, _raw_events(profiler)) if event is not None]
        if self._kind != "cpu" and not any(event.args is not None for event in events):
            return None
        collector.add(self._marks + events)
        try:
            return collector.finish({"baseTimeNanoseconds": self._base_ns}, unreadable=0, complete=True)
        except TraceError:
            return None

    def _convert(self, raw: Any) -> Event | None:
        """A raw event as that of a trace file; None for what we do not use."""
        name, on_device = raw.name(), not str(raw.device_type()).endswith("CPU")
        if not on_device:
            if self._kind != "cpu" or name.startswith(_OUR_OWN_MARKS):
                return None
            category = "user_annotation" if raw.is_user_annotation() else "cpu_op"
            return self._event(category, name, raw.start_ns(), raw.duration_ns())
        if raw.is_user_annotation() or _is_synchronisation(raw, name):
            return None
        category = "gpu_memcpy" if name.startswith(_GPU_CATEGORIES) else "kernel"
        where = Args(device=raw.device_index(), stream=raw.device_resource_id())
        return self._event(category, name, raw.start_ns(), raw.duration_ns(), args=where)


def _raw_events(profiler: Any) -> list[Any]:
    return list(profiler.profiler.kineto_results.events())


def _is_synchronisation(raw: Any, name: str) -> bool:
    kind = raw.activity_type() if hasattr(raw, "activity_type") else ""
    return "sync" in kind or kind in ("overhead", "gpu_user_annotation") or name.endswith("Synchronize")


def _device_activity(kind: str) -> Any:
    from torch.profiler import ProfilerActivity

    return {
        "cuda": ProfilerActivity.CUDA,
        "xpu": getattr(ProfilerActivity, "XPU", ProfilerActivity.CUDA),
        "mtia": getattr(ProfilerActivity, "MTIA", ProfilerActivity.CUDA),
    }.get(kind, getattr(ProfilerActivity, "PrivateUse1", ProfilerActivity.CUDA))


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keep what C code writes to stderr meanwhile; give back all but Kineto's own chatter.

    Some versions of Kineto write a line at each start and stop, which a notebook would show in the cell.
    """
    try:
        kept = os.dup(2)
    except OSError:  # no stderr at all
        yield
        return
    with tempfile.TemporaryFile() as caught:
        sys.stderr.flush()
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught.read().splitlines(keepends=True):
                if not _is_chatter(line):
                    os.write(2, line)


def _is_chatter(line: bytes) -> bool:
    return line.startswith((b"USDT:", b"INFO:", b"STAGE:")) and b"rofiler" in line
