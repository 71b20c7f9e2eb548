"""Remedies for a step that waits for the host, and for validation that takes much of a run."""

from __future__ import annotations

from jupyter_gpuprof.analysis.advice import Advice, costliest_line
from jupyter_gpuprof.analysis.cost import WORTH, StepCost, ms
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Remedy
from jupyter_gpuprof.records.timing import Part

#: Validation that takes a larger part of the wall time gets advice.
MUCH_VALIDATION = 0.20

_FEW = 1 - WORTH
_HOST_PARTS = (Part.HOST_GAP, Part.OTHER, Part.CHECKPOINT)
#: What there is to say of each part where nobody sampled.
_BY_PART = {
    Part.CHECKPOINT: ("host.checkpoint", "Write checkpoints less often, or in the background"),
    Part.OTHER: ("host.between", "Move logging, metrics and other host work off every step"),
    Part.HOST_GAP: (
        "host.launch",
        "Launch less: torch.compile or graphs, fused optimizer, no .item() per step",
    ),
}
#: For activities of the training thread: id, title and what else to know.
_ACTIVITIES = {
    "synchronising": (
        "host.synchronising",
        "Read values from the device every n steps, not in each",
        "each reading waits for the device, and turns time of the loader that would be hidden into a stall",
    ),
    "logging": ("host.logging", "Log every n steps", "the logger works in each step"),
    "metrics": (
        "host.metrics",
        "Compute metrics every n steps, or on the device",
        "metrics are computed in each step",
    ),
    "moving data": (
        "host.moving-data",
        "Move data ahead: pinned memory and non_blocking=True, and make tensors on the device",
        "the training thread copies in each step",
    ),
    "python": (
        "host.python",
        "Take your own Python off the step: into the loader's workers, or to every n steps",
        "your own code runs in each step",
    ),
}


def host_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> Advice:
    """What takes host work off the step: by activity where the stacks were sampled, else by part."""
    advice = Advice()
    known = {part: cost.parts_s.get(part, 0.0) for part in _HOST_PARTS if part not in evidence.missing}
    causes = facts.host_causes
    if not isinstance(causes, Missing) and not isinstance(causes.batch_s, Missing):
        _by_activity(advice, causes, known, cost, facts)
    if not advice.remedies:
        advice.remedies += [_part(part, cost) for part in known if known[part] > _FEW * cost.mean_s]
    return advice


def _by_activity(
    advice: Advice, causes: Causes, known: dict[Part, float], cost: StepCost, facts: Facts
) -> None:
    if known.get(Part.CHECKPOINT, 0.0) > _FEW * cost.mean_s:
        advice.remedies.append(_part(Part.CHECKPOINT, cost, costliest_line(causes, "checkpoint")))
    of_host_s = known.get(Part.HOST_GAP, 0.0) + known.get(Part.OTHER, 0.0)
    for name, (id, title, more) in _ACTIVITIES.items():
        _activity(advice, causes, name, of_host_s, cost, Remedy(id, title, 0.0, more))
    if facts.device.kind != "cpu":  # there it is the computing itself
        _launching(advice, causes, of_host_s, cost, facts)


def validation_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """Validation has no part in the mean step: its advice is for the whole of the run."""
    sums = evidence.resampled.sums
    total_s, validation_s = float(sums.sum()), float(sums[Part.VALIDATION])
    if total_s <= 0 or validation_s <= MUCH_VALIDATION * total_s:
        return []
    return [
        Remedy(
            "validation.less-often",
            "Validate half as often (every n steps or epochs), or on a part of the data",
            Missing("the mean step leaves validation out"),
            f"validation takes {100 * validation_s / total_s:.0f} % of the wall time: half as often, the "
            f"{total_s:.1f} s that were measured become {total_s - validation_s / 2:.1f} s",
        )
    ]


def _part(part: Part, cost: StepCost, line: str = "") -> Remedy:
    id, title = _BY_PART[part]
    part_s = cost.parts_s.get(part, 0.0)
    how = f"the mean step less what was measured for it, {ms(part_s)}: about the most it can give"
    return Remedy(id, title, cost.without(part), f"{how}; {line}" if line else how)


def _seconds(causes: Causes, share: float, of_host_s: float) -> float:
    """Seconds per step of an activity that the step would be shorter without, at most.

    It is the activity's part of the training thread's time, but no more than what the step waits for
    the host: the rest is hidden behind the device.
    """
    assert not isinstance(causes.batch_s, Missing)
    return min(share * float(causes.batch_s), of_host_s)


def _activity(
    advice: Advice, causes: Causes, name: str, of_host_s: float, cost: StepCost, remedy: Remedy
) -> None:
    share = causes.share_of(name).value
    if share <= _FEW:
        return
    line = costliest_line(causes, name)
    advice.weigh(
        cost.mean_s,
        Remedy(
            remedy.id,
            f"{remedy.title} ({line})" if line else remedy.title,
            cost.mean_s - _seconds(causes, share, of_host_s),
            f"{remedy.how}: {100 * share:.0f} % of the training thread's time outside of fetching, "
            "at most what the step waits for the host",
        ),
        f"{remedy.title}: no, little of it is waited for",
    )


def _launching(advice: Advice, causes: Causes, of_host_s: float, cost: StepCost, facts: Facts) -> None:
    share = causes.share_of("launching").value
    on = {lever.id for lever in facts.levers or () if lever.state == "on"}
    line = costliest_line(causes, "launching")
    at = f" ({line})" if line else ""
    how = f"launching is {100 * share:.0f} % of the training thread's time outside of fetching: at most"
    if share > _FEW and "compile" not in on:
        advice.weigh(
            cost.mean_s,
            Remedy(
                "host.launch",
                f"Launch less: torch.compile or CUDA graphs{at}",
                cost.mean_s - _seconds(causes, share, of_host_s),
                how,
                "compile=True",
            ),
            "torch.compile: no, the device hardly waits for launching",
        )
    steps = sum(
        line.share.value for line in causes.lines if line.cause == "launching" and ".step(" in line.text
    )
    if steps > _FEW and "fused_optimizer" not in on:
        predicted: Number = cost.mean_s - _seconds(causes, steps, of_host_s)
        advice.weigh(
            cost.mean_s,
            Remedy(
                "host.fused-optimizer",
                "Update all parameters at once: a fused (or foreach) optimizer",
                predicted,
                f"the optimizer's step is {100 * steps:.0f} % of that time: at most",
                "fused=True",
            ),
            "A fused optimizer: no, the device hardly waits for the optimizer",
        )
