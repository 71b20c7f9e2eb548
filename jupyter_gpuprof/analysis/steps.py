"""From marks to steps: an automaton that gives every second of a training loop to one part of one step.

It is fed with what happened on the training thread (a fetch, a backward pass, an optimizer step, a
save) and the time at which it happened on the run's clock, and knows nothing of clocks, torch or
threads. A step is one batch: it lasts from one fetch of the training loader to the next.

Which loop trains is not known when a fetch happens: a validation loop looks the same until no backward
pass follows. So a loop begins as a *candidate*; the first backward pass promotes it to the training
lane, and a candidate that ends without one was validation (or, in a run that never trains, inference).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from jupyter_gpuprof.analysis.series import StepSeries
from jupyter_gpuprof.records.timing import Part

Outcome = Literal["batch", "stop", "error"]
Origin = Literal["loader", "watch", "for"]

PARTS = len(Part)
#: Columns of a `StepSeries` behind the parts: backward passes and optimizer steps within the step.
BACKWARDS, OPTIMIZER_STEPS = PARTS, PARTS + 1
COLUMNS = PARTS + 2

#: More optimizer steps than this on one batch: the batch is reused, and steps are counted by optimizer.
OPTIMIZER_STEPS_PER_BATCH = 8
#: Batches of a loop without a backward pass that may still turn out to be gradient accumulation.
PENDING_ROWS = 64

# Plain ints: an IntEnum as a list index costs a lookup in the hot path.
_INPUT, _EPOCH, _COMPUTE, _OTHER = map(int, (Part.INPUT, Part.EPOCH_START, Part.COMPUTE, Part.OTHER))
_COPIES, _CHECKPOINT, _VALIDATION = map(int, (Part.COPIES, Part.CHECKPOINT, Part.VALIDATION))


def _zeros() -> list[float]:
    return [0.0] * COLUMNS


def _add(into: list[float], row: Sequence[float]) -> None:
    for i, value in enumerate(row):
        if value:
            into[i] += value


class _Lane:
    """One loop over batches: its open step, and what came after the step's last training work."""

    __slots__ = (
        "after", "exhausted", "grad", "joined", "key", "origin", "pending", "row", "total",
    )  # fmt: skip

    def __init__(self, key: Hashable, origin: Origin, grad: bool, row: list[float]) -> None:
        self.key = key
        self.origin = origin
        self.grad = grad
        self.row = row
        self.after = _zeros()  # since the last training work; host work between steps unless more work comes
        self.exhausted = False
        self.joined: set[Hashable] = set()  # other loaders that gave to the open step
        self.pending: list[list[float]] = []  # a candidate's closed steps
        self.total = _zeros()  # a candidate's closed steps that can no longer be pending, summed

    @property
    def trained(self) -> bool:
        """Whether the open step has seen training work."""
        return bool(self.row[BACKWARDS] or self.row[OPTIMIZER_STEPS])


class StepAssembler:
    """Feed it what happened, in order; read `training` (or `forward`) when it is finished.

    Every method that takes `t` expects seconds on one monotonic clock, never going back. The time
    between two calls belongs to exactly one part of one step, or to `before_s` (before the first
    training step), `paused_s`, or `tail` (after the last training work).
    """

    def __init__(self) -> None:
        self.training = StepSeries(COLUMNS)
        self.forward = StepSeries(COLUMNS)  # loops over loaders without a backward pass
        self.implicit = StepSeries(COLUMNS)  # the same for plain `for` loops of the cell
        self.before_s = 0.0
        self.paused_s = 0.0
        self.tail = _zeros()
        self.loader_seen = False
        self.reused_batch = False
        self.backwards = 0
        self.trained_steps = 0
        self.roles: dict[Hashable, str] = {}
        self.exposed_s: dict[Hashable, float] = {}  # time in next(), by loader
        self._lane: _Lane | None = None
        self._candidate: _Lane | None = None
        self._nowhere = _zeros()
        self._into, self._part = self._nowhere, _OTHER
        self._t: float | None = None
        self._resume: list[tuple[list[float], int]] = []
        self._iter_s: dict[Hashable, float] = {}
        self._fetch = _zeros()

    # -- what happened -------------------------------------------------------------------------

    def begin_iter(self, t: float) -> None:
        """``iter(loader)`` was called: workers are being started."""
        self._push(t, _zeros(), _EPOCH)

    def end_iter(self, t: float, key: Hashable) -> None:
        """``iter(loader)`` returned; its time belongs to that loader's next batch."""
        into = self._into
        self._pop(t)
        self._iter_s[key] = self._iter_s.get(key, 0.0) + into[_EPOCH]

    def begin_fetch(self, t: float) -> None:
        """``next()`` was called on the training thread."""
        self._push(t, self._fetch, _INPUT)

    def cancel_fetch(self, t: float) -> None:
        """What came was no batch: the time belongs to where it would have gone anyway."""
        fetch_s = self._end_fetch(t)
        self._into[self._part] += fetch_s

    def end_fetch(
        self, t: float, key: Hashable, origin: Origin, outcome: Outcome, *, grad: bool, epoch: bool
    ) -> None:
        """``next()`` returned a batch, or raised.

        Args:
            t: seconds.
            key: which loader; a loop that comes again has the same key.
            origin: a patched loader, an explicit `watch`, or a plain ``for`` of the cell.
            outcome: "batch", "stop" (StopIteration) or "error" (another exception).
            grad: whether gradients were enabled.
            epoch: first batch of an iterator with workers, which waits for them to start.
        """
        fetch_s = self._end_fetch(t)
        iter_s = self._iter_s.pop(key, 0.0)
        if outcome == "stop":
            self._stop(key, fetch_s + iter_s)
            return
        self.loader_seen = True
        self.exposed_s[key] = self.exposed_s.get(key, 0.0) + fetch_s
        lane = self._place(key, origin, grad)
        lane.row[_EPOCH if epoch else _INPUT] += fetch_s
        lane.row[_EPOCH] += iter_s
        self._into, self._part = lane.row, _COMPUTE

    def backward(self) -> None:
        """A backward pass finished since the last mark."""
        self.backwards += 1
        lane = self._trained()
        if lane is not None:
            lane.row[BACKWARDS] += 1
            if self._into is lane.after:
                self._into, self._part = lane.row, _COMPUTE

    def optimizer(self, t: float) -> None:
        """An optimizer step finished."""
        self._advance(t)
        lane = self._trained()
        if lane is None:  # no loader: steps are counted by optimizer, from the first one's end on
            self._lane = lane = _Lane(None, "loader", True, _zeros())
            self._begin_wall()
        else:
            lane.row[OPTIMIZER_STEPS] += 1
            if lane.key is not None and lane.row[OPTIMIZER_STEPS] > OPTIMIZER_STEPS_PER_BATCH:
                lane.key = None  # one batch, many steps
                self.reused_batch = True
            if lane.key is None:
                self._close(lane)
        if lane.key is None:
            self._into, self._part = lane.row, _COMPUTE
        else:
            self._into, self._part = lane.after, _OTHER

    def begin_save(self, t: float) -> None:
        """A checkpoint is being written."""
        self._push(t, self._into, _CHECKPOINT)

    def end_save(self, t: float) -> None:
        """The checkpoint is written."""
        self._pop(t)

    def begin_copy(self, t: float) -> None:
        """The batch is being copied to the device."""
        self._push(t, self._into, _COPIES if self._part == _COMPUTE else self._part)

    def end_copy(self, t: float) -> None:
        """The batch is on the device."""
        self._pop(t)

    def pause(self, t: float) -> None:
        """From here on the time is somebody else's (a nested profile)."""
        self._push(t, _zeros(), _OTHER)

    def resume(self, t: float) -> None:
        """The time is ours again."""
        self._advance(t)
        self.paused_s += sum(self._into)
        self._pop(t)

    def finish(self, t: float) -> None:
        """The profiled stretch is over; a last step without any training work is dropped."""
        self._advance(t)
        self._end_candidate()
        self.before_s += sum(self._iter_s.values())  # workers started for an iterator that nobody read
        lane = self._lane
        if lane is None:
            self._begin_wall()
            return
        self.tail, lane.after = lane.after, _zeros()
        if lane.key is not None and lane.trained:
            self._close(lane)
        else:
            _add(self.tail, lane.row)

    @property
    def failed(self) -> int:
        """Steps of the training loop that raised or were skipped: batches without a backward pass.

        Batches may be fetched ahead of their backward pass and a step may have several, so the counts
        are balanced over the whole run. If fewer than half of the batches have one, the loop
        accumulates losses over batches, and none counts as failed.
        """
        steps = self.training.steps
        if not self.backwards or not self.trained_steps:
            return 0
        passes = 1 if self.backwards <= steps else max(1, round(self.backwards / self.trained_steps))
        failed = steps - -(-self.backwards // passes)
        return failed if 0 < failed < steps / 2 else 0

    # -- where time goes -----------------------------------------------------------------------

    def _advance(self, t: float) -> None:
        if self._t is not None:
            self._into[self._part] += t - self._t
        self._t = t

    def _push(self, t: float, into: list[float], part: int) -> None:
        self._advance(t)
        self._resume.append((self._into, self._part))
        self._into, self._part = into, part

    def _pop(self, t: float) -> None:
        self._advance(t)
        if self._resume:
            self._into, self._part = self._resume.pop()

    def _end_fetch(self, t: float) -> float:
        self._pop(t)
        fetch_s = sum(self._fetch)
        self._fetch[:] = _zeros()
        return fetch_s

    # -- which loop, which step ----------------------------------------------------------------

    def _place(self, key: Hashable, origin: Origin, grad: bool) -> _Lane:
        """The lane in which a new batch belongs; closes the step before it."""
        lane, candidate = self._lane, self._candidate
        if lane is not None and grad and not lane.exhausted:
            if key == lane.key:
                self._end_candidate()
                self._close(lane)
                return lane
            if candidate is None and not lane.trained and lane.key is not None and key not in lane.joined:
                lane.joined.add(key)  # zip(loaders): a second fetch before any training work
                return lane
        if candidate is not None and candidate.grad == grad and not candidate.exhausted:
            if key == candidate.key:
                self._close_candidate(candidate)
                return candidate
            if key not in candidate.joined and candidate.origin == origin:
                candidate.joined.add(key)
                return candidate
        self._end_candidate()
        self._candidate = _Lane(key, origin, grad, _zeros())
        if lane is None:
            self._begin_wall()
        return self._candidate

    def _begin_wall(self) -> None:
        """What nobody claimed so far was before the first step."""
        self.before_s += sum(self._nowhere)
        self._nowhere[:] = _zeros()

    def _stop(self, key: Hashable, stop_s: float) -> None:
        """The loader is exhausted: its workers' shut-down belongs to the turn of the epoch."""
        candidate, lane = self._candidate, self._lane
        if candidate is not None and key == candidate.key:
            lane = candidate
        elif lane is not None and key == lane.key:
            self._end_candidate()
        else:
            self._into[self._part] += stop_s
            return
        lane.exhausted = True
        lane.after[_EPOCH] += stop_s
        self._into, self._part = lane.after, _OTHER

    def _trained(self) -> _Lane | None:
        """The training lane, after training work: a candidate that trains becomes it."""
        candidate, lane = self._candidate, self._lane
        if candidate is not None:
            if candidate.exhausted and lane is not None and candidate.key != lane.key:
                self._end_candidate()  # a validation loop that ended before this work began
            else:
                lane = self._promote(candidate, lane)
        if lane is not None and lane.after[_OTHER]:
            lane.row[_COMPUTE] += lane.after[_OTHER]  # it was not the end of the step after all
            lane.after[_OTHER] = 0.0
        return lane

    def _promote(self, candidate: _Lane, lane: _Lane | None) -> _Lane:
        self._candidate = None
        self.roles[candidate.key] = "training"
        in_a_step = lane is not None and lane.key is not None and not lane.exhausted
        if in_a_step and lane is not None and candidate.key not in lane.joined:  # a GAN's second loader, say
            for row in (*candidate.pending, candidate.row, candidate.after):
                _add(lane.row, row)
            lane.joined.add(candidate.key)
            self._into, self._part = lane.row, _COMPUTE
            return lane
        if lane is not None:
            self._close(lane)
        for row in candidate.pending:
            self._append(self.training, row)
        candidate.pending = []
        self._lane = candidate
        return candidate

    def _close(self, lane: _Lane) -> None:
        """End the open step of the training lane and open the next."""
        self.trained_steps += lane.trained
        _add(lane.row, lane.after)
        self._append(self.training, lane.row)
        lane.row, lane.after = _zeros(), _zeros()
        lane.joined.clear()

    def _close_candidate(self, candidate: _Lane) -> None:
        if any(candidate.row):
            candidate.pending.append(candidate.row)
        if len(candidate.pending) > PENDING_ROWS:
            self._flush(candidate, candidate.pending.pop(0))
        candidate.row = _zeros()
        candidate.joined.clear()

    def _flush(self, candidate: _Lane, row: list[float]) -> None:
        self._append(self.implicit if candidate.origin == "for" else self.forward, row)
        _add(candidate.total, row)
        if self._lane is None:
            self.before_s += sum(row[:PARTS])

    def _end_candidate(self) -> None:
        """The candidate never trained: inside a training loop that was validation."""
        candidate, lane = self._candidate, self._lane
        if candidate is None:
            return
        self._candidate = None
        self._close_candidate(candidate)
        for row in candidate.pending:
            self._flush(candidate, row)
        self.roles.setdefault(candidate.key, "validation")
        if lane is None:
            _add(self._nowhere, candidate.after)
            self._into, self._part = self._nowhere, _OTHER
            return
        checkpoint_s = candidate.total[_CHECKPOINT]
        part = _OTHER if candidate.origin == "for" else _VALIDATION
        lane.after[part] += sum(candidate.total[:PARTS]) - checkpoint_s
        lane.after[_CHECKPOINT] += checkpoint_s
        _add(lane.after, candidate.after)
        self._into, self._part = lane.after, _OTHER

    @staticmethod
    def _append(series: StepSeries, row: list[float]) -> None:
        between = row[_EPOCH] + row[_CHECKPOINT] + row[_VALIDATION]
        series.append(row, sum(row[:PARTS]) - between)
