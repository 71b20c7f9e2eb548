"""The books of a plain loop (and of Ray Tune), in the ledger file."""

from __future__ import annotations

import sqlite3
from typing import Any, cast, get_args

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sweep import Direction, Sweep, SweepPoint, SweepTrial, TrialState
from jupyter_gpuprof.session.sweeps.book import TrialCost, terms_of
from jupyter_gpuprof.store.sweeps import SweepFile

_NO_DIRECTION = Missing("which values are better is not known")
_NAN = Missing("it reported no finite number")


class PlainBook:
    """The books of one study in the ledger file; where that cannot be written, numbers are only ours.

    Args:
        study: its name.
        file: another one than the ledger's.
    """

    def __init__(self, study: str, file: SweepFile | None = None) -> None:
        self.study = study
        self._file = file or SweepFile(study)
        self._next = 0

    def facts(self) -> dict[str, Any]:
        """What is kept of the budget."""
        return self._file.facts()

    def keep_facts(self, facts: dict[str, Any]) -> None:
        """Keep it."""
        self._file.keep_facts(facts)

    def begin(self, body: dict[str, Any]) -> int:
        """The number of a new trial."""
        try:
            number = self._file.begin(body)
        except (OSError, sqlite3.Error):
            number = self._next
        self._next = number + 1
        return number

    def write(self, number: int, body: dict[str, Any]) -> None:
        """What a trial has cost until now."""
        self._file.write(number, body)

    def costs(self) -> list[TrialCost]:
        """What all trials have cost."""
        return [
            TrialCost(
                number,
                float(body.get("device_s", 0.0)),
                body.get("state") == "completed",
                body.get("state") == "completed",
                body["marks"][-1][0] if body.get("marks") else Missing("it has not reported"),
            )
            for number, body in self._file.trials()
        ]

    def sweep(self) -> Sweep:
        """The whole study."""
        facts = self._file.facts()
        direction = facts.get("direction")
        return Sweep(
            self.study,
            cast(Direction, direction) if direction in get_args(Direction) else _NO_DIRECTION,
            terms_of(facts),
            tuple(_trial(number, body) for number, body in self._file.trials()),
        )


def _trial(number: int, body: dict[str, Any]) -> SweepTrial:
    state: TrialState = body.get("state", "running")
    points = tuple(
        SweepPoint(step, _NAN if value is None else value, at, device_s)
        for step, at, device_s, value in body.get("marks", ())
    )
    value = points[-1].value if points and state == "completed" else Missing("it has no final value")
    return SweepTrial(
        number,
        state,
        body["began"],
        Missing("it runs") if state == "running" else body["at"],
        float(body.get("device_s", 0.0)),
        body.get("params", ""),
        body.get("counted", "assumed"),
        points,
        value,
        body.get("stopped", ""),
    )
