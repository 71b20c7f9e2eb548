"""A training loop written down as marks, with set times: what the assembler is tested with."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from jupyter_gpuprof.analysis.lanes import BACKWARDS, OPTIMIZER_STEPS, PARTS
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.records.timing import Part

INPUT, EPOCH, COMPUTE, OTHER = Part.INPUT, Part.EPOCH_START, Part.COMPUTE, Part.OTHER
COPIES, CHECKPOINT, VALIDATION = Part.COPIES, Part.CHECKPOINT, Part.VALIDATION

#: What a step takes unless a test says otherwise, in seconds.
FETCH, FORWARD, BACKWARD, STEP, LOG = 0.005, 0.010, 0.020, 0.003, 0.002


class LoopScript:
    """Tells an assembler what happens, and keeps the time."""

    def __init__(self) -> None:
        self.assembler = StepAssembler()
        self.begun = self.t = 1000.0
        self.assembler.begin_copy(self.t)  # nothing, but a first mark: time counts from there on
        self.assembler.end_copy(self.t)

    def wait(self, seconds: float) -> None:
        self.t += seconds

    def iter(self, key: Hashable = "train", seconds: float = 0.0) -> None:
        self.assembler.begin_iter(self.t)
        self.wait(seconds)
        self.assembler.end_iter(self.t, key)

    def fetch(
        self,
        key: Hashable = "train",
        seconds: float = FETCH,
        *,
        origin: str = "loader",
        outcome: str = "batch",
        grad: bool = True,
        epoch: bool = False,
    ) -> None:
        self.assembler.begin_fetch(self.t)
        self.wait(seconds)
        self.assembler.end_fetch(self.t, key, origin, outcome, grad=grad, epoch=epoch)

    def stop(self, key: Hashable = "train", seconds: float = 0.0, **how: object) -> None:
        self.fetch(key, seconds, outcome="stop", **how)

    def backward(self, forward: float = FORWARD, seconds: float = BACKWARD) -> None:
        self.wait(forward + seconds)
        self.assembler.backward()

    def step(self, seconds: float = STEP) -> None:
        self.wait(seconds)
        self.assembler.optimizer(self.t)

    def train(self) -> None:
        """Forward, backward, optimizer step, and the line that logs it."""
        self.backward()
        self.step()
        self.wait(LOG)

    def validate(self, key: Hashable = "val", batches: int = 4, *, grad: bool = False) -> float:
        """A loop without gradients to its end; its seconds."""
        begun = self.t
        for _ in range(batches):
            self.fetch(key, grad=grad)
            self.wait(FORWARD)
        self.stop(key, grad=grad)
        return self.t - begun

    def save(self, seconds: float) -> None:
        self.assembler.begin_save(self.t)
        self.wait(seconds)
        self.assembler.end_save(self.t)

    def finish(self) -> StepAssembler:
        """The run ends here; no second may be lost or counted twice."""
        a = self.assembler
        a.finish(self.t)
        given = a.training.total()[:PARTS].sum() + sum(a.tail[:PARTS]) + a.before_s + a.paused_s
        assert given == pytest.approx(self.t - self.begun, abs=1e-9)
        before = a.training.total(), list(a.tail), a.before_s
        a.finish(self.t)  # to finish twice changes nothing
        assert np.array_equal(before[0], a.training.total())
        assert (before[1], before[2]) == (a.tail, a.before_s)
        return a


def close(value: float) -> object:
    """That many seconds, but for rounding."""
    return pytest.approx(value, abs=1e-9)


def seconds(assembler: StepAssembler, *parts: Part) -> float:
    """Seconds of these parts over all training steps."""
    return float(assembler.training.total()[list(parts)].sum())


def passes(assembler: StepAssembler) -> float:
    return float(assembler.training.total()[BACKWARDS])


def optimizer_steps(assembler: StepAssembler) -> float:
    return float(assembler.training.total()[OPTIMIZER_STEPS])
