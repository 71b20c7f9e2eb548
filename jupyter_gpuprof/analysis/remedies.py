"""What to change, what it should bring, and how that was predicted.

Predictions are for the mean step, all in but for validation. Each says how it was made; none promises
more than removing the measured cause could give.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpuprof.analysis.advice import Advice
from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.analysis.remedies_communication import communication_remedies
from jupyter_gpuprof.analysis.remedies_host import host_remedies, validation_remedies
from jupyter_gpuprof.analysis.remedies_input import input_remedies
from jupyter_gpuprof.analysis.remedies_size import free_levers, oversized_remedies
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Label, Remedy

_RANKS_WAIT = Missing("the ranks wait for each other: try it and compare")


def remedies_for(labels: tuple[Label, ...], evidence: Evidence, cost: StepCost, facts: Facts) -> Advice:
    """Remedies of the findings' labels, those with the shortest predicted step first; what would not help.

    Where several ranks wait for each other, what a change brings to one of them says little of the job:
    only what changes the exchange itself (or the late rank) has a prediction, or a no.
    """
    found = Advice()
    for label in labels:
        advice = _by_label(label, evidence, cost, facts)
        found.remedies += advice.remedies
        if facts.ranks == 1 or label == "communication-bound":
            found.no_help += advice.no_help
    if labels and labels[0] != "unclear":
        found.remedies += validation_remedies(evidence, cost, facts)
    if facts.ranks > 1:
        found.remedies = [_of_one_rank(remedy) for remedy in found.remedies]
    found.remedies.sort(key=_predicted_s)
    return found


def _by_label(label: Label, evidence: Evidence, cost: StepCost, facts: Facts) -> Advice:
    if label in _BY_LABEL:
        return _BY_LABEL[label](evidence, cost, facts)
    return Advice(_OF_SIZE[label](evidence, cost, facts) if label in _OF_SIZE else [])


def _of_one_rank(remedy: Remedy) -> Remedy:
    if remedy.id.startswith("communication.") or isinstance(remedy.predicted_step_s, Missing):
        return remedy
    return replace(remedy, predicted_step_s=_RANKS_WAIT)


def _predicted_s(remedy: Remedy) -> float:
    return float("inf") if isinstance(remedy.predicted_step_s, Missing) else float(remedy.predicted_step_s)


_BY_LABEL = {
    "input-bound": input_remedies,
    "host-bound": host_remedies,
    "communication-bound": communication_remedies,
}
_OF_SIZE = {"oversized": oversized_remedies, "correctly sized": free_levers}
