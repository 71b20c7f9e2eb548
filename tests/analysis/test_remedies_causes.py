"""Remedies that rest on sampled causes: predictions against arithmetic by hand, and what would not help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.conclude import Conclusion, conclude
from jupyter_gpuprof.analysis.supply import Supply
from jupyter_gpuprof.records.causes import Causes, CauseShare, HotLine
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Device, Loader, Memory, Remedy
from jupyter_gpuprof.records.timing import Part, StepTable

UNKNOWN = Missing("unknown")
CPU = Device("cpu", "CPU", 4, UNKNOWN, False)
GPU = Device("cuda", "GPU", 1, 80 * 2**30, False)
MEMORY = Memory(UNKNOWN, UNKNOWN)


def table(missing: dict[Part, str] | None = None, **ms: float) -> StepTable:
    row = np.zeros((100, len(Part)))
    for name, value in ms.items():
        row[:, Part[name]] = value / 1e3
    return StepTable(row, 1, {Part.COMMUNICATION: "one process"} if missing is None else missing)


def loader(workers: int, **changes: object) -> Loader:
    made = Loader("L", "training", 100, 1.0, 1.0, 8, workers, 2, True, True, 1.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def causes(of: str = "input", batch_ms: float = 60.0, cpu: float = 1.0, /, **shares: float) -> Causes:
    """Shares by name, `_` for a space, and a line for each."""
    named = {name.replace("_", " "): share for name, share in shares.items()}
    return Causes(
        of=of,  # type: ignore[arg-type]
        samples=1000,
        parts=tuple(CauseShare(name, Estimate(share, share, share)) for name, share in named.items()),
        lines=tuple(
            HotLine(f"cell, line {i}", f"{name.replace(' ', '_')}(x)", name, Estimate(share, share, share))
            for i, (name, share) in enumerate(named.items())
        ),
        batch_s=batch_ms / 1e3,
        cpu_ratio=cpu,
    )


def told(
    seconds: StepTable, *loaders: Loader, device: Device = CPU, cores: int = 4, **changes: object
) -> Conclusion:
    context = Facts(device, MEMORY, loaders, usable_cores=cores, training_threads=1)
    return conclude(seconds, replace(context, **changes))  # type: ignore[arg-type]


def by_id(found: Conclusion) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in found.remedies}


def ms(remedy: Remedy) -> float:
    assert not isinstance(remedy.predicted_step_s, Missing)
    return 1e3 * float(remedy.predicted_step_s)


# -- workers -----------------------------------------------------------------------------------------


def test_workers_that_starve_get_more_from_the_measured_cost_of_a_batch() -> None:
    # 2 workers deliver every 30 ms. 4 cores: (60 + 10) / 4 = 17.5 ms is the least; 4 workers come to that.
    found = by_id(told(table(INPUT=20, COMPUTE=10), loader(2), input_causes=causes(decoding=1.0)))
    assert ms(found["input.more-workers"]) == pytest.approx(17.5)
    assert found["input.more-workers"].setting == "num_workers=4"


def test_workers_on_busy_cores_get_a_no_and_what_helps_instead() -> None:
    # 8 workers decode on 2 cores: (52 + 10) / 2 = 31 ms whatever their number.
    inflated = causes("input", 208.0, 0.25, decoding=0.8, transforming=0.2)
    found = told(table(INPUT=21, COMPUTE=10), loader(8), cores=2, input_causes=inflated)
    assert "input.more-workers" not in by_id(found)
    assert "More workers: no, 2 cores are already busy: 31.0 ms -> 31.0 ms predicted" in found.no_help
    # Without decoding, a fifth of the 52 ms is left: (10.4 + 10) / 2.
    assert ms(by_id(found)["input.cheaper-format"]) == pytest.approx(10.2)
    assert by_id(found)["input.cheaper-format"].how.endswith("cell, line 0: decoding(x)")


def test_workers_that_wait_get_more_than_there_are_cores() -> None:
    waiting = causes("input", 200.0, 0.05, reading=1.0)
    found = by_id(told(table(INPUT=90, COMPUTE=10), loader(2), cores=2, input_causes=waiting))
    # 10 ms of 200 need a core: (10 + 10) / 2 = 10 ms; 16 workers come to 12.5 ms.
    assert found["input.more-workers"].setting == "num_workers=16"
    assert ms(found["input.more-workers"]) == pytest.approx(12.5)


def test_memory_limits_the_workers() -> None:
    waiting = causes("input", 200.0, 0.05, reading=1.0)
    memory = {"free_memory_bytes": 5 * 2**30, "worker_memory_bytes": 2 * 2**30}
    seconds = table(INPUT=90, COMPUTE=10)
    found = by_id(told(seconds, loader(2), input_causes=waiting, **memory))
    assert found["input.more-workers"].setting == "num_workers=4"
    assert "a worker takes 2.0 GiB of memory, and 5.0 GiB are free" in found["input.more-workers"].how
    none = told(seconds, loader(2), input_causes=waiting, **{**memory, "free_memory_bytes": 2**30})
    assert "More workers: no, a worker takes 2.0 GiB of memory, and 1.0 GiB are free" in none.no_help


def test_the_consumers_own_work_is_not_shared_by_workers() -> None:
    taking = replace(causes(decoding=1.0), serial_s=0.015)
    found = by_id(told(table(INPUT=30, COMPUTE=10), loader(2), cores=16, input_causes=taking))
    assert ms(found["input.more-workers"]) >= 25


def test_a_longer_queue_helps_bursts_only() -> None:
    # 6 workers deliver every 10 ms on average, a step takes 20: the waits come from bursts.
    bursts = told(table(INPUT=5, COMPUTE=20), loader(6), input_causes=causes(reading=1.0))
    assert ms(by_id(bursts)["input.prefetch"]) == pytest.approx(20)
    assert by_id(bursts)["input.prefetch"].setting == "prefetch_factor=4"
    slow = told(table(INPUT=20, COMPUTE=10), loader(2), input_causes=causes(reading=1.0))
    assert "input.prefetch" not in by_id(slow)
    assert any("prefetch" in sentence and "30.0 ms" in sentence for sentence in slow.no_help)


# -- what a batch consists of ------------------------------------------------------------------------


def test_each_activity_has_its_remedy_and_small_ones_none() -> None:
    made = causes("input", 80.0, 1.0, decoding=0.5, transforming=0.3, reading=0.16, collating=0.04)
    found = by_id(told(table(INPUT=80, COMPUTE=10), loader(0), input_causes=made))
    assert ms(found["input.cheaper-format"]) == pytest.approx(50)
    assert ms(found["input.cache"]) == pytest.approx(26)
    assert ms(found["input.local-copy"]) == pytest.approx(77.2)
    assert found["input.cache"].setting == "cache"
    assert "input.on-device" not in found  # there is no device
    small = causes("input", 80.0, 1.0, decoding=0.96, reading=0.04)
    assert "input.local-copy" not in by_id(told(table(INPUT=80, COMPUTE=10), loader(0), input_causes=small))


def test_on_a_device_only_what_is_not_hidden_counts() -> None:
    # 30 ms in next(), of which 10 are noticed. Without the transforms 24 are left: 4 are noticed.
    made = causes("input", 30.0, 1.0, transforming=0.2, decoding=0.8)
    slow = loader(0, wait_s=3.0, exposed_s=1.0)
    found = by_id(told(table(INPUT=10, COMPUTE=20), slow, device=GPU, input_causes=made))
    assert ms(found["input.on-device"]) == pytest.approx(24)


def test_what_does_not_shorten_the_step_is_told_with_numbers() -> None:
    # Reading is nearly all of a batch, but what is left needs the only core: 1.44 + 10 ms.
    made = causes("input", 24.0, 0.06, reading=0.94, decoding=0.06)
    found = told(table(INPUT=2, COMPUTE=10), loader(2), cores=1, input_causes=made)
    assert "input.local-copy" not in by_id(found)
    (sentence,) = (sentence for sentence in found.no_help if "reading" in sentence)
    assert sentence.endswith("(94 % of a batch): 12.0 ms -> 11.4 ms predicted")


def test_persistent_workers_and_pinned_memory() -> None:
    seconds = table(INPUT=5, EPOCH_START=10, COMPUTE=10, COPIES=5)
    unset = loader(2, persistent_workers=False, pin_memory=False)
    found = by_id(told(seconds, unset, device=GPU))
    assert (ms(found["input.persistent-workers"]), ms(found["input.pin-memory"])) == pytest.approx((20, 25))
    assert found["input.persistent-workers"].setting == "persistent_workers=True"
    assert found["input.pin-memory"].setting == "pin_memory=True"
    on_cpu = by_id(told(seconds, unset))
    assert "input.pin-memory" not in on_cpu
    assert "input.persistent-workers" not in by_id(told(seconds, loader(0, persistent_workers=False)))
    unseen = told(table({Part.COPIES: "host clock"}, INPUT=9, COMPUTE=9), unset, device=GPU)
    assert isinstance(by_id(unseen)["input.pin-memory"].predicted_step_s, Missing)


def test_reading_the_loss_in_each_step_makes_hidden_loading_a_stall() -> None:
    # As measured: 15 ms of loading and 20 ms of device take 35 ms with .item(), and 20 without.
    host = causes("host", 20.0, 0.1, synchronising=0.9, launching=0.1)
    slow = loader(0, wait_s=1.5, exposed_s=1.5)
    found = by_id(
        told(
            table(INPUT=15, COMPUTE=20),
            slow,
            device=GPU,
            input_causes=causes("input", 15.0, decoding=1.0),
            host_causes=host,
        )
    )
    assert ms(found["input.synchronising"]) == pytest.approx(20)
    assert "cell, line 0: synchronising(x)" in found["input.synchronising"].title


# -- host --------------------------------------------------------------------------------------------


def test_host_activities_by_their_share_and_line() -> None:
    # 60 ms outside of fetching; the device waits 40 of them for the host.
    host = causes("host", 60.0, 1.0, launching=0.5, logging=0.25, synchronising=0.2, metrics=0.05)
    found = by_id(told(table(HOST_GAP=30, OTHER=10, COMPUTE=20), loader(0), device=GPU, host_causes=host))
    assert ms(found["host.launch"]) == pytest.approx(30)
    assert ms(found["host.logging"]) == pytest.approx(45)
    assert ms(found["host.synchronising"]) == pytest.approx(48)
    assert found["host.launch"].setting == "compile=True"
    assert "cell, line 1: logging(x)" in found["host.logging"].title
    assert "stall" in found["host.synchronising"].how
    assert "host.metrics" not in found


def test_nothing_hidden_is_promised() -> None:
    # The host computes for 50 ms a step, but the device waits only for 10 of them.
    host = causes("host", 50.0, 1.0, python=1.0)
    found = by_id(told(table(HOST_GAP=15, COMPUTE=35), loader(0), device=GPU, host_causes=host))
    assert ms(found["host.python"]) == pytest.approx(35)


def test_a_lever_that_is_on_is_not_proposed() -> None:
    host = causes("host", 40.0, 1.0, launching=1.0)
    steps = replace(
        host, lines=(HotLine("cell, line 9", "opt.step()", "launching", Estimate(0.3, 0.2, 0.4)),)
    )
    on = (Lever("compile", "torch.compile", "on"),)
    found = by_id(told(table(HOST_GAP=20, COMPUTE=20), loader(0), device=GPU, host_causes=steps, levers=on))
    assert "host.launch" not in {id for id in found if found[id].setting == "compile=True"}
    assert ms(found["host.fused-optimizer"]) == pytest.approx(28)
    assert found["host.fused-optimizer"].setting == "fused=True"


def test_checkpoints_are_what_was_measured_of_them() -> None:
    host = causes("host", 60.0, 1.0, checkpoint=0.5, launching=0.5)
    found = by_id(told(table(CHECKPOINT=30, COMPUTE=30), loader(0), host_causes=host))
    assert ms(found["host.checkpoint"]) == pytest.approx(30)
    assert "checkpoint(x)" in found["host.checkpoint"].how
    assert "host.launch" not in found  # on a CPU that is the computing itself


def test_validation_that_takes_much_is_predicted_for_the_whole() -> None:
    seconds = table(INPUT=20, COMPUTE=20, VALIDATION=40)
    found = by_id(told(seconds, loader(0)))
    remedy = found["validation.less-often"]
    assert isinstance(remedy.predicted_step_s, Missing)
    counted = told(seconds, loader(0)).steps.total_s
    assert f"{counted:.1f} s that were measured become {0.75 * counted:.1f} s" in remedy.how
    assert "validation.less-often" not in by_id(told(table(INPUT=20, COMPUTE=20, VALIDATION=8), loader(0)))


# -- communication -----------------------------------------------------------------------------------


def test_communication_is_predicted_by_removing_a_part_of_it() -> None:
    seconds = table({}, COMMUNICATION=40, COMPUTE=60)
    found = by_id(told(seconds, loader(0), device=GPU, ranks=4))
    assert ms(found["communication.hide"]) == pytest.approx(60)
    assert ms(found["communication.accumulate"]) == pytest.approx(70)
    assert ms(found["communication.compress"]) == pytest.approx(80)
    assert all("at most" in found[f"communication.{name}"].how for name in ("hide", "accumulate", "compress"))
    assert isinstance(found["communication.fewer-devices"].predicted_step_s, Missing)


# -- everything --------------------------------------------------------------------------------------

SHARES = st.lists(st.floats(0.01, 1), min_size=6, max_size=6).map(lambda xs: [x / sum(xs) for x in xs])


@given(
    shares=SHARES,
    batch_ms=st.floats(0.01, 1e4),
    cpu=st.floats(0, 1),
    workers=st.integers(0, 32),
    cores=st.integers(1, 64),
    wait=st.floats(1, 1000),
    device=st.sampled_from([CPU, GPU]),
)
def test_no_remedy_promises_more_than_its_cause(
    shares: list[float], batch_ms: float, cpu: float, workers: int, cores: int, wait: float, device: Device
) -> None:
    names = ("reading", "decoding", "transforming", "collating", "handing_over", "other")
    made = causes("input", batch_ms, cpu, **dict(zip(names, shares, strict=True)))
    seconds = table(INPUT=wait, COMPUTE=20, COPIES=1)
    found = told(seconds, loader(workers, wait_s=wait / 10), device=device, cores=cores, input_causes=made)
    for remedy in found.remedies:
        if not isinstance(remedy.predicted_step_s, Missing):
            assert 0.0189 <= remedy.predicted_step_s <= (21 + wait) / 1e3
            assert remedy.how


@given(shares=SHARES, cpu=st.floats(0, 1), dropped=st.integers(0, 5))
def test_a_batch_without_an_activity_keeps_its_processor_time(
    shares: list[float], cpu: float, dropped: int
) -> None:
    names = ("reading", "decoding", "transforming", "collating", "handing over", "other")
    parts = tuple(CauseShare(n, Estimate(s, s, s)) for n, s in zip(names, shares, strict=True))
    made = Causes("input", 100, parts)
    supply = Supply(1.0, cpu, 2, 0.01, 0.1, 0.0, 2, 1)
    left = supply.without(made, names[dropped])
    assert left.batch_s == pytest.approx(1 - shares[dropped])
    assert -1e-9 <= left.cpu_ratio * left.batch_s <= cpu + 1e-9
    nothing = supply.without(made, *names)
    assert nothing.batch_s == pytest.approx(0, abs=1e-9)
