"""Remedies for a step that waits for other devices."""

from __future__ import annotations

from jupyter_gpuprof.analysis.advice import Advice
from jupyter_gpuprof.analysis.cost import WORTH, StepCost, ms
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Remedy
from jupyter_gpuprof.records.timing import Part

LATE_RANK = "communication.late-rank"

#: Batches between two exchanges of gradients, in the remedy.
_ACCUMULATED = 4
#: Id, title, the part of the exposed transfer that it can take away at most, and why so much.
_REMEDIES = (
    (
        "communication.hide",
        "Overlap more with the backward pass: another bucket_cap_mb, gradient_as_bucket_view=True, "
        "static_graph=True",
        1.0,
        "all of it: at most",
    ),
    (
        "communication.accumulate",
        f"Accumulate {_ACCUMULATED} batches, all but the last under no_sync()",
        1 - 1 / _ACCUMULATED,
        f"exchanged once in {_ACCUMULATED} batches, {_ACCUMULATED - 1}/{_ACCUMULATED} of it go: at most",
    ),
    (
        "communication.compress",
        "Send gradients in bfloat16: the communication hook bf16_compress_hook",
        0.5,
        "half of the bytes, half of it goes: at most",
    ),
    (
        "communication.larger-batch",
        "Twice the batch per device",
        0.5,
        "the same exchange for twice the samples, told per batch of today's size: at most",
    ),
)


def communication_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> Advice:
    """What makes the ranks wait less for each other."""
    advice = Advice()
    late = evidence.late_rank is not None and facts.others_wait_ratio > 1 - WORTH
    if late:
        advice.remedies.append(
            Remedy(
                LATE_RANK,
                f"Find what makes rank {evidence.late_rank} late for the collectives",
                cost.mean_s * (1 - facts.others_wait_ratio),
                "the mean step less what the other ranks wait for it: about the most it can give",
            )
        )
    transfer_s = max(0.0, cost.parts_s.get(Part.COMMUNICATION, 0.0) - evidence.skew_ratio * cost.mean_s)
    if late and transfer_s <= (1 - WORTH) * cost.mean_s:
        advice.no_help.append(
            f"Faster or less communication: no, the transfer itself is exposed for {ms(transfer_s)} of a "
            f"step of {ms(cost.mean_s)}; the rest is waiting for rank {evidence.late_rank}"
        )
        return advice
    what = "the exposed transfer, waiting for late ranks apart" if late else "the exposed communication"
    for id, title, part, why in _REMEDIES:
        how = f"the mean step less {ms(part * transfer_s)} of {what}: {why}"
        advice.weigh(
            cost.mean_s,
            Remedy(id, title, cost.mean_s - part * transfer_s, how),
            f"{title}: no, too little of the step is exposed communication",
        )
    advice.remedies.append(
        Remedy(
            "communication.fewer-devices",
            "Fewer devices",
            Missing("the scaling curve was not measured: %gpuprof scale 1 2 4"),
            "each device then has more work for the same communication",
        )
    )
    return advice
