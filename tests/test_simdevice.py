"""The pretend accelerator behaves like one: asynchronous, timed, with memory that can run out.

Functions without `test_` run in a process of their own, which has the device; see simdevice.run.
"""

import io
import time

import pytest

from tests import simdevice

pytestmark = [pytest.mark.slow, pytest.mark.alone]

# Kernel ms, loader ms -> device idle ms per step; with a sync in each step nothing of the loader is hidden.
STALLS = {(20, 5): 0, (20, 15): 0, (20, 25): 5, (20, 60): 40, (5, 50): 45}


@pytest.fixture(autouse=True, scope="module")
def _needs_the_device():
    if reason := simdevice.why_not():
        pytest.skip(reason)


def timing_event():
    import torch

    return torch.Event(device="sim", enable_timing=True)


def ms_of(call) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def train(model, optimizer, inputs, targets) -> list[float]:
    import torch

    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("sim", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_models() -> dict[str, list[float]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    images = torch.randn(32, 1, 8, 8).to("sim")
    targets = (images[:, 0, 0, 0] > 0).long()
    dense = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
    convolution = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    dense.to("sim")
    convolution.to("sim")
    return {
        "dense, SGD": train(dense, torch.optim.SGD(dense.parameters(), lr=0.1), images, targets),
        "dense, Adam": train(dense, torch.optim.Adam(dense.parameters(), lr=0.01), images, targets),
        "convolution": train(convolution, torch.optim.SGD(convolution.parameters(), lr=0.1), images, targets),
    }


def test_training_decreases_the_loss():
    for name, losses in simdevice.run(train_models).items():
        assert losses[-1] < 0.8 * losses[0], name


def stall_ms(kernel_ms: float, loader_ms: float, sync: bool, steps: int = 12, warm_up: int = 2) -> float:
    """Mean time the device stood idle while the loader slept, by a pair of events around the sleep."""
    import torch

    total = torch.zeros(1, device="sim")
    pairs = []
    for _ in range(warm_up + steps):
        before, after = timing_event(), timing_event()
        before.record()
        time.sleep(loader_ms / 1e3)
        after.record()
        simdevice.spin(kernel_ms)
        if sync:
            total.item()
        pairs.append((before, after))
    torch.accelerator.synchronize()
    return sum(before.elapsed_time(after) for before, after in pairs[warm_up:]) / steps


def stall_table(sync: bool) -> list[float]:
    return [stall_ms(kernel_ms, loader_ms, sync) for kernel_ms, loader_ms in STALLS]


@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "item_each_step"])
def test_the_device_idles_only_for_the_part_of_the_loader_it_cannot_hide(sync):
    expected = [loader_ms for _, loader_ms in STALLS] if sync else list(STALLS.values())
    assert simdevice.run(stall_table, sync) == pytest.approx(expected, abs=2)


def query_events() -> dict:
    import torch

    before, after = timing_event(), timing_event()
    before.record()
    launch_ms = ms_of(lambda: simdevice.spin(100))
    after.record()
    seen = {"launch_ms": launch_ms, "done_at_once": after.query()}
    try:
        before.elapsed_time(after)
    except RuntimeError as error:
        seen["too_early"] = str(error)
    after.synchronize()
    return seen | {
        "done": after.query(),
        "elapsed_ms": before.elapsed_time(after),
        "never_recorded": timing_event().query(),
        "accelerator": [torch.accelerator.is_available(), str(torch.accelerator.current_accelerator())],
        "stream": str(torch.accelerator.current_stream().device),
    }


def test_events_are_asynchronous_and_timed():
    seen = simdevice.run(query_events)
    assert seen["launch_ms"] < 50
    assert not seen["done_at_once"]
    assert "must be completed" in seen["too_early"]
    assert seen["done"]
    assert seen["never_recorded"]
    assert seen["elapsed_ms"] == pytest.approx(100, abs=10)
    assert seen["accelerator"] == [True, "sim"]
    assert seen["stream"] == "sim:0"


def use_two_streams() -> dict:
    import torch

    start, side_done, main_done = timing_event(), timing_event(), timing_event()
    main, side = torch.accelerator.current_stream(), torch.Stream(device="sim")
    start.record()
    with side:
        simdevice.spin(60)
        side_done.record()
    main.synchronize()
    main_was_idle, side_was_idle = main.query(), side.query()
    main.wait_event(side_done)
    main_done.record()
    main_done.synchronize()
    return {"main": main_was_idle, "side": side_was_idle, "elapsed_ms": start.elapsed_time(main_done)}


def test_streams_run_side_by_side_and_wait_for_events():
    seen = simdevice.run(use_two_streams)
    assert seen["main"]
    assert not seen["side"]
    assert seen["elapsed_ms"] == pytest.approx(60, abs=10)


def time_host_waits() -> dict:
    import torch

    host = torch.ones(1000)
    pinned = host.pin_memory()
    device = host.to("sim")
    calls = {
        "operator": lambda: device * 2,
        "item": lambda: device[0].item(),
        "nonzero": lambda: device.nonzero(),
        "to_host": lambda: device.cpu(),
        "to_device": lambda: host.to("sim"),
        "to_device_unpinned": lambda: host.to("sim", non_blocking=True),
        "to_device_pinned": lambda: pinned.to("sim", non_blocking=True),
    }
    waits = {}
    for name, call in calls.items():
        call()  # first use loads code
        torch.accelerator.synchronize()
        simdevice.spin(60)
        waits[name] = ms_of(call) > 30
    return waits


def test_the_host_waits_where_cuda_makes_it_wait():
    waits = simdevice.run(time_host_waits)
    assert {name for name, waited in waits.items() if not waited} == {"operator", "to_device_pinned"}


def time_copies() -> float:
    import torch

    pinned = torch.ones(8).pin_memory()
    simdevice.set_copy_ms(30)
    before, after = timing_event(), timing_event()
    before.record()
    pinned.to("sim", non_blocking=True)
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def test_a_copy_takes_the_time_it_was_told_to():
    assert simdevice.run(time_copies) == pytest.approx(30, abs=10)


def use_memory() -> dict:
    import torch
    from torch import accelerator

    mib = 2**20
    simdevice.set_capacity(64 * mib)
    before = accelerator.memory_allocated()
    tensor = torch.empty(16 * mib, dtype=torch.uint8, device="sim")
    other = torch.empty(mib, dtype=torch.uint8, device="sim:1")
    seen = {"grown": accelerator.memory_allocated() - before, "other": accelerator.memory_allocated(1)}
    del tensor, other
    seen |= {"left": accelerator.memory_allocated() - before, "peak": accelerator.max_memory_allocated()}
    seen |= {"cached": accelerator.memory_reserved(), "reserved_peak": accelerator.max_memory_reserved()}
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    seen |= {"emptied": accelerator.memory_reserved(), "new_peak": accelerator.max_memory_allocated()}
    try:
        torch.empty(65 * mib, dtype=torch.uint8, device="sim")
    except torch.OutOfMemoryError as error:
        seen["error"] = str(error)
    keep = torch.empty(60 * mib, dtype=torch.uint8, device="sim")  # one failure does not break the device
    return seen | {"info": accelerator.get_memory_info(), "kept": keep.numel()}


def test_memory_is_counted_and_runs_out():
    mib = 2**20
    seen = simdevice.run(use_memory)
    assert (seen["grown"], seen["other"], seen["left"]) == (16 * mib, mib, 0)
    assert seen["peak"] == seen["cached"] == seen["reserved_peak"] == 16 * mib
    assert (seen["emptied"], seen["new_peak"]) == (0, 0)
    assert "Tried to allocate 65.00 MiB" in seen["error"]
    assert seen["info"] == [4 * mib, 64 * mib]


def pretend_to_capture() -> dict:
    import torch

    event, stream = timing_event(), torch.accelerator.current_stream()
    event.record()
    torch.accelerator.synchronize()
    simdevice.set_capturing(True)
    seen = {"capturing": [stream.is_capturing(), torch.sim.is_current_stream_capturing()]}
    seen["refused"] = []
    for name, call in {"query": event.query, "wait": event.synchronize, "record": event.record}.items():
        try:
            call()
        except RuntimeError:
            seen["refused"].append(name)
    simdevice.set_capturing(False)
    return seen | {"calls": simdevice.calls_while_capturing(), "after": stream.is_capturing()}


def test_capture_forbids_queries_and_waits():
    seen = simdevice.run(pretend_to_capture)
    assert seen["capturing"] == [True, True]
    assert seen["refused"] == ["query", "wait"]
    assert seen["calls"] == 3
    assert not seen["after"]


def load_with_workers() -> list:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    simdevice.spin(1)  # a stream worker is alive when the loader forks
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2, pin_memory=True)
    return [[batch.is_pinned(), batch.to("sim", non_blocking=True).sum().item()] for (batch,) in loader]


def test_a_loader_with_workers_and_pinned_memory_works():
    assert simdevice.run(load_with_workers) == [[True, 6.0], [True, 22.0]]


def save_and_load() -> list[str]:
    import torch

    file = io.BytesIO()
    torch.save(torch.nn.Linear(3, 3).to("sim").state_dict(), file)
    places = []
    for place in ("sim:1", "cpu"):
        file.seek(0)
        places.append(str(torch.load(file, map_location=place)["weight"].device))
    return places


def test_a_checkpoint_can_be_written_and_read():
    assert simdevice.run(save_and_load) == ["sim:1", "cpu"]


def leave_work_behind() -> None:
    simdevice.spin(600_000)


def test_work_in_flight_does_not_keep_the_process():
    simdevice.run(leave_work_behind, timeout_s=120)
