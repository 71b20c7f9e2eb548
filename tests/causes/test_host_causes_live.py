"""Loops whose host work is set: what it is, and which line does it."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from jupyter_gpuprof import profile
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.records.run import Run
from tests.causes.loops import MARGIN, largest
from tests.session.live import steady

torch.set_num_threads(1)

pytestmark = pytest.mark.slow

STEPS = 200


class Work:
    """Host work by name; what it and all the rest of the loop outside of fetching really took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def clock(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begun

    def share(self, name: str) -> float:
        return self.seconds[name] / sum(self.seconds.values())


def host_loop(host: Callable[[int, torch.Tensor], None], steps: int = STEPS) -> tuple[Run, Work]:
    """A loop that trains for some milliseconds a step and then does host work."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(torch.randn(steps * 16, 256), 16)
    work = Work()
    with profile(save=False) as p:
        for i, x in enumerate(loader):
            with work.clock("training"):
                y = model(x)
                optimizer.zero_grad()
                y.square().mean().backward()
                optimizer.step()
            with work.clock("host"):
                host(i, y)
    return p.run, work


def assert_host(run: Run, work: Work, name: str, line: str) -> None:
    found = largest(run.host_causes)
    assert isinstance(run.host_causes, Causes)
    assert found.name == name, run.host_causes
    truth = work.share("host")
    assert found.share.low - MARGIN <= truth <= found.share.high + MARGIN, (truth, found)
    hot = run.host_causes.lines[0]
    assert (hot.cause, line in hot.text) == (name, True), run.host_causes.lines
    assert Path(__file__).name in hot.place


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logging.Logger]:
    """A logger that writes to a file."""
    logger = logging.getLogger("tests.causes")
    handler = logging.FileHandler(tmp_path / "train.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    logger.removeHandler(handler)
    handler.close()


@steady
def test_logging_in_each_step(log: logging.Logger) -> None:
    def host(i: int, y: torch.Tensor) -> None:
        for layer in range(400):
            log.info("step %d layer %d ok", i, layer)

    run, work = host_loop(host)
    assert run.verdict.label == "host-bound"
    assert_host(run, work, "logging", "log.info")
    assert any(remedy.id == "host.logging" and "log.info" in remedy.title for remedy in run.remedies)


@steady
def test_a_metric_of_a_library_in_each_step() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    truth, guess = rng.integers(0, 10, 30_000), rng.integers(0, 10, 30_000)

    def host(i: int, y: torch.Tensor) -> None:
        metrics.f1_score(truth, guess, average="macro")

    run, work = host_loop(host)
    assert_host(run, work, "metrics", "f1_score")
    assert any(remedy.id == "host.metrics" for remedy in run.remedies)


@steady
def test_a_metric_of_ones_own_in_each_step() -> None:
    rng = np.random.default_rng(0)
    truth, guess = rng.integers(0, 10, 100_000), rng.integers(0, 10, 100_000)

    def accuracy(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean([np.mean(a[a == k] == b[a == k]) for k in range(10)]))

    run, work = host_loop(lambda i, y: accuracy(truth, guess))
    assert_host(run, work, "metrics", "a[a == k]")


@steady
def test_a_checkpoint_every_few_steps(tmp_path: Path) -> None:
    state = {f"layer {n}": torch.randn(1_000_000) for n in range(20)}

    def host(i: int, y: torch.Tensor) -> None:
        if i % 20 == 0:
            torch.save(state, tmp_path / "last.pt")

    run, work = host_loop(host)
    assert run.verdict.label == "host-bound"
    assert_host(run, work, "checkpoint", "torch.save")
    share = run.shares.between.checkpoint
    assert isinstance(share, Estimate)
    assert share.low - MARGIN <= work.share("host") <= share.high + MARGIN
    top = run.remedies[0]
    assert top.id == "host.checkpoint"
    assert "torch.save" in top.how
