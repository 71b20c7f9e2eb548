"""What the jobs of one device count have given, and what a job's rounds are worth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_gpuprof.analysis.trial import mean_step
from jupyter_gpuprof.planning.scaling import Outcome, point
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.scaling import ScalingPoint
from jupyter_gpuprof.session.reruns.job import Round

#: What a rank says that lost another one; that one knows why.
_LOST_ANOTHER = re.compile(r"connection (closed|reset|refused)|broken pipe|\bgloo\b|\bnccl\b", re.IGNORECASE)


@dataclass
class Tally:
    """What one count has given so far; seconds and samples of all its ranks."""

    count: int
    throughputs: list[float] = field(default_factory=list)
    startups_s: list[float] = field(default_factory=list)
    outcome: Outcome = "measured"
    why: str = ""
    _spread: Estimate | None = None  # within the last repeat
    _communication: Share = field(default_factory=lambda: Missing("not measured"))
    _waiting: Share = field(default_factory=lambda: Missing("not measured"))
    _peak_bytes: Number = field(default_factory=lambda: Missing("not measured"))

    @property
    def over(self) -> bool:
        """Whether it makes no sense to run this count again."""
        return self.outcome != "measured"

    def add(self, rounds: Sequence[Round]) -> Run:
        """A repeat that was measured; the run of all its ranks."""
        runs = [done.run for done in rounds if done.run is not None]
        step = mean_step([done.step_s for done in rounds])
        samples = sum(batch_size(run) or 1 for run in runs)
        self.throughputs.append(samples / step.value)
        self._spread = Estimate(samples / step.value, samples / step.high, samples / step.low)
        self._communication = runs[0].shares.exposed_communication
        self._waiting = _waiting(runs[0])
        peaks = [run.memory.peak_allocated_bytes for run in runs]
        known = [peak for peak in peaks if not isinstance(peak, Missing)]
        self._peak_bytes = max(known) if known else peaks[0]
        return runs[0]

    def end(self, outcome: Outcome, why: str) -> None:
        """No more of this count."""
        self.outcome, self.why = outcome, why

    def point(self) -> ScalingPoint:
        """The count as a point of the curve."""
        starts = self.startups_s
        return point(
            self.count,
            self.throughputs,
            within=self._spread,
            exposed_communication=self._communication,
            exposed_input=self._waiting,
            peak_memory_bytes=self._peak_bytes,
            startup_s=sum(starts) / len(starts) if starts else None,
            outcome="measured" if self.throughputs else self.outcome,
            why="" if self.throughputs else self.why,
        )


def judge(rounds: Sequence[Round], count: int, ended_because: str, words: str) -> tuple[Outcome, str]:
    """What a job came to, and why it is not "measured".

    Args:
        rounds: those that its ranks left, in their order.
        count: of ranks.
        ended_because: why we ended it, or "".
        words: what its launcher says about ranks that left nothing.
    """
    full = [done for done in rounds if done.outcome == "out of memory"]
    if full:
        return "out of memory", full[0].error
    bad = [done for done in rounds if done.outcome != "measured" or not done.step_s]
    # The rank that failed first tells why; the others only lost it.
    own = [done for done in bad if done.error and not _LOST_ANOTHER.search(done.error)]
    if own:
        return "failed", own[0].error
    if ended_because:
        return "failed", ended_because
    if len(rounds) < count and words:
        return "failed", words
    if bad:
        return "failed", bad[0].error or "no training step was counted"
    if len(rounds) < count:
        return "failed", f"{count - len(rounds)} of {count} ranks ended without a word"
    return "measured", ""


def batch_size(run: Run | None) -> int | None:
    """The batch size of the first loader that is not for validation."""
    for loader in run.loaders if run is not None else ():
        if loader.role != "validation" and not isinstance(loader.batch_size, Missing):
            return int(loader.batch_size)
    return None


def _waiting(run: Run) -> Share:
    """The share of waiting for input, the start of epochs included."""
    share, start = run.shares.exposed_input, run.shares.between.epoch_start
    if isinstance(share, Missing) or isinstance(start, Missing):
        return share
    return Estimate(share.value + start.value, share.low + start.value, min(1.0, share.high + start.value))
