"""What to change, what it should bring, and how that was predicted.

Predictions are for the mean step, all in but for validation. Each says how it was made; none promises
more than removing the measured cause could give.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.analysis.remedies_communication import LATE_RANK, communication_remedies
from jupyter_gpuprof.analysis.remedies_host import host_remedies
from jupyter_gpuprof.analysis.remedies_input import input_remedies
from jupyter_gpuprof.analysis.remedies_size import free_levers, oversized_remedies
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Label, Remedy

_RANKS_WAIT = Missing("the ranks wait for each other: try it and compare")


def remedies_for(labels: tuple[Label, ...], evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """Remedies of the findings' labels, those with the shortest predicted step first.

    Where several ranks wait for each other, what a change brings to one of them says little of the job:
    only the late rank's remedy has a prediction, and stands first.
    """
    found: list[Remedy] = []
    for label in labels:
        found += _BY_LABEL.get(label, _none)(evidence, cost, facts)
    if facts.ranks > 1:
        found = [r if r.id == LATE_RANK else replace(r, predicted_step_s=_RANKS_WAIT) for r in found]
    known = [r for r in found if not isinstance(r.predicted_step_s, Missing)]
    known.sort(key=lambda r: r.predicted_step_s if isinstance(r.predicted_step_s, (int, float)) else 0.0)
    return known + [r for r in found if isinstance(r.predicted_step_s, Missing)]


def _none(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    return []


_BY_LABEL = {
    "input-bound": input_remedies,
    "host-bound": host_remedies,
    "communication-bound": communication_remedies,
    "oversized": oversized_remedies,
    "correctly sized": free_levers,
}
