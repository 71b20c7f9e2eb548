"""Loops on the simulated device: a value read in each step, a device too large, one of the right size."""

from __future__ import annotations

from typing import Any

import pytest

from tests import simdevice
from tests.session.live import steady

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(simdevice.why_not() is not None, reason=str(simdevice.why_not())),
]


def profiled(kernel_ms: float, loader_ms: float, item: bool, capacity: int, steps: int = 60) -> Any:
    """The run of a loop with such kernels and such a loader, as plain JSON values."""
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset

    from jupyter_gpuprof import profile

    class Slow(Dataset):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, i: int) -> Any:
            time.sleep(loader_ms / 1e3)
            return torch.randn(64, 1024)

    simdevice.load()
    simdevice.set_capacity(capacity)
    model = torch.nn.Linear(1024, 256).to("sim")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    losses = []
    with profile("device", save=False) as p:
        for x in DataLoader(Slow(), batch_size=None):
            x = x.to("sim")  # before the kernel: a copy from pageable memory waits for what is before it
            simdevice.spin(kernel_ms)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if item:
                losses.append(loss.item())
    return p.run.to_dict()


def remedies(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {remedy["id"]: remedy for remedy in run["remedies"]}


@steady
def test_a_value_read_in_each_step_is_named_and_what_it_costs() -> None:
    run = simdevice.run(profiled, 20, 15, True, 1 << 30)
    assert run["verdict"]["label"] == "input-bound"
    host = run["host_causes"]
    assert host["parts"][0]["name"] == "synchronising"
    assert host["parts"][0]["share"]["value"] > 0.5
    (line,) = [line for line in host["lines"] if "loss.item()" in line["text"]]
    assert line["cause"] == "synchronising"
    remedy = remedies(run)["input.synchronising"]
    assert "loss.item()" in remedy["title"]
    assert "turns time that would be hidden into a stall" in remedy["how"]
    # Without it the 15 ms of the loader would be hidden behind the 20 ms of the device.
    assert remedy["predicted_step_s"] == pytest.approx(0.020, abs=0.005)


@steady
def test_a_device_that_is_too_large_gets_a_larger_batch_or_a_smaller_device() -> None:
    run = simdevice.run(profiled, 20, 1, False, 40 << 30)
    assert run["verdict"]["label"] == "oversized"
    found = remedies(run)
    assert "run %gpuprof batch" in found["oversized.batch"]["title"]
    assert "smaller device" in found["oversized.device"]["title"]
    assert "L4 (" in found["oversized.device"]["title"]


@steady
def test_a_device_of_the_right_size_gets_the_levers_that_are_free() -> None:
    run = simdevice.run(profiled, 20, 1, False, 4_500_000)
    assert run["verdict"]["label"] == "correctly sized"
    levers = {lever["id"]: lever["state"] for lever in run["levers"]}
    assert levers["autocast"] == "off"
    free = [id for id in remedies(run) if id.startswith("size.")]
    assert "size.autocast" in free
    assert not any(levers.get(id.removeprefix("size.")) == "on" for id in free)
    assert remedies(run)["size.autocast"]["setting"].startswith("autocast=")
