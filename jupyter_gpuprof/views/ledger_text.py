"""The ledger's report as plain text, and as a table for other programs."""

from __future__ import annotations

import csv
import io
import json

from jupyter_gpuprof.records.ledger import STATES, LedgerReport
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.views.format import sentence, shorten
from jupyter_gpuprof.views.ledger_words import (
    cells,
    headline,
    heads,
    loss_words,
    sentences,
    title,
)
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap

_NARROWEST = 60
_LONGEST_NAME = 40


def ledger_text(report: LedgerReport, width: int = 100) -> str:
    """The report, no line wider than `width` (or than 60, if that is more)."""
    if not report.days:
        return "The ledger is empty.\n"
    width = max(width, _NARROWEST)
    rows = [heads(report), *((shorten(name, _LONGEST_NAME), *rest) for name, *rest in _lines(report))]
    numbers = tuple(range(1, len(rows[0])))
    drop = tuple(reversed(range(4, len(rows[0]))))  # what is left of the time goes first
    blocks = [
        [f"gpuprof: {title(report)}"],
        wrap(sentence(headline(report)) + ".", width),
        fitting(rows, width, numbers, "  ", drop),
        ["Lost", *bullet_lines((loss_words(loss) for loss in report.losses), width)],
        bullet_lines(sentences(report), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def ledger_csv(report: LedgerReport) -> str:
    """One line for each group, in seconds; an empty cell where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [report.by, *(f"{state}_seconds" for state in STATES), "allocated_seconds", "coverage_ratio",
         "busy_ratio", "busy_ratio_low", "busy_ratio_high", "samples"]
    )  # fmt: skip
    for group in report.groups:
        seconds = [round(group.seconds.get(state, 0.0), 3) for state in STATES]
        ratios = (_cell(group.coverage_ratio), *_interval(group.busy_ratio))
        writer.writerow([group.key, *seconds, round(group.allocated_s, 3), *ratios, group.samples])
    return text.getvalue()


def ledger_json(report: LedgerReport) -> str:
    """The report as JSON."""
    return json.dumps(report.to_dict(), indent=2) + "\n"


def _lines(report: LedgerReport) -> list[tuple[str, ...]]:
    total = ("all", *cells(report.total, report)[1:])
    groups = [cells(group, report) for group in report.groups]
    return [*groups, total] if len(groups) > 1 else groups


def _cell(reading: float | int | Missing) -> str:
    return "" if isinstance(reading, Missing) else f"{reading:.6f}"


def _interval(reading: float | int | Estimate | Missing) -> tuple[str, str, str]:
    if isinstance(reading, Estimate):
        return _cell(reading.value), _cell(reading.low), _cell(reading.high)
    return (_cell(reading),) * 3
