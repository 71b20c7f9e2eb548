"""Remedies for a step that waits for other devices."""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import WORTH, StepCost
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.run import Remedy
from jupyter_gpuprof.records.timing import Part

LATE_RANK = "communication.late-rank"


def communication_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """What makes the ranks wait less for each other."""
    late: list[Remedy] = []
    if evidence.late_rank is not None and facts.others_wait_ratio > 1 - WORTH:
        late.append(
            Remedy(
                LATE_RANK,
                f"Find what makes rank {evidence.late_rank} late for the collectives",
                cost.mean_s * (1 - facts.others_wait_ratio),
                "the mean step less what the other ranks wait for it: about the most it can give",
            )
        )
    transfer_s = max(0.0, cost.parts_s.get(Part.COMMUNICATION, 0.0) - evidence.skew_ratio * cost.mean_s)
    if late and transfer_s <= (1 - WORTH) * cost.mean_s:
        return late  # nearly all of it is waiting for that rank
    how = "the mean step less the exposed communication: the most that hiding it can give"
    if late:
        how = "the mean step less the exposed transfer, waiting for late ranks apart: the most it can give"
    return [
        *late,
        Remedy(
            "communication.hide",
            "Fewer devices, a larger batch per device, or accumulation with no_sync()",
            cost.mean_s - transfer_s,
            how,
        ),
    ]
