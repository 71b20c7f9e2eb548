"""What a budget says while trials run: who may start, who must stop, who may still come to a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import NOT_GIVEN, BudgetDecision, RunningTrial, SweepTerms, hours

#: A trial whose next comparison is no further away than this share of the steps until it may come to it.
NEAR_RATIO = 0.1
#: It has this many times the seconds that its last steps let expect.
_PATIENCE = 1.5
_NO_STEP = Missing("no further comparison is known")


def decide(
    terms: SweepTerms,
    *,
    spent_s: float,
    devices: float,
    now_unix_s: float,
    running: Sequence[RunningTrial] = (),
    finish_by: Mapping[int, float] | None = None,
    least_s: Number = NOT_GIVEN,
) -> BudgetDecision:
    """New trials are refused first, then trials near a comparison come to it, then the rest is stopped.

    Args:
        terms: the budget.
        spent_s: device seconds of the whole study.
        devices: held now by all its trials together.
        now_unix_s: the date, in seconds since 1970.
        running: the trials that could be stopped.
        finish_by: until when trials that may still finish have time, as granted by earlier decisions.
        least_s: device seconds of the shortest trial that came to a result. Where less is left, a new
            trial would come to none.
    """
    granted = finish_by or {}
    over = _over(terms, spent_s, now_unix_s)
    if not over:
        left_s = _left_s(terms, spent_s)
        wait_s = min(
            left_s / devices if devices > 0 else math.inf,
            math.inf if isinstance(terms.expires_unix_s, Missing) else terms.expires_unix_s - now_unix_s,
        )
        wait = NOT_GIVEN if math.isinf(wait_s) else wait_s
        if not isinstance(least_s, Missing) and left_s < least_s:
            why = (
                f"The {hours(left_s)} GPU-hours that are left are fewer than the {hours(least_s)} "
                "of the shortest trial, so no new one starts."
            )
            return BudgetDecision(False, why=why, wait_s=wait)
        return BudgetDecision(True, wait_s=wait)
    finishing, stop = [], []
    for trial in running:
        seconds = granted[trial.number] - now_unix_s if trial.number in granted else seconds_to_next(trial)
        if is_near(trial.step, trial.next_step) and seconds is not None and seconds > 0:
            finishing.append((trial.number, seconds))
        else:
            stop.append(trial.number)
    words = [f"{over}: no new trial starts"]
    if finishing:
        words.append(f"{_trials(n for n, _ in finishing)} may come to the next comparison, which is near")
    if stop:
        words.append(f"{_trials(stop)} stop{'s' if len(stop) == 1 else ''}")
    wait = min((seconds for _, seconds in finishing), default=NOT_GIVEN)
    return BudgetDecision(False, tuple(stop), tuple(finishing), ", ".join(words) + ".", wait)


def is_near(step: Number, next_step: Number) -> bool:
    """Whether ``0 < next_step - step <= NEAR_RATIO * next_step``."""
    if isinstance(step, Missing) or isinstance(next_step, Missing):
        return False
    return 0 < next_step - step <= NEAR_RATIO * next_step


def seconds_to_next(trial: RunningTrial) -> float | None:
    """How long a trial has to come to its next comparison: half as long again as its pace lets expect."""
    if (
        isinstance(trial.step, Missing)
        or isinstance(trial.next_step, Missing)
        or isinstance(trial.step_s, Missing)
    ):
        return None
    return _PATIENCE * (trial.next_step - trial.step) * trial.step_s


def next_comparison(step: Number, rungs: Sequence[int], last_steps: Sequence[int]) -> Number:
    """The next rung above a step, else the end: the median of the steps at which trials completed.

    Args:
        step: of the trial's last report.
        rungs: steps at which trials are compared.
        last_steps: of the trials that completed.
    """
    if isinstance(step, Missing):
        return _NO_STEP
    ends = [*rungs, *([median(last_steps)] if last_steps else [])]
    return min((end for end in ends if end > step), default=_NO_STEP)


def halving_rungs(least: int, factor: int, rate: int, most: int = 10**7) -> tuple[int, ...]:
    """The rungs of successive halving, ``least * factor ** (rate + k)`` for k = 0, 1, ... up to `most`."""
    rungs, rung = [], least * factor**rate
    while rung <= most and factor > 1:
        rungs.append(rung)
        rung *= factor
    return tuple(rungs)


def _left_s(terms: SweepTerms, spent_s: float) -> float:
    return math.inf if isinstance(terms.gpu_hours, Missing) else terms.gpu_hours * 3600 - spent_s


def _over(terms: SweepTerms, spent_s: float, now_unix_s: float) -> str:
    if not isinstance(terms.expires_unix_s, Missing) and now_unix_s >= terms.expires_unix_s:
        return "The study has expired"
    if _left_s(terms, spent_s) <= 0:
        assert not isinstance(terms.gpu_hours, Missing)
        cap = hours(terms.gpu_hours * 3600)
        return f"The budget of {cap} GPU-hours is spent ({hours(spent_s)})"
    return ""


def _trials(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return f"trial {listed[0]}" if len(listed) == 1 else f"trials {', '.join(listed[:-1])} and {listed[-1]}"
