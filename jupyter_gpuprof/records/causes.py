"""Which activity, and which line, the time of an input wait or of the host goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: What making a batch consists of.
INPUT_CAUSES = ("reading", "decoding", "transforming", "collating", "handing over", "other")
#: What the host does inside and between steps.
HOST_CAUSES = (
    "synchronising",
    "logging",
    "metrics",
    "checkpoint",
    "launching",
    "moving data",
    "python",
    "other",
)


@dataclass(frozen=True)
class CauseShare:
    """One activity and its share of the samples, with its interval (Wilson, 95 %)."""

    name: str
    share: Estimate


@dataclass(frozen=True)
class HotLine:
    """A line of the person's own code, what it does, and its share of the samples.

    `place` is ``file:line`` (``cell [3], line 4`` in a notebook).
    """

    place: str
    text: str
    cause: str
    share: Estimate


@dataclass(frozen=True)
class Causes:
    """How the time of one kind divides.

    Args:
        of: "input" (making batches) or "host" (the training thread outside of fetching).
        samples: how many samples it rests on.
        parts: activities, largest first; their shares sum to 1.
        lines: the person's own lines that cost most, largest first.
        batch_s: for "input", seconds of work that one batch takes, wherever it is made (to wait for a core
            is no work); for "host", seconds of the training thread per step outside of fetching.
        serial_s: for "input" with workers, seconds per batch in which the training thread itself takes it
            over (unpickling, pinning): no worker takes that off it.
        cpu_ratio: the part of the sampled time that was spent on a processor.
        how: how it was sampled, in words.
        hints: what a person should know or do to get more.
    """

    of: Literal["input", "host"]
    samples: int
    parts: tuple[CauseShare, ...]
    lines: tuple[HotLine, ...] = ()
    batch_s: Number = Missing("not measured")
    serial_s: Number = Missing("not measured")
    cpu_ratio: Number = Missing("not read")
    how: str = ""
    hints: tuple[str, ...] = ()

    def share_of(self, name: str) -> Estimate:
        """The share of one activity; one that was never seen has 0 (with what that leaves open)."""
        for part in self.parts:
            if part.name == name:
                return part.share
        return Estimate(0.0, 0.0, min(1.0, 3.0 / max(1, self.samples)))  # the rule of three
