"""The ledger's report as HTML: self-contained, without scripts, with a still picture of the days."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.ledger import LedgerGroup, LedgerReport, State
from jupyter_gpuprof.views.format import clean, interval, percent, sentence
from jupyter_gpuprof.views.ledger_words import (
    STATE_NAMES,
    STATE_PARTS,
    cells,
    headline,
    heads,
    holder_name,
    hours,
    loss_words,
    sentences,
    title,
)
from jupyter_gpuprof.views.markup import bullet_section, bullets, fragment, head_row, row_cells, table
from jupyter_gpuprof.views.style import part_class

_WIDTH, _HEIGHT, _LEFT, _TOP, _AXIS = 812, 160, 56, 8, 24
_PLOT = _WIDTH - _LEFT
#: More days than this are drawn without gaps between them.
_MANY_DAYS = 90


def ledger_html(report: LedgerReport) -> str:
    """The report as a fragment that a notebook can show and save."""
    if not report.days:
        return fragment("GPU-hours", "<p class='jp-gpuprof-sentence'>The ledger is empty.</p>")
    ratio = report.total.busy_ratio
    doubt = interval(ratio)
    figure = (
        f"<p class='jp-gpuprof-figure'><b>{escape(percent(ratio))}</b>"
        f"<span>busy of allocated{escape(f' {doubt}' if doubt else '')}</span></p>"
    )
    groups = "".join(_row(group, report) for group in report.groups)
    numbers = tuple(range(1, len(heads(report))))
    return fragment(
        title(report),
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{escape(title(report))}</span></div>",
        f"<div class='jp-gpuprof-verdict {part_class('device_compute')}'><div class='jp-gpuprof-why'>"
        "<p class='jp-gpuprof-label' role='heading' aria-level='3'>Where the GPU-hours went</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(headline(report)))}.</p></div>{figure}</div>",
        f"<div class='jp-gpuprof-wide'>{days_svg(report)}</div>",
        _legend(report),
        bullet_section("Lost", [loss_words(loss) for loss in report.losses]),
        table(head_row(heads(report), numbers), groups, "jp-gpuprof-below"),
        bullets(sentences(report)),
    )


def days_svg(report: LedgerReport) -> str:
    """GPU-hours of each day by state as stacked bars, as SVG without scripts."""
    days = report.days
    most_s = max((day.capacity_s for day in days), default=0.0) or 1.0
    step = _PLOT / max(len(days), 7)
    width = step if len(days) > _MANY_DAYS else step * 0.8
    bottom = _TOP + _HEIGHT
    shapes = [
        f"<path class='jp-gpuprof-grid' d='M{_LEFT} {y:g}H{_WIDTH}'/>"
        f"<text x='{_LEFT - 8}' y='{y + 4:g}' text-anchor='end'>{escape(label)}</text>"
        for y, label in ((_TOP, hours(most_s)), (bottom, "0"))
    ]
    every = -(-len(days) // 8)
    for i, day in enumerate(days):
        x, y = _LEFT + i * step, float(bottom)
        for state, part in STATE_PARTS.items():
            height = _HEIGHT * day.seconds.get(state, 0.0) / most_s
            if height <= 0:
                continue
            y -= height
            shapes.append(
                f"<rect class='{part_class(part)}' x='{x:.5g}' y='{y:.5g}' width='{width:.4g}'"
                f" height='{height:.4g}'><title>{escape(_bar_words(day, state))}</title></rect>"
            )
        if i % every == 0:
            anchor = "start" if i == 0 else "middle"
            at = x if i == 0 else x + width / 2
            shapes.append(
                f"<text x='{at:.5g}' y='{bottom + 17}' text-anchor='{anchor}'>{escape(day.key)}</text>"
            )
    told = f"GPU-hours by day. {headline(report)}."
    return (
        f"<svg class='jp-gpuprof-chart' viewBox='0 0 {_WIDTH} {bottom + _AXIS}' role='img'"
        f" aria-label='{escape(clean(told))}'>{''.join(shapes)}</svg>"
    )


def _bar_words(day: LedgerGroup, state: State) -> str:
    seconds = day.seconds.get(state, 0.0)
    return (
        f"{day.key}, {STATE_NAMES[state]}: {hours(seconds)} GPU-hours ({percent(seconds / day.capacity_s)})"
    )


def _legend(report: LedgerReport) -> str:
    """The states that are in the picture, by colour."""
    keys = (
        f"<span><span class='jp-gpuprof-key {part_class(part)}'></span>{STATE_NAMES[state]}</span>"
        for state, part in STATE_PARTS.items()
        if report.total.seconds.get(state, 0.0) > 0
    )
    return f"<div class='jp-gpuprof-figures jp-gpuprof-soft'>{''.join(keys)}</div>"


def _row(group: LedgerGroup, report: LedgerReport) -> str:
    _, *numbers = cells(group, report)
    drawn = row_cells((escape(cell), "jp-gpuprof-num") for cell in numbers)
    return f"<tr><th scope='row'>{escape(holder_name(group.key))}</th>{drawn}</tr>"
