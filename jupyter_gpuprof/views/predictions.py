"""How good predictions have been: predicted against measured gain, the same in text and in HTML.

A gain is a ratio less 1: what is predicted to take half the time has a gain of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.views.format import clean, counted, known, moment, percent, ratio, why
from jupyter_gpuprof.views.trial_words import change_words, holds_prediction

#: The heads of the table, in the order of `prediction_cells`.
PREDICTION_HEADS = ("date", "run", "change", "predicted", "measured", "95 % interval", "holds it")

#: A predicted gain that prints as 1.00x is no ground to divide by.
_NO_GAIN = 0.005


def predicted_trials(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that were predicted."""
    return [trial for trial in trials if known(trial.predicted) is not None]


def prediction_cells(trial: Trial) -> tuple[str, ...]:
    """One trial in the table, under `PREDICTION_HEADS`."""
    return (
        moment(trial.started_at).partition(" ")[0],
        _run_words(trial),
        change_words(trial),
        ratio(trial.predicted),
        ratio(trial.ratio),
        f"{ratio(trial.ratio.low)} to {ratio(trial.ratio.high)}",
        ("yes" if holds_prediction(trial) else "no") + _simulated(trial),
    )


def unpredicted_words(trials: Sequence[Trial]) -> list[str]:
    """The trials that were not predicted, each with the reason."""
    return [
        f"{change_words(trial)} on {_run_words(trial)}{_simulated(trial)}, {moment(trial.started_at)}:"
        f" measured {ratio(trial.ratio)}; {_reason(trial)}"
        for trial in trials
        if known(trial.predicted) is None
    ]


def summary_words(trials: Sequence[Trial]) -> str:
    """How many predictions the measured interval holds, and how much of the predicted gain came true."""
    predicted = predicted_trials(trials)
    real = [trial for trial in predicted if not trial.device.simulated and known(trial.ratio) is not None]
    simulated = sum(trial.device.simulated for trial in predicted)
    if not real:
        return "No prediction yet." if not simulated else "No prediction on a real device yet."
    held = sum(map(holds_prediction, real))
    lie = "lies" if held == 1 else "lie"
    words = [f"Of {counted(len(real), 'prediction')}, {held} {lie} within the measured interval."]
    shares = [
        (trial.ratio.value - 1) / (gain - 1)
        for trial in real
        if (gain := known(trial.predicted)) is not None and abs(gain - 1) >= _NO_GAIN
    ]
    if shares:
        words.append(
            f"The median of measured over predicted gain (ratio less 1) is {percent(median(shares), 0)}."
        )
    if len(shares) < len(real):
        words.append(f"{_are(len(real) - len(shares))} not in the median: no gain was predicted.")
    if simulated:
        words.append(f"{_are(simulated)} not counted: the device was simulated.")
    return " ".join(words)


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


def _run_words(trial: Trial) -> str:
    return clean(trial.run_name) or clean(trial.run_id)


def _simulated(trial: Trial) -> str:
    return " (SIMULATED)" if trial.device.simulated else ""


def _reason(trial: Trial) -> str:
    return why(trial.predicted) if isinstance(trial.predicted, Missing) else "the prediction was no number"
