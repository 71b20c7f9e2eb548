"""What a holder is doing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpuprof.analysis.holderstate import WorkThresholds, holder_state
from jupyter_gpuprof.records.devices import Holder
from jupyter_gpuprof.records.processes import KernelActivity, ProcessId
from jupyter_gpuprof.records.reading import Missing

UNKNOWN = Missing("not known")
HOLDER = Holder("k", ProcessId(20, 1.0), "a.ipynb", "GPU-a", (20,), 8, 6, 8, 0.0, True)
QUIET = KernelActivity(open_requests=0, waiting_for_input=False, training_active=False, cpu_cores=0.0)


@pytest.mark.parametrize(
    ("holder", "activity", "state"),
    [
        ({}, {}, "idle"),
        ({}, {"finished_training": True}, "finished and holding"),
        ({}, {"open_requests": 1}, "running a cell"),
        ({}, {"open_requests": 2, "waiting_for_input": True}, "waiting for input"),
        ({}, {"open_requests": 1, "training_active": True}, "training"),
        ({}, {"training_active": True}, "training"),
        ({}, {"starting": True, "open_requests": UNKNOWN}, "starting"),
        ({}, {"cpu_cores": 1.0}, "background work"),
        ({"work_ratio": 0.5}, {}, "background work"),
        ({"work_ratio": 0.5}, {"open_requests": UNKNOWN}, "background work"),
        ({"kernel_alive": False}, {"open_requests": 1}, "orphan"),
        ({}, {"open_requests": UNKNOWN}, "unknown"),
        ({}, {"cpu_cores": UNKNOWN}, "unknown"),
        ({"work_ratio": UNKNOWN}, {}, "unknown"),
        ({"kernel_alive": UNKNOWN}, {"open_requests": 1}, "running a cell"),
        ({}, {"training_active": UNKNOWN, "waiting_for_input": UNKNOWN}, "idle"),
    ],
)
def test_states(holder: dict[str, object], activity: dict[str, object], state: str) -> None:
    assert holder_state(replace(HOLDER, **holder), replace(QUIET, **activity)) == state


def test_thresholds_are_the_most_that_is_no_work() -> None:
    limits = WorkThresholds(cpu_cores=0.5, device_ratio=0.5)
    assert holder_state(replace(HOLDER, work_ratio=0.5), replace(QUIET, cpu_cores=0.5), limits) == "idle"
    assert holder_state(HOLDER, replace(QUIET, cpu_cores=0.51), limits) == "background work"
