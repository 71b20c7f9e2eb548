"""Where time goes: to the place at which the loop is, unless a call in progress takes it."""

from __future__ import annotations

from jupyter_gpuprof.analysis.lanes import zeros
from jupyter_gpuprof.records.timing import Part

# Calls that take time out of wherever the loop is.
ITER, FETCH, SAVE, COPY, PAUSE, TAIL = range(6)

_COMPUTE, _COPIES = int(Part.COMPUTE), int(Part.COPIES)
_OTHER, _CHECKPOINT = int(Part.OTHER), int(Part.CHECKPOINT)
_COMMUNICATION = int(Part.COMMUNICATION)


class Account:
    """Gives every second since the first mark to one place.

    A call that is never told to have ended (its mark was lost) costs no second: it is settled when the
    call around it ends, or when one begins that cannot be inside it.
    """

    def __init__(self) -> None:
        self.paused_s = 0.0
        self.nowhere = zeros()
        # Where the loop is: a row, and the part of it.
        self.into, self.part = self.nowhere, _OTHER
        self._calls: list[list[float]] = []  # [kind, seconds] of the calls in progress, innermost last
        self._t: float | None = None

    def advance(self, t: float) -> None:
        """Time passed until `t`."""
        if self._t is not None:
            if self._calls:
                self._calls[-1][1] += t - self._t
            else:
                self.into[self.part] += t - self._t
        self._t = t

    def begin(self, t: float, kind: int) -> None:
        """A call of that kind begins."""
        calls = self._calls
        if calls or self._t is None:
            if kind == FETCH:
                self._settle_before_fetch(t)
            self.advance(t)
        else:
            self.into[self.part] += t - self._t
            self._t = t
        calls.append([kind, 0.0])

    def end(self, t: float, kind: int) -> float:
        """Seconds of the call of that kind that ends now; 0 if none is known to have begun."""
        calls = self._calls
        if calls and calls[-1][0] == kind and self._t is not None:
            seconds = calls.pop()[1] + t - self._t
            self._t = t
            return seconds
        self.advance(t)
        while any(call[0] == kind for call in calls):
            found, seconds = calls.pop()
            if found == kind:
                return seconds
            self._settle(found, seconds)
        return 0.0

    def give(self, seconds: float, part: int) -> None:
        """Time of a call that ended: to the call around it, if any, else to the loop."""
        if self._calls:
            self._calls[-1][1] += seconds
        else:
            self.into[part] += seconds

    def end_save(self, t: float) -> None:
        """A checkpoint is written."""
        self.give(self.end(t, SAVE), _CHECKPOINT)

    def end_copy(self, t: float) -> None:
        """A batch is on the device."""
        self.give(self.end(t, COPY), _COPIES if self.part == _COMPUTE else self.part)

    def end_tail(self, t: float) -> None:
        """The last collective of a backward pass is done."""
        self.give(self.end(t, TAIL), _COMMUNICATION if self.part == _COMPUTE else self.part)

    def end_pause(self, t: float) -> None:
        """The time is ours again."""
        self.paused_s += self.end(t, PAUSE)

    def close(self, t: float) -> None:
        """Nothing is in progress any more."""
        self.advance(t)
        while self._calls:
            self._settle(*self._calls.pop())

    def _settle(self, kind: float, seconds: float) -> None:
        if kind == PAUSE:
            self.paused_s += seconds
        else:
            self.give(seconds, _CHECKPOINT if kind == SAVE else self.part)

    def _settle_before_fetch(self, t: float) -> None:
        """Batches are fetched one after another, and not in the midst of saving."""
        self.advance(t)
        while self._calls and self._calls[-1][0] in (FETCH, SAVE, COPY, TAIL):
            self._settle(*self._calls.pop())
