"""Closed steps on their way into the table: batches that wait for their backward pass, and failed ones."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.analysis.lanes import BACKWARDS, OPTIMIZER_STEPS, PARTS, add, zeros
from jupyter_gpuprof.analysis.series import StepSeries
from jupyter_gpuprof.records.timing import Part

#: Batches without training work that are held back, at most, in the hope of some.
HELD_ROWS = 64

_INPUT, _COMPUTE, _COPIES = int(Part.INPUT), int(Part.COMPUTE), int(Part.COPIES)
_COMMUNICATION, _HOST_GAP = int(Part.COMMUNICATION), int(Part.HOST_GAP)


def write_step(series: StepSeries, row: list[float]) -> None:
    """Add a step, with its duration less what was between steps."""
    series.append(row, row[_INPUT] + row[_COMPUTE] + row[_COPIES] + row[_COMMUNICATION] + row[_HOST_GAP])


class Groups:
    """Writes the steps of a training loop into a series, and counts those that failed.

    A batch without a backward pass is not yet a failed step: loops fetch ahead (one batch, or all
    batches of an accumulated step), or add up losses. A *group* is the batches up to, and with, the
    one in which training work was seen. Which of the work was for which batch is not known, so the
    steps of a group share its time evenly. Batches that a group leaves over are made up for by passes
    that a later group has too many, and what is left over from the first group of an epoch on is the
    loop's lead, not a failure.
    """

    def __init__(self, series: StepSeries) -> None:
        self._series = series
        self._held = zeros()
        self.held_batches = 0
        self._passes = 1  # backward passes of an ordinary step (a GAN has two), by majority vote
        self._votes = 0
        self._over = 0
        self._before = 0  # left over from epochs before this one
        self._lead: int | None = None
        self._gap = False

    def gap(self) -> None:
        """Some of the loop was not seen: what is held now cannot be told from failed."""
        self._gap = True

    def add(self, row: list[float]) -> None:
        """A step was closed."""
        if not (row[BACKWARDS] or row[OPTIMIZER_STEPS]):
            self.hold(row)
            return
        passes = int(row[BACKWARDS])
        ordinary = not self.held_batches and passes == self._passes
        if ordinary and self._lead is not None and not self._gap:
            self._votes += 1  # an ordinary step: what was left over is left over
        else:
            self._count(self.held_batches + 1, passes)
        if self.held_batches:
            counts, row[PARTS:] = row[PARTS:], [0.0, 0.0]
            add(self._held, row)
            self.held_batches += 1
            row = self._write_all_but_one()
            row[PARTS:] = counts
        write_step(self._series, row)

    def hold(self, row: Sequence[float]) -> None:
        """A batch came, was done with, and no training work was seen."""
        add(self._held, row)
        self.held_batches += 1
        if self.held_batches >= HELD_ROWS:
            self.release()

    def release(self) -> None:
        """No training work will be seen any more for the batches that are held."""
        if self.held_batches:
            self._count(self.held_batches, 0)
            write_step(self._series, self._write_all_but_one())

    def end_epoch(self, *, exhausted: bool) -> None:
        """The loader is read from its beginning again; `exhausted` if it had come to its end."""
        self._over = self._before = self.failed(exhausted=exhausted)
        self._lead = None

    def failed(self, *, exhausted: bool) -> int:
        """Batches that never got a backward pass, if this is the end."""
        return self._over - (0 if exhausted else self._lead or 0)

    def _write_all_but_one(self) -> list[float]:
        even = [value / self.held_batches for value in self._held]
        for _ in range(self.held_batches - 1):
            write_step(self._series, even[:])
        self._held, self.held_batches = zeros(), 0
        return even

    def _count(self, batches: int, passes: int) -> None:
        if self._gap:
            self._gap = False
            return
        made_up = 0 < passes - batches * self._passes <= self._over
        if passes and passes % batches == 0 and not made_up:
            self._vote(passes // batches)
        self._over = max(0, self._over + batches - -(-passes // self._passes))
        if passes:
            left = max(0, self._over - self._before)
            self._lead = left if self._lead is None else min(self._lead, left)

    def _vote(self, passes: int) -> None:
        if passes == self._passes:
            self._votes += 1
        elif self._votes:
            self._votes -= 1
        else:
            self._passes, self._votes = passes, 1
