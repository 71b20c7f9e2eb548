"""A fetch in progress, and who is told what the recorder sees."""

from __future__ import annotations

from typing import Any, Protocol

from jupyter_gpuprof.probes.sources import Source

# How a fetch in progress is recorded: not at all, as one, or not itself but whatever happens inside.
SKIPPED, RECORDED, THROUGH = range(3)


class Fetch:
    """A fetch in progress.

    Args:
        source: where it fetches from.
        start: host time in nanoseconds.
        how: how it is recorded.
        cpu_ns: the thread's processor time at its beginning; -1 if that is not sampled.
    """

    __slots__ = ("cpu_ns", "first", "how", "inner", "source", "start", "told")

    def __init__(self, source: Source, start: int, how: int, cpu_ns: int) -> None:
        self.source, self.start, self.how, self.cpu_ns = source, start, how, cpu_ns
        #: Whose batch it is said to be: of a loop over something around a loader, the loader's.
        self.told = source.behind or source
        self.first = False  # of the loader's iterator, whose workers are starting
        #: Of a loop: when the loader inside gave its batch, and the mark of that.
        self.inner: tuple[int, Any] | None = None

    def read_from(self, loader: Source) -> None:
        """A loader is read inside this ``next()``; what else the loop's iterator does is part of the wait."""
        if self.source.origin == "for" and loader.origin != "for":
            self.first = self.first or (loader.fresh and loader.workers > 0)
            self.source.behind = self.told = loader


class Sink(Protocol):
    """What the marks are given to (`jupyter_gpuprof.analysis.steps.StepAssembler`); `t` in seconds."""

    @property
    def by_optimizer(self) -> bool: ...
    def begin_iter(self, t: float) -> None: ...
    def end_iter(self, t: float, key: Any) -> None: ...
    def begin_fetch(self, t: float) -> None: ...
    def cancel_fetch(self, t: float) -> None: ...
    def end_fetch(
        self, t: float, key: Any, origin: Any, outcome: Any, *, grad: bool, epoch: bool
    ) -> None: ...
    def backward(self) -> None: ...
    def optimizer(self, t: float) -> None: ...
    def begin_save(self, t: float) -> None: ...
    def end_save(self, t: float) -> None: ...
    def begin_copy(self, t: float) -> None: ...
    def end_copy(self, t: float) -> None: ...
    def begin_tail(self, t: float) -> None: ...
    def end_tail(self, t: float) -> None: ...
    def pause(self, t: float) -> None: ...
    def resume(self, t: float) -> None: ...
    def gap(self) -> None: ...
    def finish(self, t: float) -> None: ...


class Observer(Protocol):
    """Who wants to know where steps begin (a kernel window)."""

    def begin_step(self) -> None: ...
    def begin_fetch(self) -> None: ...
    def end_fetch(self) -> None: ...


class Loan(Protocol):
    """What a loader is given while it starts its workers (`jupyter_gpuprof.probes.workersampler.Loan`)."""

    def give(self) -> None: ...
    def take_back(self) -> None: ...
