"""The report of a sweep as HTML: self-contained, without scripts."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sweep import SweepReport, hours
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.markup import (
    bullets,
    fragment,
    head_row,
    line_breaks,
    plain,
    row_cells,
    table,
)
from jupyter_gpuprof.views.sweep_svg import sweep_svg
from jupyter_gpuprof.views.sweep_words import HEADS, facts, rows

_NUMBERS = (2, 3, 5)


def sweep_html(report: SweepReport, key: str = "") -> str:
    """The report as a fragment that a notebook can show and save.

    Args:
        report: of the study.
        key: of a live figure, which hides the still picture where it is drawn.
    """
    body = "".join(
        "<tr>"
        + row_cells((escape(cell), "jp-gpuprof-num" if i in _NUMBERS else "") for i, cell in enumerate(row))
        + "</tr>"
        for row in rows(report)
    )
    still = f" data-gpuprof-still='{escape(key)}'" if key else ""
    return fragment(
        f"Sweep {clean(report.sweep.study)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(report.sweep.study)}</span> "
        f"<span>{escape(moment(report.made_at))}</span></div>",
        _headline(report),
        f"<div class='jp-gpuprof-wide'{still}>{sweep_svg(report)}</div>",
        table(head_row(HEADS, _NUMBERS), body, "jp-gpuprof-below") if body else "",
        _details(report),
    )


def _headline(report: SweepReport) -> str:
    losing = "n/a" if isinstance(report.losing_s, Missing) else hours(report.losing_s)
    return (
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(report.sentence))}</p></div>"
        f"<div class='jp-gpuprof-figures'><p><b>{escape(hours(report.spent_s))}</b><span>GPU-hours</span></p>"
        f"<p><b>{escape(losing)}</b><span>while losing</span></p></div></div>{bullets(report.reasons)}"
    )


def _details(report: SweepReport) -> str:
    told = [
        *((name, escape(words)) for name, words in facts(report)),
        ("Notes", line_breaks(report.sweep.notes)),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in told if words)
    return f"<dl class='jp-gpuprof-below'>{terms}</dl>"
