"""A loop prepared by Accelerate: its loader moves batches and fetches one ahead."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from tests.session.live import Naps, Net, SleepyData, assert_share, missing, run_of, share, steady

accelerate = pytest.importorskip("accelerate")
pytestmark = pytest.mark.slow


@steady
@pytest.mark.parametrize("end", ["epoch", "break"])
def test_prepared_loop(end: str) -> None:
    naps = Naps()
    net = Net(naps, 4)
    accelerator = accelerate.Accelerator(cpu=True)
    data = DataLoader(SleepyData(naps, 25, 5), batch_size=1)
    model, optimizer, loader = accelerator.prepare(net.model, net.optimizer, data)

    def loop() -> None:
        for _ in range(2):
            for i, x in enumerate(loader):
                optimizer.zero_grad()
                naps("forward", 4)
                accelerator.backward(model(x).sum())
                optimizer.step()
                if end == "break" and i == 19:
                    break

    run = run_of(loop)
    assert run.steps.failed == 0
    assert run.steps.optimizer_steps == (50 if end == "epoch" else 40)
    assert run.steps.counted == (50 if end == "epoch" else 42)  # one of each epoch was fetched for nothing
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    assert missing(run, "copies")  # not seen is not 0.0
    assert [item.role for item in run.loaders] == ["training"]


@steady
def test_accumulation_and_validation() -> None:
    naps = Naps()
    net = Net(naps, 4)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    data = DataLoader(SleepyData(naps, 24, 3), batch_size=1)
    held_out = DataLoader(SleepyData(naps, 6, 6, "validation"), batch_size=1)
    model, optimizer, loader, val = accelerator.prepare(net.model, net.optimizer, data, held_out)

    def loop() -> None:
        for _ in range(2):
            for x in loader:
                with accelerator.accumulate(model):
                    naps("forward", 3)
                    accelerator.backward(model(x).sum())
                    optimizer.step()
                    optimizer.zero_grad()
            with torch.no_grad():
                for x in val:
                    naps("validation", 4)
                    model(x)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (48, 0, 12)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert_share(run, "between.validation", naps.seconds["validation"])
    assert share(run, "exposed_input") > 0.2
