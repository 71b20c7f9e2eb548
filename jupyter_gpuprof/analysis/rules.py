"""The rules of the verdict: each a small pure function from evidence to a finding.

A rule abstains (None) where its signal is missing. A finding's share is the most that removing its
cause could save. Every threshold is a named field of `Thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.analysis.stability import Resampled
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Label
from jupyter_gpuprof.records.timing import Part

#: Rules judge the wall time less validation, which is stated apart.
JUDGED = tuple(part for part in Part if part is not Part.VALIDATION)


@dataclass(frozen=True)
class Thresholds:
    """Every number that a rule compares with; shares of the judged wall time, 0 to 1."""

    input: float = 0.10
    input_strong: float = 0.20
    host: float = 0.20
    host_strong: float = 0.40
    communication: float = 0.15
    communication_strong: float = 0.30
    near: float = 0.5  # a rule is a near miss from this fraction of its threshold on
    oversized_memory: float = 0.25  # of the device's capacity
    few_steps: int = 20  # fewer counted steps in a live run: no verdict
    doubted_steps: int = 50
    doubted_seconds: float = 10.0


@dataclass(frozen=True)
class Evidence:
    """The sums behind a verdict, which parts were not measured, and how far ranks wait for a late one."""

    resampled: Resampled
    missing: dict[Part, str]
    skew_ratio: float = 0.0
    late_rank: int | None = None

    def share(self, *parts: Part) -> Estimate | Missing:
        """Share of the judged time of those of `parts` that were measured; missing if none was."""
        known = tuple(part for part in parts if part not in self.missing)
        if not known:
            return Missing(self.missing[parts[0]])
        return self.resampled.share(known, JUDGED)


@dataclass(frozen=True)
class Finding:
    """A rule that looked at its signal: whether it passed, straddles its threshold, or came near."""

    label: Label
    share: Estimate
    threshold: float
    strong: float
    cause: str

    @property
    def passes(self) -> bool:
        """The whole interval is above the threshold."""
        return self.share.low > self.threshold

    @property
    def straddles(self) -> bool:
        """The interval holds the threshold: it cannot be told."""
        return self.share.low <= self.threshold < self.share.high

    @property
    def strength(self) -> Literal["strong", "moderate", "weak"]:
        """How firmly it stands: by the lower bound of the interval."""
        if self.share.low > self.strong:
            return "strong"
        return "moderate" if self.passes else "weak"


Rule = Callable[[Evidence, Thresholds], Finding | None]


def input_rule(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Input-bound: the device stood idle because the batch was not there."""
    if Part.INPUT in evidence.missing:
        return None
    share = evidence.share(Part.INPUT, Part.EPOCH_START)
    assert isinstance(share, Estimate)
    start = evidence.share(Part.EPOCH_START)
    mostly_start = isinstance(start, Estimate) and start.value > share.value / 2
    cause = "starting the loader's workers at each epoch" if mostly_start else "waiting for the next batch"
    return Finding("input-bound", share, limits.input, limits.input_strong, cause)


#: What host work is called in a sentence.
_HOST_CAUSES = {
    Part.HOST_GAP: "launching work and Python inside the step",
    Part.CHECKPOINT: "writing checkpoints",
    Part.OTHER: "host work after the optimizer step (logging, metrics, Python)",
}


def host_rule(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Host-bound: host work inside or between steps, the largest of it named."""
    share = evidence.share(*_HOST_CAUSES)
    if isinstance(share, Missing):
        return None
    seconds = {part: evidence.resampled.sums[part] for part in _HOST_CAUSES if part not in evidence.missing}
    largest = max(seconds, key=lambda part: seconds[part])
    return Finding("host-bound", share, limits.host, limits.host_strong, _HOST_CAUSES[largest])


def communication_rule(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Communication-bound: collectives that compute does not hide."""
    share = evidence.share(Part.COMMUNICATION)
    if isinstance(share, Missing):
        return None
    cause = "communication that no computation hides"
    transfer = share.value - evidence.skew_ratio
    if evidence.late_rank is not None and transfer <= limits.communication:
        cause = (
            f"waiting in collectives for rank {evidence.late_rank}, which enters last "
            f"(the transfer alone: {100 * max(0.0, transfer):.1f} %)"
        )
    return Finding("communication-bound", share, limits.communication, limits.communication_strong, cause)


#: Every rule of idleness; the verdict is the passing finding with the largest share.
RULES: tuple[Rule, ...] = (input_rule, host_rule, communication_rule)
