"""The report of a sweep as plain text for a terminal."""

from __future__ import annotations

from jupyter_gpuprof.records.sweep import SweepReport
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.sweep_words import HEADS, MOST_ROWS, facts, rows

_NARROWEST = 48


def sweep_text(report: SweepReport, width: int = 100) -> str:
    """The report, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    cells = rows(report)
    table = fitting([HEADS, *cells], width, (2, 3, 5), "", (6, 4, 5)) if cells else []
    left_out = len(report.losses) - len(cells)
    if left_out:
        table.append(f"and {left_out} more that cost less; the {MOST_ROWS} that cost most are shown")
    told = [*facts(report), ("As of", moment(report.made_at))]
    blocks = [
        wrap(f"gpuprof sweep: {clean(report.sweep.study)}", width),
        wrap(sentence(report.sentence), width),
        bullet_lines(report.reasons, width),
        table,
        [line for name, words in told for line in wrap(words, width, f"{name:<9}", " " * 9)],
        bullet_lines(report.sweep.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"
