"""``%gpuprof batch`` on the simulated device: memory grows, and running out of it is a point of the curve."""

from __future__ import annotations

from typing import Any

import pytest

from tests import simdevice
from tests.trials.notebook import Notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(simdevice.why_not() is not None, reason=str(simdevice.why_not())),
]

#: The model and its loader live in the kernel, on the device: the fresh process must know of it, too.
SETUP = """
import torch
from tests import simdevice
from torch.utils.data import DataLoader, TensorDataset
simdevice.load()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4096, 8).to("sim")
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
loader = DataLoader(TensorDataset(torch.randn(4000, 4096)), batch_size=16)
"""
LOOP = """
for (x,) in loader:
    x = x.to("sim")
    simdevice.spin(5)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
MIB = 2**20


def curve(grow: tuple[float, ...], capacity: int) -> Any:
    """The curve as plain JSON values, and whether the parameters are as before."""
    from jupyter_gpuprof.session.reruns.batch import batch_curve

    simdevice.set_capacity(capacity)
    notebook = Notebook(SETUP)
    notebook.profile(LOOP)
    before = [p.detach().cpu().numpy().tobytes() for p in notebook.namespace["model"].parameters()]
    told: list[float] = []
    measured = batch_curve(
        notebook.cell,
        notebook.run,
        notebook.namespace,
        grow=grow,
        steps=10,
        progress=lambda now: told.append(now.done),
    )
    after = [p.detach().cpu().numpy().tobytes() for p in notebook.namespace["model"].parameters()]
    return {**measured.to_dict(), "same": before == after, "forward": told == sorted(told)}


def test_out_of_memory_is_a_point_and_the_largest_batch_lies_below_it() -> None:
    # A batch of 16 floats of 4096 is 256 KiB; 16 of them are 4 MiB of a device of 6.
    found = simdevice.run(curve, [1, 4, 32], 6 * MIB)
    small, middle, large = found["points"]
    assert [point["batch_size"] for point in found["points"]] == [16, 64, 512]
    assert (small["outcome"], middle["outcome"], large["outcome"]) == (
        "measured",
        "measured",
        "out of memory",
    )
    assert "out of memory" in large["why"].lower()
    for point, batch in ((small, 16), (middle, 64)):
        assert point["peak_bytes"] >= batch * 4096 * 4
        # The step is the kernel, however large the batch.
        assert point["samples_per_s"]["value"] == pytest.approx(batch / 0.006, rel=0.4)
    assert 64 <= found["largest_batch"] < 512
    assert "ran out of memory" in found["sentence"]
    assert found["same"]
    assert found["forward"]


def test_a_device_with_room_names_a_larger_batch_and_tries_it() -> None:
    found = simdevice.run(curve, [1, 4], 24 * MIB)
    assert all(point["outcome"] == "measured" for point in found["points"])
    assert [point["batch_size"] for point in found["points"]][:2] == [16, 64]
    assert len(found["points"]) == 3  # the largest that fits by the fit of memory
    third = found["points"][2]
    assert third["peak_bytes"] == pytest.approx(0.9 * 24 * MIB, rel=0.15)
