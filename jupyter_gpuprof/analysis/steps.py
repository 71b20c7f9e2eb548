"""From marks to steps: an automaton that gives every second of a training loop to one part of one step.

It is fed with what happened on the training thread (a fetch, a backward pass, an optimizer step, a
save) and the time at which it happened on the run's clock, and knows nothing of clocks, torch or
threads. A step is one batch: it lasts from one fetch of the training loader to the next.

Which loop trains is not known when a fetch happens: a validation loop looks the same until no backward
pass follows. So a loop begins as a *candidate*; the first backward pass promotes it to the training
lane, and a candidate that ends without one was validation (or, in a run that never trains, inference).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from jupyter_gpuprof.analysis.account import COPY, FETCH, ITER, PAUSE, SAVE, TAIL, Account
from jupyter_gpuprof.analysis.groups import Groups, write_step
from jupyter_gpuprof.analysis.lanes import (
    BACKWARDS,
    COLUMNS,
    OPTIMIZER_STEPS,
    PARTS,
    Lane,
    Origin,
    add,
    move,
    zeros,
)
from jupyter_gpuprof.analysis.series import StepSeries
from jupyter_gpuprof.records.timing import Part

__all__ = ["OPTIMIZER_STEPS", "PARTS", "StepAssembler"]

Outcome = Literal["batch", "stop", "error"]

#: More optimizer steps than this on one batch: the batch is reused, and steps are counted by optimizer.
OPTIMIZER_STEPS_PER_BATCH = 8
#: Batches of a loop without a backward pass that may still turn out to be gradient accumulation.
PENDING_ROWS = 64

# Plain ints: an IntEnum as a list index costs a lookup in the hot path.
_INPUT, _EPOCH, _COMPUTE, _OTHER = map(int, (Part.INPUT, Part.EPOCH_START, Part.COMPUTE, Part.OTHER))
_CHECKPOINT, _VALIDATION = int(Part.CHECKPOINT), int(Part.VALIDATION)


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
        self.tail = zeros()
        self.reused_batch = False  # one batch was trained on again and again
        self.backwards = 0
        self.roles: dict[Hashable, str] = {}
        self.exposed_s: dict[Hashable, float] = {}  # time in next(), by loader
        self._time = Account()
        self._lane: Lane | None = None
        self._candidate: Lane | None = None
        self._outer: Lane | None = None  # a candidate that another one interrupts, before anything trained
        self._iter_s: dict[Hashable, float] = {}
        self._fetched = self._fed = False  # any batch was seen; the training lane got one
        self._groups = Groups(self.training)
        self._finished = False

    # -- what happened -------------------------------------------------------------------------

    def begin_iter(self, t: float) -> None:
        """``iter(loader)`` was called: workers are being started."""
        self._time.begin(t, ITER)

    def end_iter(self, t: float, key: Hashable) -> None:
        """``iter(loader)`` returned; its time belongs to that loader's next batch."""
        self._iter_s[key] = self._iter_s.get(key, 0.0) + self._time.end(t, ITER)

    def begin_fetch(self, t: float) -> None:
        """``next()`` was called on the training thread."""
        self._time.begin(t, FETCH)

    def cancel_fetch(self, t: float) -> None:
        """What came was no batch: the time belongs to where it would have gone anyway."""
        time = self._time
        time.give(time.end(t, FETCH), time.part)

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
        time = self._time
        fetch_s = time.end(t, FETCH)
        iter_s = self._iter_s.pop(key, None) if self._iter_s else None
        if outcome == "stop":
            self._stop(key, fetch_s + (iter_s or 0.0))
            return
        self._fetched = True
        self.exposed_s[key] = self.exposed_s.get(key, 0.0) + fetch_s
        row = self._place(key, origin, grad, iter_s is not None).row
        row[_EPOCH if epoch else _INPUT] += fetch_s
        if iter_s:
            row[_EPOCH] += iter_s
        time.into, time.part = row, _COMPUTE

    def backward(self) -> None:
        """A backward pass finished since the last mark."""
        self.backwards += 1
        lane = self._trained()
        if lane is not None:
            lane.row[BACKWARDS] += 1
            if self._time.into is lane.after:
                self._time.into, self._time.part = lane.row, _COMPUTE

    def optimizer(self, t: float) -> None:
        """An optimizer step finished."""
        time = self._time
        time.advance(t)
        lane = self._trained()
        if lane is None:  # no loader: steps are counted by optimizer, from the first one's end on
            self._lane = lane = Lane(None, "loader", True)
            lane.by_optimizer = True
            self._begin_wall()
        else:
            row = lane.row
            row[OPTIMIZER_STEPS] += 1
            if row[OPTIMIZER_STEPS] > OPTIMIZER_STEPS_PER_BATCH and not lane.by_optimizer:
                lane.by_optimizer = self.reused_batch = True  # one batch, many steps
            if lane.by_optimizer:
                self._close(lane)
        if lane.key is None:
            time.into, time.part = lane.row, _COMPUTE
        else:
            time.into, time.part = lane.after, _OTHER

    def begin_save(self, t: float) -> None:
        """A checkpoint is being written."""
        self._time.begin(t, SAVE)

    def end_save(self, t: float) -> None:
        """The checkpoint is written."""
        self._time.end_save(t)

    def begin_copy(self, t: float) -> None:
        """The batch is being copied to the device."""
        self._time.begin(t, COPY)

    def end_copy(self, t: float) -> None:
        """The batch is on the device."""
        self._time.end_copy(t)

    def begin_tail(self, t: float) -> None:
        """The last gradient of a distributed backward pass is there; what follows is communication."""
        self._time.begin(t, TAIL)

    def end_tail(self, t: float) -> None:
        """The backward pass returned."""
        self._time.end_tail(t)

    def pause(self, t: float) -> None:
        """From here on the time is somebody else's (a nested profile)."""
        self._time.begin(t, PAUSE)

    def resume(self, t: float) -> None:
        """The time is ours again."""
        self._time.end_pause(t)

    def gap(self) -> None:
        """What the loop did since the last mark was not recorded: batches and passes need not match."""
        self._groups.gap()

    def finish(self, t: float) -> None:
        """The profiled stretch is over; a last step without any training work is dropped."""
        if self._finished:
            return
        self._finished = True
        self._time.close(t)
        self._end_candidate()
        if self._outer is not None:
            self._resume_outer()
            self._end_candidate()
        self.before_s += sum(self._iter_s.values())  # workers started for an iterator that nobody read
        lane = self._lane
        if lane is None:
            self._begin_wall()
            return
        self.tail, lane.after = lane.after, zeros()
        if not lane.by_optimizer and (lane.row[BACKWARDS] or lane.row[OPTIMIZER_STEPS]):
            lane.row[_VALIDATION] += self.tail[_VALIDATION]  # of the last epoch
            self.tail[_VALIDATION] = 0.0
            self._close(lane)
        else:
            add(self.tail, lane.row)
            lane.row = zeros()
        self._groups.release()

    # -- what is known of it -------------------------------------------------------------------

    @property
    def paused_s(self) -> float:
        """Seconds that were somebody else's."""
        return self._time.paused_s

    @property
    def loader_seen(self) -> bool:
        """Whether the batches of the training loop (or of inference) came through something we saw."""
        return self._fed if self._lane is not None else self._fetched

    @property
    def by_optimizer(self) -> bool:
        """Whether steps end with their optimizer step just now, for want of a next batch."""
        return self._lane is not None and self._lane.by_optimizer

    @property
    def steps_done(self) -> int:
        """Steps that there would be if the run ended here, between two steps."""
        lane, candidate = self._lane, self._candidate
        if lane is not None:
            open_step = not lane.by_optimizer and (lane.row[BACKWARDS] or lane.row[OPTIMIZER_STEPS])
            return self.training.steps + self._groups.held_batches + bool(open_step)
        steps = self.forward.steps or self.implicit.steps
        return steps + (len(candidate.pending) + any(candidate.row) if candidate is not None else 0)

    @property
    def failed(self) -> int:
        """Steps of the training loop that raised or were skipped: batches without a backward pass.

        If fewer than half of the batches have one, the loop accumulates losses over batches, and none
        counts as failed.
        """
        lane = self._lane
        if lane is None or lane.by_optimizer or not self.backwards:
            return 0
        failed = self._groups.failed(exhausted=lane.exhausted)
        return failed if failed < self.training.steps / 2 else 0

    # -- which loop, which step ----------------------------------------------------------------

    def _place(self, key: Hashable, origin: Origin, grad: bool, fresh: bool) -> Lane:
        """The lane in which a new batch belongs; closes the step before it.

        `fresh`: from an iterator begun since. Its loop may be another one over the same loader.
        """
        lane, candidate = self._lane, self._candidate
        if candidate is not None:
            if candidate.goes_on(key, grad, fresh):
                self._close_candidate(candidate)
                return candidate
            if candidate.takes_in(key, origin, grad) and (lane is None or key != lane.key):
                candidate.take_in(key)
                return candidate
        if lane is not None:
            if lane.goes_on(key, grad, fresh):
                self._next_step(lane)
                return lane
            known = self.roles.get(key) == "validation"
            if candidate is None and not known and lane.takes_in(key, origin, grad):
                lane.take_in(key)
                return lane
        elif self._outer is not None and self._outer.goes_on(key, grad, fresh):
            outer = self._resume_outer()
            self._close_candidate(outer)
            return outer
        return self._begin_candidate(Lane(key, origin, grad))

    def _begin_candidate(self, new: Lane) -> Lane:
        candidate = self._candidate
        interrupts = self._lane is None and self._outer is None and candidate is not None
        if interrupts and candidate is not None and candidate.waiting and candidate.grad and not new.grad:
            self._outer = candidate  # a validation before anything trained
        else:
            self._end_candidate()
        self._candidate = new
        if self._lane is None:
            self._begin_wall()
        return new

    def _resume_outer(self) -> Lane:
        """The interrupting loop is over, the one around it goes on."""
        outer, candidate = self._outer, self._candidate
        assert outer is not None
        if candidate is not None and candidate.was_validation(outer):
            outer.row[_COMPUTE] += candidate.after[_OTHER]
            candidate.after[_OTHER] = 0.0
            self._end_candidate()
        elif candidate is not None:
            for row in (*candidate.pending, candidate.row, candidate.after):
                add(outer.row, row)
        self._outer, self._candidate = None, outer
        self._time.into, self._time.part = outer.row, _COMPUTE
        return outer

    def _next_step(self, lane: Lane) -> None:
        """The training lane got its next batch."""
        if self._candidate is not None:
            self._end_candidate()
        if not lane.by_optimizer:
            self._close(lane)
            return
        self.reused_batch = False
        move(lane.row, lane.after)

    def _begin_wall(self) -> None:
        """What nobody claimed so far was before the first step."""
        nowhere = self._time.nowhere
        self.before_s += sum(nowhere)
        nowhere[:] = zeros()

    def _stop(self, key: Hashable, stop_s: float) -> None:
        """The loader is exhausted: its workers' shut-down belongs to the turn of the epoch."""
        candidate, lane = self._candidate, self._lane
        if candidate is not None and key == candidate.key:
            lane = candidate
        elif lane is not None and key == lane.key:
            self._end_candidate()
        else:
            self._time.into[_EPOCH] += stop_s
            return
        lane.exhausted = True
        lane.after[_EPOCH] += stop_s
        self._time.into, self._time.part = lane.after, _OTHER

    def _trained(self) -> Lane | None:
        """The training lane, after training work: a candidate that trains becomes it."""
        candidate, lane = self._candidate, self._lane
        if candidate is not None:
            if self._outer is not None:
                candidate = self._resume_outer()
            if lane is not None and candidate.was_validation(lane):
                self._end_candidate()
            else:
                lane = self._promote(candidate, lane)
        if lane is not None and lane.after[_OTHER]:
            lane.row[_COMPUTE] += lane.after[_OTHER]  # it was not the end of the step after all
            lane.after[_OTHER] = 0.0
        return lane

    def _promote(self, candidate: Lane, lane: Lane | None) -> Lane:
        self._candidate = None
        self._fed = True
        self.roles[candidate.key] = "training"
        if lane is not None:
            if candidate.within(lane):
                for row in (*candidate.pending, candidate.total, candidate.row, candidate.after):
                    add(lane.row, row)
                lane.take_in(candidate.key)
                self._time.into, self._time.part = lane.row, _COMPUTE
                return lane
            self._replace(lane, candidate)
        for row in candidate.pending:
            self._groups.hold(row)
        candidate.pending = []
        self._lane = candidate
        return candidate

    def _replace(self, lane: Lane, candidate: Lane) -> None:
        """The training lane ends, another one begins."""
        lane.after[_VALIDATION] += sum(candidate.total[:PARTS])
        if lane.by_optimizer:  # its last step ended with its optimizer
            add(candidate.row, lane.row)
            add(candidate.row, lane.after)
            candidate.by_optimizer = candidate.key == lane.key
            self.reused_batch = self.reused_batch and not candidate.by_optimizer
        else:
            self._close(lane)
        self._groups.end_epoch(exhausted=lane.exhausted)

    def _close(self, lane: Lane) -> None:
        """End the open step of the training lane and open the next."""
        row, lane.row = lane.row, zeros()
        move(row, lane.after)
        if lane.joined:
            lane.joined.clear()
        self._groups.add(row)

    def _close_candidate(self, candidate: Lane) -> None:
        if any(candidate.row):
            candidate.pending.append(candidate.row)
        if len(candidate.pending) > PENDING_ROWS:
            self._flush(candidate, candidate.pending.pop(0))
        candidate.row = zeros()
        candidate.joined.clear()

    def _flush(self, candidate: Lane, row: list[float]) -> None:
        write_step(self.implicit if candidate.origin == "for" else self.forward, row)
        add(candidate.total, row)
        if self._lane is None:
            self.before_s += sum(row[:PARTS])

    def _end_candidate(self) -> None:
        """The candidate never trained: inside a training loop that was validation."""
        candidate, lane = self._candidate, self._lane
        if candidate is None:
            return
        self._candidate = None
        if lane is None:  # workers shut down: the turn of an epoch of inference
            candidate.row[_EPOCH] += candidate.after[_EPOCH]
            candidate.after[_EPOCH] = 0.0
        self._close_candidate(candidate)
        for row in candidate.pending:
            self._flush(candidate, row)
        self.roles.setdefault(candidate.key, "validation")
        time = self._time
        if lane is None:
            add(time.nowhere, candidate.after)
            time.into, time.part = time.nowhere, _OTHER
            return
        checkpoint_s = candidate.total[_CHECKPOINT]
        part = _OTHER if candidate.origin == "for" else _VALIDATION
        lane.after[part] += sum(candidate.total[:PARTS]) - checkpoint_s
        lane.after[_CHECKPOINT] += checkpoint_s
        add(lane.after, candidate.after)
        time.into, time.part = lane.after, _OTHER
