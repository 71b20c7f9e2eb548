"""Marks of what the training thread does, in order, with the time the device came to them.

The hot path only appends; marks are read back (and given to a `Sink`) later, on the training thread,
once the device has come to them. Nothing here waits, queries from another thread, or touches a stream
that is being captured.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpuprof.clock import now_ns, thread_ns
from jupyter_gpuprof.probes.corewait import core_wait_ns
from jupyter_gpuprof.probes.events import EventBackend, HostClock
from jupyter_gpuprof.probes.fetch import RECORDED, SKIPPED, THROUGH, Fetch, Loan, Observer, Sink
from jupyter_gpuprof.probes.levers import LeverProbe
from jupyter_gpuprof.probes.sources import Source, Sources

#: Marks collected before they are read back, and the most that may wait for a device that lags behind.
DRAIN_AT, RING = 480, 4096
#: How old the oldest of them may get, so that a slow loop is seen as it runs.
DRAIN_PERIOD_NS = 250_000_000
#: After so many failures of our own code the run goes on without us.
MAX_FAILURES = 3

BACKWARD = ("backward", None, None)
#: The processor time of one fetch in so many is read (a power of two, less one).
SAMPLE_MASK = 15
#: What was begun must end, however far the device lags behind.
_ENDS = frozenset(
    {"end_iter", "end_fetch", "cancel_fetch", "end_save", "end_copy", "end_tail", "resume", "finish"}
)


class Recorder:
    """Records one run.

    Args:
        sink: what the marks are given to.
        grad_enabled: tells whether gradients are on (`torch.is_grad_enabled`).
        backend: the clock; the host's until the training turns out to run on an accelerator.
    """

    def __init__(
        self, sink: Sink, grad_enabled: Callable[[], bool], backend: EventBackend | None = None
    ) -> None:
        self.sources = Sources()
        self.levers = LeverProbe()
        self.thread = threading.get_ident()
        self.failures: list[str] = []
        self.failures_left = MAX_FAILURES
        self.cost_ns = 0  # what our hooks took on the training thread
        self.off_thread_fetches = 0
        self.off_thread_ns = 0
        self.lost_marks = 0  # the device lagged too far behind
        self.capture_marks = 0  # a graph was being captured
        self.optimizer_steps = 0
        self.saves = 0  # of checkpoints; files written one after the other are one
        self._fetches_at_save = -1
        self.backwards = 0  # whole ones
        self.on_drain: Callable[[], None] | None = None
        self.on_device: Callable[[Any], None] | None = None  # told the device of the first backward pass
        self.stop_request: BaseException | None = None  # raised at the next step boundary
        self.lend: Callable[[Any], Loan | None] | None = None  # what a loader's workers are to begin with
        self.disturbed = False  # another thread's run was on meanwhile
        self.drain_at = DRAIN_AT
        self.quick = False  # the short ways through the hooks will do: the host's clock, nobody looks on
        self._observer: Observer | None = None  # told of the boundaries of steps
        self._muted = False
        self.drain_due_ns = now_ns() + DRAIN_PERIOD_NS
        self._begun = thread_ns(), core_wait_ns("thread-self")
        self.core_wait_ratio = 0.0  # how long the training thread waited for a core, over what it computed
        self.in_tail = False  # of a distributed backward pass
        self.grad_enabled = grad_enabled
        self.opened: list[Fetch] = []  # fetches in progress, innermost last
        self.spare = Fetch(Source(-1, "loader", ""), 0, SKIPPED, -1)  # for the quick way, one at a time
        self.use(sink, backend or HostClock())
        self.headless = False

    def use(self, sink: Sink, backend: EventBackend) -> None:
        """Begin anew with this sink and clock; what was recorded so far is dropped."""
        self.sink, self.backend = sink, backend
        self._host = isinstance(backend, HostClock)
        self.pending: deque[tuple[str, Any, Any]] = deque()
        self._last: Any = None  # the last event read back
        self._t = self._raw = 0.0
        self.headless = not self._host  # in a step whose beginning was dropped
        self._set_quick()
        for fetch in self.opened:
            if fetch.how == RECORDED:
                fetch.how = SKIPPED

    @property
    def active(self) -> bool:
        """Whether hooks still record."""
        return self.failures_left > 0

    @property
    def muted(self) -> bool:
        """Whether the observer alone is told what happens, and nothing is recorded."""
        return self._muted

    @muted.setter
    def muted(self, muted: bool) -> None:
        if self._muted and not muted:
            self.gap()
        self._muted = muted
        self._set_quick()

    def observe(self, observer: Observer | None) -> None:
        """Let somebody know where steps begin; None ends it."""
        self._observer = observer
        self._set_quick()

    def take_stop_request(self) -> BaseException:
        """The request to end, once; what comes after it is not recorded, should somebody catch it."""
        stop, self.stop_request = self.stop_request, None
        assert stop is not None
        self.drain()
        self.muted = True
        return stop

    def read_back_at_once(self) -> None:
        """Read marks back at every step, so that somebody can count them and stop at the right one."""
        self.drain_at = 1
        self._set_quick()

    def _set_quick(self) -> None:
        alone = not self._muted and self._observer is None and self.drain_at == DRAIN_AT
        self.quick = self._host and self.active and alone

    @property
    def at_boundary(self) -> bool:
        """Whether the fetch in progress begins a step, and is not part of another one."""
        return bool(self.opened) and all(fetch.how == THROUGH for fetch in self.opened[:-1])

    @property
    def ends_by_optimizer(self) -> bool:
        """Whether no batch will come at whose fetch a step would end."""
        return self.sink.by_optimizer or not any(source.fetches for source in self.sources.all)

    def failed(self, error: BaseException) -> None:
        """A hook of ours failed; the user's loop goes on."""
        self.failures.append(f"{type(error).__name__}: {error}")
        self.failures_left -= 1
        self._set_quick()

    # -- marks, on the training thread -----------------------------------------------------------

    def _mark(self, kind: str, now: int, payload: Any = None) -> bool:
        if self._muted:
            return False
        if self._host:
            self.pending.append((kind, now, payload))
            return True
        if self.backend.capturing():
            self.capture_marks += 1
            return False
        if len(self.pending) >= RING and kind not in _ENDS:
            self.lost_marks += 1
            return False
        self.pending.append((kind, self.backend.record(), payload))
        return True

    def begin_iter(self, loader: Any) -> Source | None:
        """``iter(loader)`` is called."""
        source = self.sources.of_loader(loader)
        now = now_ns()
        if self.opened and self.opened[-1].how != THROUGH:
            return None  # part of the fetch around it
        return source if self._mark("begin_iter", now) else None

    def end_iter(self, source: Source | None, loader: Any, iterator: Any) -> None:
        """``iter(loader)`` returned `iterator`."""
        if source is not None:
            self._mark("end_iter", now_ns(), source.key)
        if iterator is not None:
            self.sources.began(source or self.sources.of_loader(loader), iterator)

    def begin_fetch(self, source: Source) -> None:
        """``next()`` is called for a batch of `source`."""
        start = now_ns()
        opened = self.opened
        outer = opened[-1] if opened else None
        if outer is not None and outer.how != THROUGH:
            for around in self._loops_around():
                around.read_from(source)
            how = SKIPPED
        elif source.trains:
            how = THROUGH
        else:
            self.headless = False
            if len(self.pending) >= self.drain_at or start > self.drain_due_ns:
                start = self._drain_and_tell(start)
            if self._observer is not None:
                start = self._observe(start)
            how = RECORDED if self._mark("begin_fetch", start) else SKIPPED
        cpu_ns = -1 if source.fetches & SAMPLE_MASK else thread_ns()
        opened.append(Fetch(source, start, how, cpu_ns))
        self.cost_ns += now_ns() - start

    def end_fetch(self, outcome: str, *, batch: bool = True) -> None:
        """``next()`` returned, or raised.

        Args:
            outcome: "batch", "stop" or "error".
            batch: False if what came is no batch (a loop over numbers, say).
        """
        now = now_ns()
        fetch = self.opened.pop()
        source, told = fetch.source, fetch.told
        if batch and outcome == "batch":
            self._count(fetch, now)
        if fetch.how == RECORDED and batch:
            first = fetch.first or (source is told and source.fresh and source.workers > 0)
            self._mark("end_fetch", now, (told.key, told.origin, outcome, self.grad_enabled(), first))
        elif fetch.how == RECORDED:
            self._mark("cancel_fetch", now)
        elif batch and self.opened and self.opened[-1].told is source:
            first = source.fresh and source.workers > 0
            payload = (source.key, source.origin, outcome, self.grad_enabled(), first)
            for around in self._loops_around():
                around.inner = around.inner or (now, payload)
        elif self._muted and batch and self._observer is not None and not self.opened:
            self._observer.end_fetch()
        source.fresh = False
        self.cost_ns += now_ns() - now

    def _loops_around(self) -> Iterator[Fetch]:
        """The ``next()`` calls of loops in progress, innermost first, up to one that is no loop's."""
        return itertools.takewhile(lambda fetch: fetch.source.origin == "for", reversed(self.opened))

    def _count(self, fetch: Fetch, now: int) -> None:
        """A fetch gave a batch: for its source, or for the loader that a loop's iterator reads from."""
        source, outer = fetch.source, self.opened[-1] if self.opened else None
        if fetch.cpu_ns >= 0:
            source.cpu_ns += thread_ns() - fetch.cpu_ns
            source.sampled_ns += now - fetch.start
        if fetch.told is source:
            source.fetches += 1
        if outer is None or outer.told is not source:  # else the loop's own next() counts the time
            fetch.told.wait_ns += now - fetch.start

    def _look_through(self, now: int) -> bool:
        """More than a fetch goes on inside the innermost ``next()``; whether that is recorded.

        A loop of the cell whose iterator trains gives results, not batches. In a loader (or what
        the person watches) it is part of making the batch.
        """
        innermost = self.opened[-1]
        if innermost.how == RECORDED and innermost.source.origin == "for":
            innermost.how = THROUGH
            innermost.source.trains = True  # from its next fetch on, what is inside it is recorded
            if self._host and innermost.inner is not None and not self._muted:
                self.pending.append(("end_fetch", *innermost.inner))  # the batch that is trained on
            elif self.pending and self.pending[-1][0] == "begin_fetch":
                self.pending.pop()
            else:
                self._mark("cancel_fetch", now)
        return innermost.how == THROUGH

    def tail(self) -> None:
        """The last gradient of a distributed backward pass is there (autograd's thread tells)."""
        self.in_tail = self._mark("begin_tail", now_ns())

    def backward(self, tensors: Any, whole: bool = True) -> None:
        """A backward pass finished; not `whole`: gradients were asked for, which may be one."""
        if self.in_tail:
            self.in_tail = False
            self._mark("end_tail", now_ns())
        if self.opened and not self._look_through(now_ns()):
            return
        self.backwards += whole
        if self.on_device is not None:
            self._tell_device(tensors)
        if self.headless or self._muted:
            return
        if len(self.pending) >= 4 * self.drain_at:
            self._drain_late()
            if len(self.pending) >= RING:
                self.lost_marks += 1
                return
        self.pending.append(BACKWARD)

    def _tell_device(self, tensors: Any) -> None:
        tensor = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        tell, self.on_device = self.on_device, None
        if tell is not None and hasattr(tensor, "device"):
            tell(tensor.device)

    def optimizer(self) -> None:
        """An optimizer step finished."""
        start = now_ns()
        if self.opened and not self._look_through(start):
            return
        self.optimizer_steps += 1
        if self.headless:
            # Steps begin with a batch; without a loader, with the end of this one.
            self.headless = any(source.fetches for source in self.sources.all)
        elif self._host and not self._muted:
            self.pending.append(("optimizer", start, None))
        else:
            self._mark("optimizer", start)
        if len(self.pending) >= 2 * self.drain_at or start > self.drain_due_ns + DRAIN_PERIOD_NS:
            self._drain_and_tell(start)  # no loader, whose next batch would be the place for it
        else:
            self.cost_ns += now_ns() - start

    def simple(self, kind: str) -> bool:
        """One of the marks without a payload: begin_save, end_save, begin_copy, end_copy, pause, resume."""
        start = now_ns()
        recorded = self._mark(kind, start)
        if kind == "begin_save":
            fetches = sum(source.fetches for source in self.sources.all)
            self.saves += fetches != self._fetches_at_save
            self._fetches_at_save = fetches
        if len(self.pending) >= 4 * self.drain_at:
            self._drain_late()
        self.cost_ns += now_ns() - start
        return recorded

    def gap(self) -> None:
        """What happened since the last mark was not recorded (nor was it asked to be)."""
        self.pending.append(("gap", None, None))

    def off_thread(self, ns: int) -> None:
        """A batch was fetched on another thread: never a stall of the training thread."""
        self.off_thread_fetches += 1
        self.off_thread_ns += ns

    def _drain_and_tell(self, start: int) -> int:
        """Read back and tell who wants to know; the time then."""
        self.drain_due_ns = start + DRAIN_PERIOD_NS
        if not self.backend.capturing():
            self.drain()
            if self.on_drain is not None:
                self.on_drain()
        now = now_ns()
        self.cost_ns += now - start
        return now

    def _observe(self, start: int) -> int:
        """A step begins, as far as one can tell: tell the observer, who keeps its own costs."""
        observer = self._observer
        if observer is None or not self.grad_enabled():
            return start
        self.cost_ns += now_ns() - start
        observer.begin_step()
        if self._muted:
            observer.begin_fetch()
        return now_ns()

    # -- reading back ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Give the sink the marks that the device has come to."""
        pending, backend, sink = self.pending, self.backend, self.sink
        while pending:
            kind, event, payload = pending[0]
            if event is not None:
                if not backend.query(event):
                    return
                if self._last is not None:
                    self._raw += backend.elapsed_s(self._last, event)
                    if self._raw > self._t:  # an event of another stream may be from before the last one
                        self._t = self._raw
                self._last = event
            pending.popleft()
            if kind == "end_fetch":
                key, origin, outcome, grad, epoch = payload
                sink.end_fetch(self._t, key, origin, outcome, grad=grad, epoch=epoch)
            elif kind == "begin_fetch":
                sink.begin_fetch(self._t)
            elif kind == "optimizer":
                sink.optimizer(self._t)
            elif kind == "backward":
                sink.backward()
            elif kind == "gap":
                sink.gap()
            elif kind == "end_iter":
                sink.end_iter(self._t, payload)
            else:
                getattr(sink, kind)(self._t)

    def _drain_late(self) -> None:
        """Without batches or optimizer steps, which are the better places for it."""
        if not self.backend.capturing():
            self.drain()

    @property
    def t_s(self) -> float:
        """The time of the last mark that was read back, in seconds on the run's clock."""
        return self._t

    def finish(self) -> None:
        """End the run: the one wait for the device."""
        cpu_ns, waited_ns = thread_ns(), core_wait_ns("thread-self")
        if self._begun[1] is not None and waited_ns is not None and cpu_ns > self._begun[0]:
            self.core_wait_ratio = (waited_ns - self._begun[1]) / (cpu_ns - self._begun[0])
        if self.backend.capturing():
            return  # the person's capture was left open; what is pending cannot be read
        self._mark("finish", now_ns())
        event = next((mark[1] for mark in reversed(self.pending) if mark[1] is not None), None)
        if event is not None:
            self.backend.synchronize(event)
        self.drain()
