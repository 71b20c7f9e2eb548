"""Predictions against arithmetic by hand and against published bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jupyter_gpuprof.analysis.conclude import conclude
from jupyter_gpuprof.analysis.supply import workers_step_s
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device, Loader, Memory, Remedy
from jupyter_gpuprof.records.timing import Part, StepTable

UNKNOWN = Missing("unknown")
CPU = Device("cpu", "CPU", 4, UNKNOWN, False)
GPU = Device("cuda", "GPU", 1, 80 * 2**30, False)


def table(**ms: float) -> StepTable:
    row = np.zeros((100, len(Part)))
    for name, value in ms.items():
        row[:, Part[name]] = value / 1e3
    return StepTable(row, 1, {Part.COMMUNICATION: "one process", Part.COPIES: "no device"})


def loader(workers: int = 0, cpu_ratio: float | Missing = 1.0, wait_s: float = 1.0) -> Loader:
    return Loader("L", "training", 100, wait_s, wait_s, 8, workers, UNKNOWN, False, False, cpu_ratio)


def remedies(seconds: StepTable, facts: Facts) -> dict[str, Remedy]:
    return {remedy.id: remedy for remedy in conclude(seconds, facts).remedies}


def facts(
    device: Device = CPU, *loaders: Loader, cores: int = 4, threads: int = 1, **changes: object
) -> Facts:
    memory = Memory(UNKNOWN, UNKNOWN)
    made = Facts(device, memory, loaders, usable_cores=cores, training_threads=threads)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workers", "cpu_ratio", "expected_ms"),
    [
        (1, 1.0, 40.0),  # one worker delivers every 40 ms
        (2, 1.0, 20.0),
        (4, 1.0, 12.5),  # 40 + 10 ms of work on 4 cores
        (8, 1.0, 12.5),  # more workers than cores bring nothing
        (8, 0.0, 10.0),  # unless loading only waits: then the step itself is the limit
        (2, 0.0, 20.0),
    ],
)
def test_bounds_of_the_step_with_workers(workers: int, cpu_ratio: float, expected_ms: float) -> None:
    assert 1e3 * workers_step_s(0.040, cpu_ratio, 0.010, workers, cores=4, threads=1) == pytest.approx(
        expected_ms
    )


def test_removing_the_stall_leaves_the_rest() -> None:
    found = remedies(table(INPUT=40, COMPUTE=10, OTHER=2), facts(CPU, loader()))
    assert float(found["input.remove-stall"].predicted_step_s) == pytest.approx(0.012)


def test_a_loader_that_waits_gets_more_workers_than_cores() -> None:
    found = remedies(table(INPUT=80, COMPUTE=10), facts(CPU, loader(cpu_ratio=0.05), cores=2, threads=2))
    # 4 ms of the 80 need a core, as do 2 x 10 ms of the step: 24 ms on 2 cores; 80 / 7 is less than that.
    assert float(found["input.workers"].predicted_step_s) == pytest.approx(0.012)
    assert "num_workers=7" in found["input.workers"].title


def test_a_loader_that_computes_on_busy_cores_gets_a_no() -> None:
    found = conclude(table(INPUT=5, COMPUTE=40), facts(CPU, loader(), cores=1, threads=1))
    assert "input.workers" not in {remedy.id for remedy in found.remedies}
    assert "Loader workers: no, 1 core is already busy: 45.0 ms -> 45.0 ms predicted" in found.no_help


def test_workers_that_starve_get_no_number_that_nobody_measured() -> None:
    found = remedies(table(INPUT=40, COMPUTE=10), facts(CPU, loader(workers=2, cpu_ratio=UNKNOWN)))
    assert "num_workers=4" in found["input.more-workers"].title
    assert isinstance(found["input.more-workers"].predicted_step_s, Missing)


def test_on_a_device_the_hosts_time_in_next_is_the_cost_of_a_batch() -> None:
    # 30 ms in next() of which the device noticed 10: one worker hides all of it.
    found = remedies(table(INPUT=10, COMPUTE=40), facts(GPU, loader(wait_s=3.0)))
    assert float(found["input.workers"].predicted_step_s) == pytest.approx(0.040)


def test_of_several_ranks_only_the_late_one_has_a_prediction_and_stands_first() -> None:
    seconds = replace(table(HOST_GAP=25, COMMUNICATION=24, COMPUTE=2), missing={Part.COPIES: "none"})
    late = facts(CPU, late_rank=1, exposed_skew_ratio=0.45, others_wait_ratio=0.9, ranks=2)
    found = conclude(seconds, late).remedies
    assert found[0].id == "communication.late-rank"
    assert float(found[0].predicted_step_s) == pytest.approx(0.0051)
    assert all(isinstance(remedy.predicted_step_s, Missing) for remedy in found[1:])
