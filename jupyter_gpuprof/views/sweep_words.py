"""What the report of a sweep says, the same in text, HTML and figures."""

from __future__ import annotations

from datetime import datetime, timezone

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import SweepReport, SweepTrial, TrialLoss, hours
from jupyter_gpuprof.views.format import NOT_AVAILABLE, clean, counted, known, moment, shorten, why

HEADS = ("trial", "state", "GPU-hours", "while losing", "losing from", "value", "configuration")
#: Rows of the table; what cost most comes first.
MOST_ROWS = 20
FIGURE_TITLE = "Trials over GPU-hours"
_WIDEST = 40


def rows(report: SweepReport) -> list[tuple[str, ...]]:
    """The table under `HEADS`: the trials that cost most, most first."""
    by_cost = sorted(report.losses, key=lambda loss: -(known(loss.device_s) or 0.0))
    return [_row(loss, report) for loss in by_cost[:MOST_ROWS]]


def _row(loss: TrialLoss, report: SweepReport) -> tuple[str, ...]:
    losing = NOT_AVAILABLE if loss.judged_s == 0 else hours(loss.losing_s)
    since = "-" if isinstance(loss.losing_from, Missing) else f"step {loss.losing_from}"
    best = " (best)" if loss.number == report.best else ""
    spent = known(loss.device_s)
    return (
        f"{loss.number}{best}",
        loss.state,
        NOT_AVAILABLE if spent is None else hours(spent),
        losing,
        since,
        value_words(loss.value),
        shorten(loss.params, _WIDEST),
    )


def value_words(value: Number) -> str:
    """A reported value, six figures."""
    number = known(value)
    return "-" if number is None else f"{number:.6g}"


def facts(report: SweepReport) -> list[tuple[str, str]]:
    """What the report rests on, each under its name."""
    sweep = report.sweep
    states = [t.state for t in sweep.trials]
    named = [(s, states.count(s)) for s in ("completed", "pruned", "stopped", "failed", "running")]
    told = ", ".join(f"{count} {state}" for state, count in named if count)
    found = [
        ("Trials", f"{counted(len(states), 'trial')}: {told}" if states else "none"),
        ("Budget", budget_words(report)),
        ("Counted", report.counted),
        ("Losing", losing_words(report)),
        ("Cap", f"not replayed: {why(report.cap)}" if isinstance(report.cap, Missing) else ""),
    ]
    return [(name, words) for name, words in found if words]


def budget_words(report: SweepReport) -> str:
    """What the study may cost."""
    terms = report.sweep.terms
    if isinstance(terms, Missing):
        return why(terms)
    parts = []
    cap = known(terms.gpu_hours)
    if cap is not None:
        parts.append(f"{hours(cap * 3600)} GPU-hours")
    expires = known(terms.expires_unix_s)
    if expires is not None:
        parts.append(f"until {moment(datetime.fromtimestamp(expires, timezone.utc).isoformat())}")
    return ", ".join(parts) or "no limit"


def losing_words(report: SweepReport) -> str:
    """What counts as losing here."""
    direction = report.sweep.direction
    if isinstance(direction, Missing):
        return f"not known: {why(direction)}"
    side = "above" if direction == "minimize" else "below"
    return f"a report {side} the median of what earlier trials had reported at the same step ({direction})"


def bar_words(trial: SweepTrial) -> str:
    """One trial in the figure."""
    spent = known(trial.device_s)
    told = f"trial {trial.number}, {trial.state}, {hours(spent or 0.0)} GPU-hours"
    value = value_words(trial.value)
    words = told if value == "-" else f"{told}, {value}"
    return f"{words}: {clean(trial.why)}" if trial.why else words


def bars(report: SweepReport) -> dict[str, list[object]]:
    """The figure in columns: each trial over the GPU-hours of the study, one after the other as they began.

    ``from``, ``losing`` and ``to`` are GPU-hours: its beginning, where its first losing report was (its end,
    if it has none), and its end. ``mark`` is "stopped", "pruned" or "".
    """
    columns: dict[str, list[object]] = {
        name: [] for name in ("number", "from", "losing", "to", "mark", "told", "best")
    }
    at_s = 0.0
    saved = {loss.number: loss.saved_s for loss in report.losses}
    for trial in sorted(report.sweep.trials, key=lambda trial: (trial.began_unix_s, trial.number)):
        spent_s = known(trial.device_s) or 0.0
        columns["number"].append(trial.number)
        columns["from"].append(at_s / 3600)
        columns["losing"].append((at_s + spent_s - saved.get(trial.number, 0.0)) / 3600)
        at_s += spent_s
        columns["to"].append(at_s / 3600)
        columns["mark"].append(trial.state if trial.state in ("stopped", "pruned") else "")
        columns["told"].append(bar_words(trial))
        columns["best"].append(trial.number == report.best)
    return columns
