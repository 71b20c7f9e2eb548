"""torch.compile: our hooks stay outside of compiled code, and fire as often as without it."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from jupyter_gpuprof.probes import hooks
from tests.session.live import Naps, Net, SleepyData, assert_share, run_of, steady

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@steady
@pytest.mark.parametrize("what", ["model", "forward and loss", "whole step", "optimizer"])
@pytest.mark.parametrize("when", ["before", "inside"])
def test_compiled_loops(what: str, when: str) -> None:
    naps = Naps()
    net = Net(naps, 0)
    loader = DataLoader(SleepyData(naps, 30, 5), batch_size=None)
    model, optimizer = net.model, net.optimizer

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def compiled():
        if what == "model":
            fast = torch.compile(model, backend="eager")

            def train(x: torch.Tensor) -> None:
                optimizer.zero_grad()
                fast(x).sum().backward()
                optimizer.step()

        elif what == "forward and loss":
            loss = torch.compile(lambda x: model(x).square().sum(), backend="eager")

            def train(x: torch.Tensor) -> None:
                optimizer.zero_grad()
                loss(x).backward()
                optimizer.step()

        elif what == "whole step":
            train = torch.compile(step, backend="eager")
        else:
            fast_step = torch.compile(optimizer.step, backend="eager")

            def train(x: torch.Tensor) -> None:
                optimizer.zero_grad()
                model(x).sum().backward()
                fast_step()

        return train

    train = compiled() if when == "before" else None
    if train is not None:
        train(torch.zeros(4))  # compiled before the hooks are in

    def loop() -> None:
        work = train or compiled()
        for x in loader:
            work(x)

    before = [p.detach().clone() for p in model.parameters()]
    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (30, 0, 30)
    assert not any("hooks failed" in note for note in run.notes)
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    if when == "before":
        assert_share(run, "exposed_input", naps.seconds["input"])
    assert not hooks.installed()
    if train is not None:
        train(torch.zeros(4))  # and runs on without us
