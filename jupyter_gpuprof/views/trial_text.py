"""Trials of a change as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.views.format import clean, code_lines, moment, shorten
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.predictions import (
    PREDICTION_HEADS,
    predicted_trials,
    prediction_cells,
    summary_words,
    unpredicted_words,
)
from jupyter_gpuprof.views.sentences import device_words
from jupyter_gpuprof.views.trial_words import (
    headline,
    lines_title,
    meaning_words,
    prediction_words,
    rounds,
    trial_rows,
    verdict_words,
)

_NARROWEST = 48


def trial_text(trial: Trial, width: int = 100) -> str:
    """The report of one trial, no line but code wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    title = wrap(f"gpuprof try: {clean(trial.run_name)}", width)
    if trial.device.simulated:
        title.append("SIMULATED device: no real hardware was measured")
    said = [headline(trial), meaning_words(trial), prediction_words(trial)]
    code = [f"    {line}" for line in code_lines(trial.lines)]
    blocks = [
        title,
        [line for words in said for line in wrap(words, width)],
        _table(trial, width),
        bullet_lines(verdict_words(trial), width),
        [lines_title(trial), *code] if code else [],
        _list("Not applied", trial.not_applied, width),
        _facts(trial, width),
        _list("Notes", trial.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def predictions_text(trials: Sequence[Trial], width: int = 120) -> str:
    """What was predicted against what was measured, in the order given (newest first)."""
    width = max(width, _NARROWEST)
    cells = [prediction_cells(trial) for trial in predicted_trials(trials)]
    short = [(when, shorten(run, 24), shorten(change, 32), *rest) for when, run, change, *rest in cells]
    table = fitting([PREDICTION_HEADS, *short], width, (3, 4), "", (1, 0)) if short else []
    blocks = [
        wrap(summary_words(trials), width),
        table,
        _list("Not predicted", unpredicted_words(trials), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _table(trial: Trial, width: int) -> list[str]:
    rows = [(row.name, row.before, row.after, row.change) for row in trial_rows(trial)]
    return fitting([("", "before", "after", "change"), *rows], width, (1, 2), "", (3,))


def _facts(trial: Trial, width: int) -> list[str]:
    ran = ", ".join(f"{letter} {step}" for letter, step in rounds(trial))
    facts = [
        ("Rounds", f"{ran} (A without the change, B with it)" if ran else "none"),
        ("Device", device_words(trial.device)),
        ("Trial", f"{clean(trial.trial_id)}, {moment(trial.started_at)}, of run {clean(trial.run_id)}"),
    ]
    return [line for name, words in facts for line in wrap(words, width, f"{name:<10}", " " * 10)]


def _list(title: str, items: Sequence[str], width: int) -> list[str]:
    return [title, *bullet_lines(items, width)] if items else []
