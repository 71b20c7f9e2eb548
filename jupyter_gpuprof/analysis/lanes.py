"""Loops over batches, while it is not settled yet which of them trains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from jupyter_gpuprof.records.timing import Part

Origin = Literal["loader", "watch", "for"]

PARTS = len(Part)
#: Columns of a `StepSeries` behind the parts: backward passes and optimizer steps within the step.
BACKWARDS, OPTIMIZER_STEPS = PARTS, PARTS + 1
COLUMNS = PARTS + 2

_OTHER = int(Part.OTHER)


def zeros() -> list[float]:
    """An empty row."""
    return [0.0] * COLUMNS


def add(into: list[float], row: Sequence[float]) -> None:
    """Add a row to another in place."""
    for i, value in enumerate(row):
        if value:
            into[i] += value


def move(into: list[float], row: list[float]) -> None:
    """Add a row to another in place, and empty it."""
    other = row[_OTHER]  # almost always all there is
    if other:
        into[_OTHER] += other
        row[_OTHER] = 0.0
    if any(row):
        add(into, row)
        row[:] = zeros()


class Lane:
    """One loop over batches: its open step, and what came after the step's last training work.

    Args:
        key: which loader; None if there is none.
        origin: how its batches were seen.
        grad: whether gradients were enabled when its batches came.
    """

    __slots__ = (
        "after", "by_optimizer", "exhausted", "grad", "joined", "key", "origin", "partners", "pending", "row",
        "total",
    )  # fmt: skip

    def __init__(self, key: Hashable, origin: Origin, grad: bool) -> None:
        self.key = key
        self.origin = origin
        self.grad = grad
        self.row = zeros()
        self.after = zeros()  # since the last training work; host work between steps unless more work comes
        self.exhausted = False
        self.by_optimizer = False  # an optimizer step ends the step, not the next batch
        self.joined: set[Hashable] = set()  # other loaders that gave to the open step
        self.partners: set[Hashable] = set()  # other loaders that ever did
        self.pending: list[list[float]] = []  # a candidate's closed steps
        self.total = zeros()  # a candidate's closed steps that can no longer be pending, summed

    @property
    def waiting(self) -> bool:
        """Whether a batch of a loader is there for which no training work was seen yet."""
        row = self.row
        return not (self.key is None or self.exhausted or row[BACKWARDS] or row[OPTIMIZER_STEPS])

    def goes_on(self, key: Hashable, grad: bool, fresh: bool) -> bool:
        """Whether a batch is this loop's next one; `fresh` if its iterator was begun since."""
        return key == self.key and grad == self.grad and not fresh and not self.exhausted

    def takes_in(self, key: Hashable, origin: Origin, grad: bool) -> bool:
        """Whether a batch of another loader may be for the open step, as with ``zip(loaders)``.

        A second loader that comes only after several batches of the first is another loop; a loop of
        the cell inside the step is part of it.
        """
        if not self.waiting or grad != self.grad or key == self.key:
            return False
        if self.origin == "for" or origin == "for":
            return self.origin != "for" or (origin == "for" and key not in self.joined and not self.pending)
        return key not in self.joined and (key in self.partners or not self.pending)

    def take_in(self, key: Hashable) -> None:
        """Another loader gave to the open step."""
        self.joined.add(key)
        self.partners.add(key)

    def was_validation(self, lane: Lane) -> bool:
        """Whether training work seen now is for `lane`'s batch, this loop being over."""
        if self.exhausted and self.key != lane.key:
            return True
        over = self.exhausted or bool(self.pending)
        if lane.grad and not self.grad:
            return over
        return lane.waiting and (self.exhausted or (over and self.key != lane.key))

    def within(self, lane: Lane) -> bool:
        """Whether this loop, which trains, is part of `lane`'s open step (a GAN's second loader, say)."""
        if lane.key is None or lane.exhausted:
            return False
        if self.key == lane.key:
            return lane.grad and not self.grad
        inner_loop = self.origin == "for" and lane.origin != "for"  # over losses, parameters, ...
        return inner_loop or self.key not in lane.joined
