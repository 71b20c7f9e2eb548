"""An Optuna study as our record; what we keep in it are user attributes."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from jupyter_gpuprof.records import sweep as records
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.session.sweeps.book import KEY, TrialCost, terms_of
from jupyter_gpuprof.session.sweeps.live import number_of
from jupyter_gpuprof.session.sweeps.plain import params_words

_STATES: dict[TrialState, records.TrialState] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "completed",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class OptunaBook:
    """The books of one study, in its own storage.

    Args:
        study: of Optuna.
    """

    def __init__(self, study: Study) -> None:
        self.study = str(study.study_name)
        self._study = study
        self._trials: dict[int, Any] = {}

    def facts(self) -> dict[str, Any]:
        """What is kept of the budget."""
        return dict(self._study.user_attrs.get(KEY, {}))

    def keep_facts(self, facts: dict[str, Any]) -> None:
        """Keep it."""
        self._study.set_user_attr(KEY, facts)

    def began(self, trial: Any) -> None:
        """A trial of this process, through which its costs are written."""
        self._trials[trial.number] = trial

    def refused(self, trial: Any, why: str) -> None:
        """A trial that Optuna had begun already, and that may not run."""
        began = _unix_s(trial.datetime_start)
        body = {"device_s": 0.0, "at": began, "began": began, "stopped": why, "closed": True}
        with suppress(Exception):
            trial.set_user_attr(KEY, body)

    def ended(self, number: int) -> None:
        """It is not needed any more."""
        self._trials.pop(number, None)

    def write(self, number: int, body: dict[str, Any]) -> None:
        """What a trial has cost until now."""
        trial = self._trials.get(number)
        if trial is not None:
            with suppress(UpdateFinishedTrialError):  # Optuna was told its end first: see _device_s
                trial.set_user_attr(KEY, body)

    def costs(self) -> list[TrialCost]:
        """What all trials have cost."""
        return [
            TrialCost(
                trial.number,
                _device_s(trial),
                trial.state == TrialState.COMPLETE,
                trial.state == TrialState.COMPLETE
                or (trial.state == TrialState.PRUNED and not trial.user_attrs.get(KEY, {}).get("stopped")),
                Missing("it has not reported") if trial.last_step is None else trial.last_step,
            )
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state in _STATES
        ]

    def sweep(self) -> records.Sweep:
        """The whole study."""
        return sweep_of(self._study)


def sweep_of(study: Study) -> records.Sweep:
    """An Optuna study, whether it had a budget or not."""
    trials = [t for t in study.get_trials(deepcopy=False) if t.state in _STATES and t.datetime_start]
    foreign = sum(KEY not in trial.user_attrs for trial in trials)
    notes: tuple[str, ...] = ()
    if foreign:
        notes = (
            f"{foreign} of {len(trials)} trials ran without a budget: they are counted from their beginning "
            "to their end with one device, and their reports as evenly spaced.",
        )
    return records.Sweep(
        str(study.study_name),
        _direction(study),
        terms_of(study.user_attrs.get(KEY, {})),
        tuple(_trial(trial) for trial in trials),
        notes,
    )


def _direction(study: Study) -> records.Direction | Missing:
    if len(study.directions) != 1:
        return Missing("the study has several objectives")
    return "maximize" if study.directions[0] == StudyDirection.MAXIMIZE else "minimize"


def _trial(trial: FrozenTrial) -> records.SweepTrial:
    body = trial.user_attrs.get(KEY, {})
    state = _STATES[trial.state]
    value: Number = Missing("it has no final value")
    if trial.values is not None and len(trial.values) == 1 and state == "completed":
        value = number_of(trial.values[0])
    began = _unix_s(trial.datetime_start)
    device_s = _device_s(trial)
    end: Number = Missing("it runs")
    if trial.datetime_complete is not None:
        end = _unix_s(trial.datetime_complete)
    return records.SweepTrial(
        trial.number,
        "stopped" if body.get("stopped") and state == "pruned" else state,
        began,
        end,
        device_s,
        params_words(trial.params),
        body.get("counted", "assumed"),
        _points(trial, body.get("marks") or [], began, end, device_s),
        value,
        body.get("stopped", ""),
    )


def _points(
    trial: FrozenTrial, marks: list[list[Any]], began: float, end: Number, device_s: float
) -> tuple[records.SweepPoint, ...]:
    """The reports with their moments: as marked, between two marks in proportion to their steps."""
    steps = sorted(trial.intermediate_values)
    if not steps:
        return ()
    if marks:
        at = [mark[0] for mark in marks]
        when = np.interp(steps, at, [mark[1] for mark in marks])
        spent = np.interp(steps, at, [mark[2] for mark in marks])
    else:
        share = np.arange(1, len(steps) + 1) / len(steps)
        last = began + device_s if isinstance(end, Missing) else end
        when, spent = began + share * (last - began), share * device_s
    return tuple(
        records.SweepPoint(step, number_of(trial.intermediate_values[step]), float(at_s), float(cost_s))
        for step, at_s, cost_s in zip(steps, when, spent, strict=True)
    )


def _device_s(trial: FrozenTrial) -> float:
    """What a trial has cost; where its end was not written, from its last beat on with the same devices."""
    body = trial.user_attrs.get(KEY)
    end = trial.datetime_complete
    came = trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and end is not None
    if body is None:
        return max(_unix_s(end) - _unix_s(trial.datetime_start), 0.0) if end and trial.datetime_start else 0.0
    device_s = float(body["device_s"])
    if came and not body.get("closed"):
        wall_s = body["at"] - body["began"]
        rate = device_s / wall_s if wall_s > 0 else 1.0
        device_s += rate * max(_unix_s(end) - body["at"], 0.0)
    return device_s if math.isfinite(device_s) else 0.0


def _unix_s(moment: datetime | None) -> float:
    """Optuna's moments are local ones without a zone."""
    return moment.timestamp() if moment is not None else 0.0
