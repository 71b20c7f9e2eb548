"""Trials of a change as HTML: self-contained, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.views.format import clean, code_lines, moment
from jupyter_gpuprof.views.markup import (
    SIMULATED,
    bullet_section,
    bullets,
    fragment,
    head_row,
    heading,
    line_breaks,
    plain,
    row_cells,
    table,
)
from jupyter_gpuprof.views.pair_html import pair_bars, pair_table
from jupyter_gpuprof.views.predictions import (
    PREDICTION_HEADS,
    predicted_trials,
    prediction_cells,
    summary_words,
    unpredicted_words,
)
from jupyter_gpuprof.views.sentences import device_words
from jupyter_gpuprof.views.trial_words import (
    change_words,
    interval_words,
    lines_title,
    meaning_words,
    prediction_words,
    result_words,
    rounds,
    trial_rows,
    variant_parts,
    verdict_words,
)

_WITH = {"A": "A without", "B": "B with"}


def trial_html(trial: Trial) -> str:
    """The report of one trial as a fragment that a notebook can show and save."""
    return fragment(
        f"Trial of {change_words(trial)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(trial.run_name)}</span> "
        f"<span>{escape(moment(trial.started_at))}</span></div>",
        SIMULATED if trial.device.simulated else "",
        _result(trial),
        bullets(verdict_words(trial)),
        _code(trial),
        heading("Before and after"),
        pair_bars(*variant_parts(trial)),
        pair_table(trial_rows(trial)),
        bullet_section("Not applied", trial.not_applied),
        _rounds(trial),
        _details(trial),
    )


def predictions_html(trials: Sequence[Trial]) -> str:
    """What was predicted against what was measured, in the order given (newest first)."""
    rows = "".join(_prediction_row(trial) for trial in predicted_trials(trials))
    heads = head_row(PREDICTION_HEADS, numbers=(3, 4, 5))
    return fragment(
        "Predicted and measured gains",
        f"<p class='jp-gpuprof-sentence'>{escape(summary_words(trials))}</p>",
        table(heads, rows, "jp-gpuprof-below") if rows else "",
        bullet_section("Not predicted", unpredicted_words(trials)),
    )


def _result(trial: Trial) -> str:
    said = " ".join(words for words in (meaning_words(trial), prediction_words(trial)) if words)
    return (
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        "<p class='jp-gpuprof-label' role='heading' aria-level='3'>"
        f"{escape(change_words(trial))}: {escape(result_words(trial))} "
        f"<span>{escape(interval_words(trial))}</span></p>"
        f"<p class='jp-gpuprof-sentence'>{escape(said)}</p></div></div>"
    )


def _code(trial: Trial) -> str:
    if not trial.lines:
        return ""
    code = escape("\n".join(code_lines(trial.lines)))
    return f"{heading(lines_title(trial))}<pre class='jp-gpuprof-code'><code>{code}</code></pre>"


def _rounds(trial: Trial) -> str:
    ran = rounds(trial)
    if not ran:
        return ""
    heads = head_row([_WITH[letter] for letter, _ in ran], numbers=range(len(ran)))
    cells = row_cells((escape(step), "jp-gpuprof-num") for _, step in ran)
    return (
        f"{heading('Rounds, in the order they ran')}{table(heads, f'<tr>{cells}</tr>', 'jp-gpuprof-narrow')}"
    )


def _details(trial: Trial) -> str:
    facts = [
        ("Device", escape(device_words(trial.device))),
        ("Notes", line_breaks(trial.notes)),
        ("Trial", f"<code>{plain(trial.trial_id)}</code>"),
        ("Run", f"<code>{plain(trial.run_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    summary = f"Details: on {clean(trial.device.name)}"
    return f"<details><summary>{escape(summary)}</summary><dl>{terms}</dl></details>"


def _prediction_row(trial: Trial) -> str:
    when, run, change, *numbers, holds = (escape(cell) for cell in prediction_cells(trial))
    text, number_class = "jp-gpuprof-text", "jp-gpuprof-num"
    cells = [(run, text), (change, text), *((cell, number_class) for cell in numbers), (holds, "")]
    return f"<tr><th scope='row'>{when}</th>{row_cells(cells)}</tr>"
