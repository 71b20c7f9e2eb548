"""The weights that make Slurm's priority the place in the line that a policy says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jupyter_gpuprof.records.fleetpolicy import FleetPolicy

#: Priorities are below 2^32: what class and age can add up to, and the step from a loan to a claim.
_MOST, RESERVE = 1_900_000_000, 2_000_000_000
#: Waiting counts for so long; Slurm's age is a share of it.
_MAX_AGE_DAYS = 365


@dataclass(frozen=True)
class Weights:
    """Of Slurm's priority/multifactor.

    Args:
        lowest: priority of the lowest class, which Slurm has to call 0.
        max_age_days: waiting that makes up all of `age`.
    """

    lowest: int
    age: int
    qos: int
    partition: int = RESERVE
    max_age_days: int = _MAX_AGE_DAYS

    def priority_of(self, priority: int) -> int:
        """A class's priority as that of a QOS, from 0 on."""
        return priority - self.lowest


def weights_of(policy: FleetPolicy) -> Weights:
    """The weights: one priority of a class adds as much as waiting for the aging time.

    Slurm divides a QOS's priority by the highest, and the age by the maximum, so the weight of the QOS is
    what the highest is worth, and the weight of the age what waiting for the maximum is worth. Without aging
    that is a little less than one priority, so that waiting decides among equals alone.
    """
    priorities = [0, *(kind.priority for _, kind in policy.classes)]
    lowest, span = min(priorities), max(priorities) - min(priorities)
    steps = _MAX_AGE_DAYS * 86400 / policy.aging_s if math.isfinite(policy.aging_s) else 1.0
    one = max(1, math.floor(_MOST / (span + steps)))
    age = round(one * steps) if math.isfinite(policy.aging_s) else one - 1
    return Weights(lowest, age, one * span)
