"""A fleet's report, and the what-if of a policy, as Bokeh pages that need nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.fleetreplay import Outcome, WhatIf
from jupyter_gpuprof.records.fleetreport import FleetReport
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.views.figure_page import GRID, dress, figure_page
from jupyter_gpuprof.views.fleet_svg import CURVE_PARTS, TICKS
from jupyter_gpuprof.views.fleet_words import DAYS, pooling_words, report_headline, report_title, wait
from jupyter_gpuprof.views.format import clean, known, percent
from jupyter_gpuprof.views.style import PART_COLOURS

_LIGHT = {key: colours[0] for key, colours in PART_COLOURS["light"].items()}
_NEEDED = 'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'


def fleet_page(report: FleetReport) -> str:
    """Use over the week, waits and how busy the hours were, to look into.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: there is nothing to draw.
    """
    try:
        from bokeh.layouts import column
    except ImportError as error:
        raise ImportError(_NEEDED) from error
    plots = [
        *([] if isinstance(report.week, Missing) else [_week(report.week)]),
        *([_waits(report)] if any(curve.time_s for curve in report.curves) else []),
        *([] if isinstance(report.histogram, Missing) else [_busy(report.histogram)]),
    ]
    if not plots:
        raise UsageError("The records have nothing that could be drawn.")
    notes = [] if isinstance(report.pooling, Missing) else pooling_words(report.pooling)
    layout = column(*plots, sizing_mode="stretch_width")
    return figure_page(report_title(report), f"{report_headline(report)}.", [*notes, *report.notes], layout)


def _week(week: Sequence[Sequence[float]]) -> Any:
    from bokeh.models import FactorRange, HoverTool, LinearColorMapper, Range1d
    from bokeh.models.annotations import ColorBar
    from bokeh.palettes import Blues9
    from bokeh.plotting import figure

    most = max(value for row in week for value in row) or 1.0
    mapper = LinearColorMapper(palette=list(reversed(Blues9)), low=0, high=most)
    columns = {
        "day": [DAYS[day] for day in range(7) for _ in range(24)],
        "hour": [hour + 0.5 for _ in range(7) for hour in range(24)],
        "gpus": [value for row in week for value in row],
    }
    plot: Any = figure(
        height=260,
        title="GPUs in use by weekday and hour (UTC)",
        x_range=Range1d(start=0, end=24),
        y_range=FactorRange(factors=list(reversed(DAYS))),
        tools="save",
        sizing_mode="stretch_width",
    )
    drawn = plot.rect(
        "hour",
        "day",
        width=0.96,
        height=0.92,
        source=columns,
        line_color=None,
        fill_color={"field": "gpus", "transform": mapper},
    )
    plot.add_tools(HoverTool(renderers=[drawn], tooltips="@day @hour{0}:00, @gpus{0,0.0} GPUs"))
    plot.add_layout(ColorBar(color_mapper=mapper, width=8), "right")
    dress(plot)
    plot.xaxis.ticker = list(range(0, 25, 6))
    plot.xaxis.major_label_overrides = {hour: f"{hour}:00" for hour in range(0, 25, 6)}
    plot.toolbar.logo = None
    return plot


def _waits(report: FleetReport) -> Any:
    from bokeh.models import HoverTool, NumeralTickFormatter, Range1d
    from bokeh.plotting import figure

    plot: Any = figure(
        height=340,
        title="Jobs that still wait, by the time since they were submitted",
        x_axis_type="log",
        y_range=Range1d(start=0, end=1.02),
        tools="xbox_zoom,xpan,reset,save",
        sizing_mode="stretch_width",
    )
    for curve, part in zip(report.curves, CURVE_PARTS, strict=False):
        if not curve.time_s:
            continue
        x = [0.5, *(max(time_s, 0.5) for time_s in curve.time_s)]  # a log axis has no 0
        y = [1.0, *curve.waiting_ratio]
        line = plot.step(
            x, y, mode="after", color=_LIGHT[part], line_width=1.5, legend_label=clean(curve.key)
        )
        plot.add_tools(
            HoverTool(renderers=[line], tooltips=f"{clean(curve.key)}: @y{{0.0%}} after @x{{0}} s")
        )
    dress(plot)
    plot.ygrid.grid_line_color = GRID
    plot.yaxis.ticker = [0, 0.1, 0.5, 1]  # where half and nine of ten have started
    plot.yaxis.formatter = NumeralTickFormatter(format="0 %")
    plot.xaxis.ticker = list(TICKS)
    plot.xaxis.major_label_overrides = {tick: span(tick) for tick in TICKS}
    plot.legend.click_policy, plot.legend.border_line_color = "hide", None
    plot.add_layout(plot.legend[0], "right")
    plot.toolbar.logo = None
    return plot


def _busy(histogram: Sequence[float]) -> Any:
    from bokeh.models import HoverTool, NumeralTickFormatter, Range1d
    from bokeh.plotting import figure

    plot: Any = figure(
        height=260,
        title="GPU-hours by the share in which the device worked",
        x_range=Range1d(start=0, end=1),
        tools="save",
        sizing_mode="stretch_width",
    )
    left = [i / 10 for i in range(10)]
    columns = {"left": left, "right": [edge + 0.095 for edge in left], "hours": list(histogram)}
    bars = plot.quad(
        left="left",
        right="right",
        bottom=0,
        top="hours",
        source=columns,
        line_color=None,
        fill_color=_LIGHT["device_compute"],
    )
    plot.add_tools(HoverTool(renderers=[bars], tooltips="@hours{0,0.0} GPU-hours"))
    dress(plot)
    plot.xaxis.formatter = NumeralTickFormatter(format="0 %")
    plot.y_range.start = 0
    plot.toolbar.logo = None
    return plot


def what_if_page(points: Sequence[WhatIf], title: str) -> str:
    """Wait, use and cost over the size of the pool, a curve for each way of sharing; the legend hides them.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: no pool of these sizes could run the jobs.
    """
    if not points:
        raise UsageError("No pool of these sizes could run the jobs.")
    try:
        from bokeh.layouts import column
    except ImportError as error:
        raise ImportError(_NEEDED) from error
    ways = sorted({(point.guaranteed_ratio, point.borrow_ratio) for point in points}, reverse=True)
    wait_plot = _over_size(points, ways, "p90 queue wait in seconds", lambda one: known(one.waits.p90_s))
    rest = [
        _over_size(points, ways, "% of the pool in use", lambda one: _percent(one.used_ratio), wait_plot),
        _over_size(
            points, ways, "cost of a useful GPU-hour", lambda one: known(one.money_per_useful_hour), wait_plot
        ),
    ]
    layout = column(wait_plot, *rest, sizing_mode="stretch_width")
    words = "What the size of the pool, guarantees and borrowing do to waits, use and cost"
    return figure_page(f"What if: {clean(title)}", f"{words}.", ["the legend hides and shows curves"], layout)


def _over_size(
    points: Sequence[WhatIf],
    ways: Sequence[tuple[float, float]],
    title: str,
    value: Callable[[Outcome], float | None],
    above: Any = None,
) -> Any:
    from bokeh.models import ColumnDataSource, HoverTool
    from bokeh.plotting import figure

    shared = {} if above is None else {"x_range": above.x_range}
    plot: Any = figure(
        height=280,
        title=title,
        x_axis_label="GPUs",
        tools="reset,save",
        sizing_mode="stretch_width",
        **shared,
    )
    for i, (way, part) in enumerate(zip(ways, CURVE_PARTS, strict=False)):
        some = [point.outcome for point in points if (point.guaranteed_ratio, point.borrow_ratio) == way]
        source = ColumnDataSource(
            {
                "gpus": [one.gpus for one in some],
                "value": [math.nan if value(one) is None else value(one) for one in some],
                "words": [_words(one) for one in some],
            }
        )
        name = f"{percent(way[0], 0)} of the guarantees, {'' if way[1] else 'no '}borrowing"
        colour, size = _LIGHT[part], 12 - 2 * i  # a point shows those that it covers as rings
        plot.line("gpus", "value", source=source, color=colour, line_width=1.5, legend_label=name)
        drawn = plot.scatter("gpus", "value", source=source, color=colour, size=size, legend_label=name)
        plot.add_tools(HoverTool(renderers=[drawn], tooltips="@words"))
    dress(plot)
    plot.y_range.start = 0
    plot.ygrid.grid_line_color, plot.toolbar.logo = GRID, None
    plot.legend.click_policy, plot.legend.border_line_color = "hide", None
    plot.add_layout(plot.legend[0], "right")
    return plot


def _percent(ratio: Number) -> float | None:
    return None if isinstance(ratio, Missing) else 100 * ratio


def _words(one: Outcome) -> str:
    return (
        f"{one.gpus} GPUs: p90 {wait(one.waits.p90_s, one.waits)}, {percent(one.used_ratio)} in use,"
        f" {one.stopped:,} times stopped, {one.never:,} never placed"
    )
