"""Real loops with known sleeps: the truth is what a plain clock says they took."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from jupyter_gpuprof import profile
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Run

torch.set_num_threads(1)

T = TypeVar("T")

#: How far a share may be from the truth on a noisy machine.
TOLERANCE = 0.07


def steady(test: Callable[..., None]) -> Callable[..., None]:
    """Three tries, beside no other test: other work may spoil the timing of a loop, but not of three."""

    @pytest.mark.alone
    @functools.wraps(test)
    def tries(*args: object, **kwargs: object) -> None:
        for left in (2, 1, 0):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                if not left:
                    raise
        return None

    return tries


class Naps:
    """Sleeps by name, and how long they really were; `clock` times other things too."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def __call__(self, name: str, ms: float) -> None:
        if not ms:
            return
        begun = time.perf_counter()
        time.sleep(ms * 1e-3)
        self.seconds[name] += time.perf_counter() - begun

    def clock(self, name: str, work: Callable[..., T], *args: object) -> T:
        begun = time.perf_counter()
        try:
            return work(*args)
        finally:
            self.seconds[name] += time.perf_counter() - begun


class SleepyData(Dataset):
    """Items that take their time."""

    def __init__(self, naps: Naps, items: int, ms: float, name: str = "input") -> None:
        self.naps, self.items, self.ms, self.name = naps, items, ms, name

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> torch.Tensor:
        self.naps(self.name, self.ms)
        return torch.full((4,), float(i))


class SleepyStream(IterableDataset):
    """The same as a stream."""

    def __init__(self, naps: Naps, items: int, ms: float) -> None:
        self.naps, self.items, self.ms = naps, items, ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        for i in range(self.items):
            self.naps("input", self.ms)
            yield torch.full((4,), float(i))


class Net:
    """A network whose forward pass takes its time; "compute" is what `train` took."""

    def __init__(self, naps: Naps, ms: float = 4.0) -> None:
        torch.manual_seed(0)
        self.naps, self.ms = naps, ms
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        self._train(torch.zeros(4))  # whatever torch does once
        self.naps.seconds.clear()

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        self.naps("forward", self.ms)
        return self.model(x).sum()

    def train(self, x: torch.Tensor) -> None:
        self.naps.clock("compute", self._train, x)

    def _train(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(x).backward()
        self.optimizer.step()


def run_of(loop: Callable[[], object], **options: object) -> Run:
    """The run of a loop, with every step of it counted."""
    with profile(save=False, **{"warmup": 0, **options}) as p:
        loop()
    return p.run


def share(run: Run, name: str) -> float:
    value = dict(run.shares.items())[name]
    assert isinstance(value, Estimate), value
    return value.value


def assert_share(run: Run, name: str, seconds: float) -> None:
    """A part of the step took so long, give or take the tolerance."""
    assert share(run, name) == pytest.approx(seconds / run.steps.total_s, abs=TOLERANCE)


def assert_whole(run: Run) -> None:
    """The shares that have a number sum to 1."""
    assert sum(part.value for part in run.shares.present().values()) == pytest.approx(1.0, abs=1e-3)


def missing(run: Run, name: str) -> str:
    value = dict(run.shares.items())[name]
    assert isinstance(value, Missing), value
    return value.reason
