"""From findings to one label, with its reasons, near misses and doubts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.rules import RULES, Evidence, Finding, Thresholds
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Label, Steps, Verdict
from jupyter_gpuprof.records.timing import Part


def judge(
    evidence: Evidence,
    halves: Sequence[Evidence],
    steps: Steps,
    facts: Facts,
    limits: Thresholds | None = None,
) -> Verdict:
    """The verdict on a run.

    Args:
        evidence: over all counted steps.
        halves: the same over the first and the second half; their labels must agree.
        steps: how many steps there were.
        facts: the context.
        limits: thresholds other than the default ones.
    """
    limits = limits or Thresholds()
    doubts = list(facts.doubts)
    findings = _findings(evidence, limits)
    if steps.counted == 0:
        return _unclear("No training step was seen.", findings, doubts, limits)
    if facts.live and steps.counted < limits.few_steps:
        why = f"Only {_counted(steps)}; {limits.few_steps} are needed."
        return _unclear(why, findings, [*doubts, "Run more steps."], limits)
    if steps.counted < limits.doubted_steps:
        doubts.append(f"Only {_counted(steps)}; {limits.doubted_steps} make it firm.")
    elif facts.live and steps.total_s < limits.doubted_seconds:
        doubts.append(
            f"Only {steps.total_s:.1f} s were counted; {limits.doubted_seconds:.0f} s make it firm."
        )

    if not facts.live and steps.counted < limits.few_steps:
        # A stored trace cannot be run longer: the label stands on the values, the doubt is printed.
        passing = [f for f in findings if f.share.value > f.threshold]
        straddling: list[Finding] = []
        halves = ()
    else:
        passing = [f for f in findings if f.passes]
        straddling = [f for f in findings if f.straddles]
    passing.sort(key=lambda f: -f.share.value)
    if passing:
        if Part.INPUT in evidence.missing and passing[0].label == "host-bound":
            doubts.append(f"Some of it may be waiting for input: {evidence.missing[Part.INPUT]}.")
        return _bound(passing, findings, halves, doubts, limits)
    if straddling:
        return _unclear(_straddle(straddling[0]), findings, [*doubts, "Run more steps."], limits)
    if Part.INPUT in evidence.missing:
        why = f"Waiting for input cannot be told from computing: {evidence.missing[Part.INPUT]}."
        return _unclear(why, findings, [*doubts, "Wrap the source of the batches with watch()."], limits)
    drifting = {label for half in halves for label in _point_labels(half, limits)}
    if drifting and facts.live:
        why = f"One half of the run looks {sorted(drifting)[0]}, the whole does not."
        return _unclear(why, findings, [*doubts, "Run longer: the loop has not settled."], limits)
    return _size(evidence, findings, facts, doubts, limits)


def _findings(evidence: Evidence, limits: Thresholds) -> list[Finding]:
    return [finding for rule in RULES if (finding := rule(evidence, limits)) is not None]


def _point_labels(evidence: Evidence, limits: Thresholds) -> set[Label]:
    return {f.label for f in _findings(evidence, limits) if f.share.value > f.threshold}


def _bound(
    passing: list[Finding],
    findings: list[Finding],
    halves: Sequence[Evidence],
    doubts: list[str],
    limits: Thresholds,
) -> Verdict:
    first = passing[0]
    if any(first.label not in _point_labels(half, limits) for half in halves):
        why = f"The run looks {first.label} as a whole, but not in both of its halves."
        return _unclear(why, findings, [*doubts, "Run longer: the loop has not settled."], limits)
    sentence = f"{_percent(first.share.value)} of the time goes to {first.cause}."
    return Verdict(
        label=first.label,
        strength=first.strength,
        sentence=sentence,
        reasons=tuple(_reason(f) for f in passing),
        also=tuple(f.label for f in passing[1:]),
        near=_near([f for f in findings if f not in passing], limits),
        doubts=tuple(doubts),
    )


def _size(
    evidence: Evidence, findings: list[Finding], facts: Facts, doubts: list[str], limits: Thresholds
) -> Verdict:
    """No idleness stands: is the device the right size for the job?"""
    label: Label = "compute-bound"
    strength: Literal["strong", "moderate", "none"] = "moderate"
    capacity, peak = facts.device.memory_bytes, facts.memory.peak_allocated_bytes
    if isinstance(capacity, Missing) or isinstance(peak, Missing) or not capacity:
        why = capacity if isinstance(capacity, Missing) else peak
        reason = why.reason if isinstance(why, Missing) else "its capacity reads 0"
        sentence = f"The step computes; its size cannot be judged: {reason}."
    elif peak < limits.oversized_memory * capacity:
        label = "oversized"
        sentence = (
            f"The device is busy, but the job uses {_percent(peak / capacity)} of its memory: "
            "a smaller device or a larger batch would do."
        )
    else:
        label = "correctly sized"
        sentence = f"The device is busy and {_percent(peak / capacity)} of its memory is used."
    if Part.HOST_GAP in evidence.missing and facts.device.kind != "cpu":
        doubts.append("Whether the device waits for the host inside the step was not measured.")
    reasons = [_below(f) for f in findings]
    return Verdict(label, strength, sentence, tuple(reasons), (), _near(findings, limits), tuple(doubts))


def _unclear(why: str, findings: list[Finding], doubts: list[str], limits: Thresholds) -> Verdict:
    reasons = tuple(_reason(f) for f in findings if f.share.value > f.threshold)
    return Verdict("unclear", "none", why, reasons, (), _near(findings, limits), tuple(doubts))


def _near(findings: list[Finding], limits: Thresholds) -> tuple[str, ...]:
    return tuple(
        f"{f.label}: {_interval(f)}, the threshold is {_percent(f.threshold)}"
        for f in findings
        if not f.passes and (f.straddles or f.share.value > limits.near * f.threshold)
    )


def _straddle(finding: Finding) -> str:
    return (
        f"{_interval(finding)} of the time goes to {finding.cause}: "
        f"too close to {_percent(finding.threshold)} to tell."
    )


def _reason(finding: Finding) -> str:
    return (
        f"{finding.label}: {_interval(finding)} for {finding.cause}, "
        f"the threshold is {_percent(finding.threshold)}"
    )


def _below(finding: Finding) -> str:
    return f"not {finding.label}: {_interval(finding)}, the threshold is {_percent(finding.threshold)}"


def _interval(finding: Finding) -> str:
    share = finding.share
    return f"{_percent(share.value)} ({_percent(share.low)} to {_percent(share.high)})"


def _counted(steps: Steps) -> str:
    return f"{steps.counted} step{'s were' if steps.counted != 1 else ' was'} counted"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def halves_of(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first and second half of the rows."""
    middle = len(seconds) // 2
    return seconds[:middle], seconds[middle:]
