"""The mean step and its parts in seconds: what predictions are made from."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.timing import Part

#: A prediction within this of today's step is no gain worth a change.
WORTH = 0.95


@dataclass(frozen=True)
class StepCost:
    """The mean step in seconds, all in but for validation, and its parts."""

    mean_s: float
    parts_s: dict[Part, float]

    def without(self, *parts: Part) -> float:
        """The mean step if these parts took no time."""
        return self.mean_s - sum(self.parts_s.get(part, 0.0) for part in parts)


def ms(seconds: float) -> str:
    """A duration in words for a sentence: ``12.1 ms``."""
    return f"{1e3 * seconds:.1f} ms"
