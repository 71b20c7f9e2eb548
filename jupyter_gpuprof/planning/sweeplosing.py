"""Which device time went into trials that were losing already.

A report loses if its value is worse than the median of what earlier trials had reported at the same step
(the running median), with at least `LEAST_TRIALS` of them; with fewer it is not known. The report that begins
a stretch of device time decides about that stretch.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import Direction, Sweep, SweepTrial, TrialLoss

#: So many other trials must have reported at a step before their median says anything. Optuna's median pruner
#: waits for as many.
LEAST_TRIALS = 5
_NEVER = Missing("it never was")


def is_losing(value: Number, others: Sequence[Number], direction: Direction) -> bool | Missing:
    """Whether a value is worse than the median of the others at the same step.

    Args:
        value: of the trial; missing (it reported NaN) is worse than any number.
        others: the values of other trials at that step.
        direction: which values are better.
    """
    if len(others) < LEAST_TRIALS:
        return Missing(f"fewer than {LEAST_TRIALS} trials have come to this step")
    return _size(value, direction) > median(_size(other, direction) for other in others)


def losses(sweep: Sweep) -> tuple[TrialLoss, ...]:
    """What of each trial's device time went on while it was losing.

    The reports are gone through in the order of time, so that each is compared with what was known then.
    """
    verdicts: dict[tuple[int, int], bool | Missing] = {}
    if not isinstance(sweep.direction, Missing):
        known: defaultdict[int, list[float]] = defaultdict(list)
        for _, number, index, step, value in sorted(
            (point.at_unix_s, trial.number, index, point.step, _size(point.value, sweep.direction))
            for trial in sweep.trials
            for index, point in enumerate(trial.points)
        ):
            others = known[step]
            if len(others) >= LEAST_TRIALS:
                verdicts[number, index] = value > _middle(others)
            insort(others, value)
    return tuple(_loss(trial, verdicts) for trial in sweep.trials)


def better(a: float, b: float, direction: Direction) -> bool:
    """Whether a is better than b."""
    return a < b if direction == "minimize" else a > b


def _loss(trial: SweepTrial, verdicts: dict[tuple[int, int], bool | Missing]) -> TrialLoss:
    end_s = _spent_s(trial)
    losing_s = judged_s = saved_s = 0.0
    losing_from: Number = _NEVER
    for index, point in enumerate(trial.points):
        verdict = verdicts.get((trial.number, index))
        if verdict is None:
            continue
        until_s = trial.points[index + 1].device_s if index + 1 < len(trial.points) else end_s
        stretch_s = max(until_s - point.device_s, 0.0)
        judged_s += stretch_s
        if verdict:
            losing_s += stretch_s
            if isinstance(losing_from, Missing):
                losing_from, saved_s = point.step, max(end_s - point.device_s, 0.0)
    if judged_s == 0.0 and isinstance(losing_from, Missing):
        losing_from = Missing("too few trials have come to its steps")
    return TrialLoss(
        trial.number,
        trial.params,
        trial.state,
        trial.device_s,
        trial.value,
        losing_s,
        judged_s,
        losing_from,
        saved_s,
    )


def _spent_s(trial: SweepTrial) -> float:
    if not isinstance(trial.device_s, Missing):
        return trial.device_s
    return trial.points[-1].device_s if trial.points else 0.0


def _size(value: Number, direction: Direction) -> float:
    """The value so that larger is worse."""
    if isinstance(value, Missing) or not math.isfinite(value):
        return math.inf
    return float(value) if direction == "minimize" else -float(value)


def _middle(ordered: Sequence[float]) -> float:
    """The median of what is in order already."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
