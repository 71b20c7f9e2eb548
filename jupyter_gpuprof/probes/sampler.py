"""The sampler of the training thread: a thread beside it that looks at its stack now and then.

The interpreter runs one thread at a time, and a thread keeps it (the GIL) for 5 ms unless it waits for
something or computes without it. A sampler would thus see a loop of 3 ms of Python and 1 ms of tensors
in its tensors always (measured). So while one of ours is on, a thread may keep the interpreter for 50 us
only when another one wants it (`sys.setswitchinterval`); what is seen is at most so much later than the
moment it stands for. With a second thread of the person's own that fetches batches this would change what
is measured, and the interval is put back.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes import hooks, stacks
from jupyter_gpuprof.probes.fetch import THROUGH
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.samples import Samples

#: Between two samples of a thread. At 10 ms they cost 1 % and more (benchmarks/sampling.py).
PERIOD_S = 0.02
#: How long a thread may keep the interpreter while a sampler waits for it.
SWITCH_S = 50e-6
#: The golden ratio's fraction: its multiples are spread evenly over 0 to 1, and repeat in no rhythm.
_GOLDEN = 0.6180339887498949

_own_switch_s: float | None = None  # what the interval was before we changed it


def _switch_back() -> None:
    global _own_switch_s
    if _own_switch_s is not None and sys.getswitchinterval() <= SWITCH_S:  # else somebody changed it since
        sys.setswitchinterval(_own_switch_s)
    _own_switch_s = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_switch_back)  # no sampler is on there


class Schedule:
    """One instant in each period, at another place of it each time, so that no loop keeps in step.

    Args:
        start_ns: when the first period begins.
        period_ns: its length.
    """

    def __init__(self, start_ns: int, period_ns: int) -> None:
        self._start_ns, self._period_ns, self._next = start_ns, period_ns, 0

    @property
    def due_ns(self) -> int:
        """The next instant."""
        return self._due_ns(self._next)

    def _due_ns(self, period: int) -> int:
        return self._start_ns + int((period + (period + 1) * _GOLDEN % 1) * self._period_ns)

    def passed(self, now_ns: int) -> int:
        """How many instants have come since the last call: more than one if it was kept waiting.

        A call into C that does not let go of the interpreter is seen once, at its end, and stands for
        all of them.
        """
        first, last = self._next, max(self._next, (now_ns - self._start_ns) // self._period_ns)
        self._next = last + (self._due_ns(last) <= now_ns)
        return self._next - first


class Ticks(threading.Thread):
    """Calls `take` about every `period_s`, in a thread, until `stop`.

    Args:
        take: called with how many periods it stands for.
        period_s: between two calls, on average.
    """

    def __init__(self, take: Callable[[int], None], period_s: float = PERIOD_S) -> None:
        super().__init__(name="gpuprof sampler", daemon=True)
        self.error: Exception | None = None
        self.cost_ns = 0  # of all calls
        self._take, self._period_ns = take, int(period_s * 1e9)
        self._on = threading.Lock()
        self._on.acquire()
        self._switched = False

    def run(self) -> None:
        """The thread's work."""
        self._switch()
        try:
            schedule = Schedule(clock.now_ns(), self._period_ns)
            while not self._on.acquire(timeout=max(0.0, (schedule.due_ns - clock.now_ns()) * 1e-9)):
                now = clock.now_ns()
                if ticks := schedule.passed(now):
                    self._take(ticks)
                self.cost_ns += clock.now_ns() - now
        except Exception as error:
            self.error = error
        finally:
            self.switch_back()

    def _switch(self) -> None:
        global _own_switch_s
        if sys.getswitchinterval() > SWITCH_S:
            self._switched, _own_switch_s = True, sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_S)

    def switch_back(self) -> None:
        """Let threads keep the interpreter as long as before, if it was this one that changed that."""
        if self._switched:
            self._switched = False
            _switch_back()

    def end(self) -> None:
        """Ask it to end; may be called again, and from `take`."""
        try:
            self._on.release()
        except RuntimeError:
            pass  # asked before

    def stop(self) -> None:
        """End it and wait until it has."""
        self.end()
        if self.is_alive():
            self.join(timeout=1.0)


class TrainingSampler:
    """Samples the thread of a run while that run records and no run inside it does.

    Args:
        recorder: of the run; tells the thread, and whether a fetch is open.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts = stacks.StackCounts()
        self._ticks = Ticks(self._take)
        self._seen = 0  # periods
        self._elsewhere = recorder.off_thread_fetches
        self._begun_cpu_ns = self._begun_thread = 0

    def start(self) -> None:
        """Begin; on the training thread, whose processor time is read."""
        self._begun_thread, self._begun_cpu_ns = threading.get_ident(), clock.thread_ns()
        self._ticks.start()

    def _take(self, ticks: int) -> None:
        recorder = self._recorder
        if hooks.current() is not recorder or recorder.muted:
            return
        if recorder.off_thread_fetches != self._elsewhere:
            self._elsewhere = recorder.off_thread_fetches
            self._ticks.switch_back()
        innermost = recorder.opened[-1:]  # in one go: the other thread may take it away meanwhile
        where = "fetch" if innermost and innermost[0].how != THROUGH else "step"
        self._counts.add(sys._current_frames().get(recorder.thread), where, ticks)
        self._seen += ticks

    def halt(self) -> None:
        """Sample no more."""
        self._ticks.end()

    def stop(self) -> Samples:
        """End it; what it saw, and the training thread's processor time."""
        here = threading.get_ident()
        cpu: Number = Missing("the training moved to another thread")
        if here == self._begun_thread == self._recorder.thread:
            cpu = (clock.thread_ns() - self._begun_cpu_ns) * 1e-9
        self._ticks.stop()
        self._recorder.cost_ns += self._ticks.cost_ns
        self._ticks.cost_ns = 0
        remarks = []
        if self._ticks.error is not None:
            remarks.append(f"The training thread was sampled in part only ({self._ticks.error!r}).")
        if self._counts.left_out:
            remarks.append(f"{self._counts.left_out} samples of rare stacks were left out.")
        return Samples(
            source="training thread",
            stacks=stacks.stack_counts(self._counts.stacks()),
            period_s=PERIOD_S,
            cpu_s=cpu,
            wall_s=self._seen * PERIOD_S,
            remarks=tuple(remarks),
        )
