"""Remedies for a step that waits for the host."""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import WORTH, StepCost
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.run import Remedy
from jupyter_gpuprof.records.timing import Part

_HOST_REMEDIES = {
    Part.CHECKPOINT: ("host.checkpoint", "Write checkpoints less often, or in the background"),
    Part.OTHER: ("host.between", "Move logging, metrics and other host work off every step"),
    Part.HOST_GAP: (
        "host.launch",
        "Launch less: torch.compile or graphs, fused optimizer, no .item() per step",
    ),
}


def host_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """What takes host work off the step."""
    how = "the mean step less what was measured for it: about the most it can give"
    return [
        Remedy(name, title, cost.without(part), how)
        for part, (name, title) in _HOST_REMEDIES.items()
        if part not in evidence.missing and cost.parts_s.get(part, 0.0) > (1 - WORTH) * cost.mean_s
    ]
