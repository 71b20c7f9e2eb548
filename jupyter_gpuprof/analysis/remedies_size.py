"""Remedies where the device is busy: is it too large, and which levers are free?"""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Remedy


def oversized_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """A larger batch, or a smaller device."""
    capacity, peak = facts.device.memory_bytes, facts.memory.peak_allocated_bytes
    if isinstance(capacity, Missing) or isinstance(peak, Missing) or not peak:
        return []
    unknown: Number = Missing("depends on how the step scales with the batch; measure it")
    times, smaller_gib = 0.9 * capacity / peak, 1.2 * peak / 2**30
    return [
        Remedy(
            "oversized.batch",
            f"A larger batch: memory alone would allow about {times:.0f} times",
            unknown,
            "90 % of the capacity over the peak, if all of the peak grew with the batch",
        ),
        Remedy(
            "oversized.device",
            f"A smaller device: the peak with a fifth of headroom is {smaller_gib:.1f} GiB",
            unknown,
            "measured peak of the allocator, plus 20 %",
        ),
    ]


def free_levers(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """Levers that are not in use yet."""
    unknown: Number = Missing("algorithmic; measure it")
    levers = ("mixed precision", "gradient accumulation instead of more devices", "activation checkpointing")
    used = tuple(lever.name for lever in facts.levers or () if lever.state == "on")
    how = "not seen in use" if facts.levers is not None else "whether it is already in use was not looked at"
    return [
        Remedy(f"size.{lever.split()[0]}", f"Try {lever}", unknown, how)
        for lever in levers
        if lever not in used
    ]
