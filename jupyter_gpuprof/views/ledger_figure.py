"""GPU-hours over days as a Bokeh figure, for a notebook or as a page of its own."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.ledger import LedgerReport
from jupyter_gpuprof.views.figure_page import GRID, dress, figure_page
from jupyter_gpuprof.views.format import percent
from jupyter_gpuprof.views.ledger_words import (
    STATE_NAMES,
    STATE_PARTS,
    headline,
    loss_words,
    sentences,
    title,
)
from jupyter_gpuprof.views.style import PART_COLOURS


def ledger_page(report: LedgerReport) -> str:
    """The figure of `ledger_figure` as a page of its own that needs nothing else, offline too.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: the ledger is empty.
    """
    notes = [f"{words}." for words in (*map(loss_words, report.losses), *sentences(report))]
    figure = ledger_figure(report)
    return figure_page(title(report), f"{headline(report)}.", notes, figure)


def ledger_figure(report: LedgerReport) -> Any:
    """Stacked GPU-hours of each day by state; for ``bokeh.io.show``.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: the ledger is empty.
    """
    if not report.days:
        raise UsageError("The ledger is empty.")
    try:
        from bokeh.models import FactorRange, HoverTool
        from bokeh.plotting import figure
    except ImportError as error:
        raise ImportError(
            'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
        ) from error
    days = [day.key for day in report.days]
    states = [state for state in STATE_PARTS if report.total.seconds.get(state, 0.0) > 0]
    columns: dict[str, list[Any]] = {"day": days, "ratio": [percent(day.busy_ratio) for day in report.days]}
    for state in states:
        columns[state] = [day.seconds.get(state, 0.0) / 3600 for day in report.days]
    plot: Any = figure(
        height=320,
        x_range=FactorRange(factors=days),
        sizing_mode="stretch_width",
        title="GPU-hours by day",
        tools="xpan,xwheel_zoom,reset,save",
    )
    bars = plot.vbar_stack(
        states,
        x="day",
        width=0.8,
        source=columns,
        color=[PART_COLOURS["light"][STATE_PARTS[state]][0] for state in states],
        line_color=None,
        legend_label=[STATE_NAMES[state] for state in states],
        name=list(states),
    )
    for state, bar in zip(states, bars, strict=True):
        tips = [
            ("day", "@day"),
            (STATE_NAMES[state], f"@{state}{{0.0}} GPU-hours"),
            ("busy of allocated", "@ratio"),
        ]
        plot.add_tools(HoverTool(renderers=[bar], tooltips=tips))
    dress(plot)
    plot.y_range.start = 0
    plot.ygrid.grid_line_color = GRID
    plot.xaxis.major_label_orientation = 0.7 if len(days) > 7 else 0
    plot.yaxis.axis_label = "GPU-hours"
    plot.legend.orientation = "horizontal"
    plot.legend.border_line_color = None
    plot.add_layout(plot.legend[0], "above")
    plot.toolbar.logo = None
    return plot
