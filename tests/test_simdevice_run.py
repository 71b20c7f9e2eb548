"""A whole run on an accelerator: the profiler on the simulated device, in processes of its own.

The truth is arithmetic on set sleeps (the loader, L ms) and set fake kernels (K ms per step).
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import simdevice

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(simdevice.why_not() is not None, reason=str(simdevice.why_not())),
]


def train(
    kernel_ms: float, loader_ms: float, *, steps: int = 40, sync: bool = False, after_ms: float = 0,
    capacity: int = 0, capture: tuple[int, int] = (0, 0), copy_ms: float = 0, forward_only: bool = False,
    workers: int = 0, kernels: int | None = 0,
) -> dict[str, Any]:  # fmt: skip
    """One profiled loop; what the run says, and the wall time of the loop by plain clocks."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    from jupyter_gpuprof import profile

    class Slow(Dataset):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, i: int) -> Any:
            time.sleep(loader_ms / 1e3)
            return torch.randn(4, 32)

    simdevice.load()
    if capacity:
        simdevice.set_capacity(capacity)
    simdevice.set_copy_ms(copy_ms)
    model = torch.nn.Linear(32, 10).to("sim")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    calls = 0
    with profile("device", kernels=kernels, save=False) as p:
        for i, x in enumerate(DataLoader(Slow(), batch_size=None, num_workers=workers)):
            if not simdevice.is_capturing():  # a copy from pageable memory cannot be captured
                on_device = x.to("sim")
            if i == capture[0] and capture[1]:
                simdevice.set_capturing(True)
            simdevice.spin(kernel_ms)
            if forward_only:
                with torch.no_grad():
                    model(on_device)
            else:
                loss = model(on_device).sum()
                loss.backward()
                if i < capture[0] or i >= capture[1]:
                    optimizer.step()
            if i + 1 == capture[1]:
                calls = simdevice.calls_while_capturing()
                simdevice.set_capturing(False)
            if sync:
                loss.item()
            time.sleep(after_ms / 1e3)
    run = p.run.to_dict()
    return run | {"calls_while_capturing": calls}


def stall_ms(run: dict[str, Any]) -> float:
    steps = run["steps"]
    return 1e3 * run["shares"]["exposed_input"]["value"] * steps["total_s"] / steps["counted"]


# measurement facts: device idle per step for a kernel of K ms and a loader of L ms; synchronous: L.
TABLE = [(20, 5, 0.0), (20, 15, 0.0), (20, 25, 5.0), (20, 60, 40.0), (5, 50, 45.0)]


@pytest.mark.parametrize(("kernel_ms", "loader_ms", "idle_ms"), TABLE)
def test_exposed_stall_is_what_the_device_idles(kernel_ms: float, loader_ms: float, idle_ms: float) -> None:
    run = simdevice.run(train, kernel_ms, loader_ms)
    assert run["clock"] == "device"
    # Launching and the copy take up to 2 ms of host time, during which the loader does not work.
    assert stall_ms(run) == pytest.approx(idle_ms, abs=2.0) or (
        idle_ms > 0 and idle_ms <= stall_ms(run) <= idle_ms + 3.0
    )
    wait = next(loader for loader in run["loaders"] if loader["role"] == "training")
    assert 1e3 * wait["wait_s"] / wait["fetches"] == pytest.approx(loader_ms, rel=0.2)


def test_a_sync_in_every_step_makes_the_hidden_wait_real() -> None:
    assert stall_ms(simdevice.run(_sync_loop)) == pytest.approx(15.0, abs=2.0)


def _sync_loop() -> dict[str, Any]:
    return train(20, 15, sync=True)


def test_verdict_of_a_starved_device_and_what_it_says_of_it() -> None:
    run = simdevice.run(train, 5, 30)
    assert run["verdict"]["label"] == "input-bound"
    assert run["verdict"]["strength"] == "strong"
    assert run["device"]["simulated"] is True
    assert run["device"]["kind"] == "sim"
    assert "kernel window" in run["shares"]["host_gap"]["missing"]


def test_a_loader_hidden_behind_the_device_is_no_input_bound() -> None:
    assert simdevice.run(train, 20, 10)["verdict"]["label"] == "oversized"


def test_correctly_sized_when_the_memory_is_used() -> None:
    assert simdevice.run(_small_device)["verdict"]["label"] == "correctly sized"


def _small_device() -> dict[str, Any]:
    return train(20, 1, capacity=12_000)


def test_host_work_after_the_step_counts_only_where_the_device_notices() -> None:
    hidden, seen = simdevice.run(_host_work, 8), simdevice.run(_host_work, 50)
    assert hidden["shares"]["between"]["other"]["value"] < 0.05
    assert seen["verdict"]["label"] == "host-bound"
    # 50 ms of host work while 20 ms of device work run: 30 of about 51 ms are idle.
    assert seen["shares"]["between"]["other"]["value"] == pytest.approx(30 / 51, abs=0.07)


def _host_work(after_ms: float) -> dict[str, Any]:
    return train(20, 0.5, after_ms=after_ms)


def test_copies_are_measured_on_the_stream() -> None:
    run = simdevice.run(_copying)
    assert run["shares"]["copies"]["value"] == pytest.approx(10 / 30, abs=0.07)


def _copying() -> dict[str, Any]:
    return train(20, 0.5, copy_ms=10)


def test_nothing_is_recorded_or_queried_during_capture() -> None:
    run = simdevice.run(_capturing)
    assert run["calls_while_capturing"] == 0
    assert any("captured" in note for note in run["notes"])


def _capturing() -> dict[str, Any]:
    return train(2, 1, capture=(12, 15))


def test_an_empty_kernel_window_is_no_data_and_never_idle() -> None:
    # torch.profiler has no device events of the simulated device, as when another tool holds the tracing.
    run = simdevice.run(_windowed)
    assert "no kernel data" in run["ops"]["missing"]
    assert any("does not mean that it was idle" in note for note in run["notes"])
    assert "missing" in run["shares"]["host_gap"]
    assert run["verdict"]["label"] == "input-bound"
    # Two windows (the second with the host's operators), whose steps are not in the timing.
    assert 60 - 20 <= run["steps"]["counted"] + run["steps"]["warmup"] <= 60 - 12
    assert sum("No kernel data" in note for note in run["notes"]) == 1


def _windowed() -> dict[str, Any]:
    return train(5, 20, steps=60, kernels=None)


def test_an_inference_loop_finds_its_device() -> None:
    run = simdevice.run(_inference)
    assert run["clock"] == "device"
    assert any("inference" in note for note in run["notes"])
    assert run["verdict"]["label"] == "input-bound"


def _inference() -> dict[str, Any]:
    return train(2, 10, steps=80, forward_only=True)


def test_peak_memory_is_never_reset() -> None:
    before, after = simdevice.run(_peaks)
    assert after >= before >= 4_000_000


def _peaks() -> list[int]:
    import torch

    simdevice.load()
    big = torch.empty(1_000_000, device="sim")
    del big
    before = torch.accelerator.max_memory_allocated()
    train(1, 1, steps=30)
    return [before, torch.accelerator.max_memory_allocated()]


def test_a_model_on_the_cpu_stays_on_the_hosts_clock_beside_an_accelerator() -> None:
    run = simdevice.run(_on_cpu)
    assert run["clock"] == "host"
    assert run["device"]["kind"] == "cpu"


def _on_cpu() -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader

    from jupyter_gpuprof import profile

    simdevice.load()
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile("cpu", save=False) as p:
        for x in DataLoader(torch.randn(200, 8), batch_size=4):
            model(x).sum().backward()
            optimizer.step()
    return p.run.to_dict()
