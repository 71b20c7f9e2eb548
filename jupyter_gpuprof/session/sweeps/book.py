"""Where a study keeps what it may cost and what it has cost: its own storage, or the ledger file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import NOT_GIVEN, Sweep, SweepTerms

#: The name under which we keep things in a study's own storage.
KEY = "gpuprof"


@dataclass(frozen=True)
class TrialCost:
    """What a trial has cost, as last written.

    Args:
        is_completed: it came to its own end.
        is_useful: it came to a result, that end or a comparison at which a pruner ended it.
        last_step: of its last report.
    """

    number: int
    device_s: float
    is_completed: bool = False
    is_useful: bool = False
    last_step: Number = Missing("it has not reported")


class Book(Protocol):
    """The books of one study. Several processes may write into them at once.

    Whatever goes wrong with the storage raises its own error; the guard goes on without it.
    """

    study: str

    def facts(self) -> dict[str, Any]:
        """What is kept of the budget; empty for a study without one."""
        ...

    def keep_facts(self, facts: dict[str, Any]) -> None:
        """Keep it."""
        ...

    def costs(self) -> list[TrialCost]:
        """What all trials have cost."""
        ...

    def write(self, number: int, body: dict[str, Any]) -> None:
        """What a trial has cost until now."""
        ...

    def sweep(self) -> Sweep:
        """The whole study."""
        ...


def facts_of(terms: SweepTerms) -> dict[str, Any]:
    """The terms as a study keeps them."""
    facts: dict[str, Any] = {"began_unix_s": terms.began_unix_s}
    for name in ("gpu_hours", "expires_unix_s"):
        value = getattr(terms, name)
        if not isinstance(value, Missing):
            facts[name] = value
    return facts


def terms_of(facts: dict[str, Any]) -> SweepTerms | Missing:
    """The terms that a study keeps."""
    if "began_unix_s" not in facts:
        return Missing("the study has no budget")
    return SweepTerms(
        float(facts["began_unix_s"]),
        facts.get("gpu_hours", NOT_GIVEN),
        facts.get("expires_unix_s", NOT_GIVEN),
    )
