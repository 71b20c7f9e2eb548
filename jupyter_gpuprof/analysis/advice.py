"""What to change and what not: remedies, and sentences on what would not help."""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpuprof.analysis.cost import WORTH, ms
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Remedy


@dataclass
class Advice:
    """Remedies, and why other changes would not help."""

    remedies: list[Remedy] = field(default_factory=list)
    no_help: list[str] = field(default_factory=list)

    def weigh(self, now_s: float, remedy: Remedy, no: str) -> None:
        """Propose a remedy if it is worth it (or unknown); else say why not, with the numbers.

        Args:
            now_s: today's mean step in seconds.
            remedy: what could be changed.
            no: why it does not help, in words that the numbers can follow.
        """
        then_s = remedy.predicted_step_s
        if isinstance(then_s, Missing) or then_s <= WORTH * now_s:
            self.remedies.append(remedy)
        else:
            self.no_help.append(f"{no}: {ms(now_s)} -> {ms(then_s)} predicted")


def costliest_line(causes: Causes, *names: str) -> str:
    """The person's own line that costs most of some activities: ``cell [3], line 7: loss.item()``, or ""."""
    line = next((line for line in causes.lines if line.cause in names), None)
    if line is None:
        return ""
    return f"{line.place}: {line.text}" if line.text else line.place
