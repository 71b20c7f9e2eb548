"""Where the wall time of each step went: the table between measuring and thinking.

Live marks and stored traces both end in a `StepTable`; everything that judges reads only that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Part(IntEnum):
    """A column of a `StepTable`; the parts of a step are disjoint and cover it."""

    INPUT = 0  # device idle because the batch was not there
    EPOCH_START = 1  # worker start-up and shut-down, first batch of an epoch with workers
    COMPUTE = 2
    COPIES = 3
    COMMUNICATION = 4  # not hidden behind compute
    HOST_GAP = 5  # device idle inside the step while the host launches
    OTHER = 6  # host work after the step's last optimizer, before the next batch
    CHECKPOINT = 7
    VALIDATION = 8


#: Each part by the name it has in a run's JSON (see `jupyter_gpuprof.records.run.Shares`).
PART_NAMES: dict[Part, str] = {
    Part.INPUT: "exposed_input",
    Part.EPOCH_START: "between.epoch_start",
    Part.COMPUTE: "device_compute",
    Part.COPIES: "copies",
    Part.COMMUNICATION: "exposed_communication",
    Part.HOST_GAP: "host_gap",
    Part.OTHER: "between.other",
    Part.CHECKPOINT: "between.checkpoint",
    Part.VALIDATION: "between.validation",
}


@dataclass(frozen=True)
class StepTable:
    """Seconds per part (columns, `Part`) of consecutive blocks of steps (rows).

    Args:
        seconds: shape (blocks, parts), each >= 0; a row's sum is the wall time of its steps.
        steps_per_row: how many steps each row sums (1 unless the run was long).
        missing: why a part has no number, for the parts that were not measured (their column is 0).
        steps: how many steps all rows hold (the last row may hold more than the others).
        sample_s: durations of single steps, a sample spread over the run, without the time between
            steps; shape (n,).
    """

    seconds: NDArray[np.float64]
    steps_per_row: int
    missing: dict[Part, str] = field(default_factory=dict)
    steps: int = -1
    sample_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.steps < 0:
            object.__setattr__(self, "steps", len(self.seconds) * self.steps_per_row)

    @property
    def total_s(self) -> float:
        """Wall time of all steps in seconds."""
        return float(self.seconds.sum())

    def part_s(self, *parts: Part) -> float:
        """Seconds of these parts together over all steps."""
        return float(self.seconds[:, list(parts)].sum())
