"""The cost over the interval between checkpoints as a Bokeh figure."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.spot import SpotDecision
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.views.figure_page import GRID, INK, SOFT, dress, figure_page
from jupyter_gpuprof.views.format import clean
from jupyter_gpuprof.views.spot_words import (
    CURVE_TITLE,
    axis_ticks,
    curve_marks,
    drawn_points,
    mark_words,
    spot_facts,
)
from jupyter_gpuprof.views.style import PART_COLOURS

_LINE = PART_COLOURS["light"]["device_compute"][0]
_MARKERS = {"exact": "dash", "Young": "x", "use": "circle", "today": "diamond"}


def spot_page(decision: SpotDecision) -> str:
    """The figure of `spot_figure` as a page of its own that needs nothing else, offline too.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: there is no curve.
    """
    notes = [f"{name}: {words}." for name, words in spot_facts(decision)]
    title = f"{clean(decision.run_name)}: spot capacity"
    return figure_page(title, decision.sentence, notes, spot_figure(decision))


def spot_figure(decision: SpotDecision) -> Any:
    """The curve with its flat region, and what is marked on it; for ``bokeh.io.show``.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: there is no curve.
    """
    points = drawn_points(decision)
    if not points:
        raise UsageError("This decision has no curve that could be drawn.")
    try:
        from bokeh.models import Range1d
        from bokeh.plotting import figure
    except ImportError as error:
        raise ImportError(
            'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
        ) from error
    plan = decision.plans[0]
    top = max(point.wall_ratio for point in points)
    plot: Any = figure(
        height=340,
        title=CURVE_TITLE,
        x_axis_type="log",
        x_range=Range1d(start=points[0].interval_s, end=points[-1].interval_s),
        y_range=Range1d(start=1, end=1 + 1.08 * (top - 1)),
        x_axis_label="computing between two checkpoints",
        tools="xbox_zoom,xpan,reset,save",
        active_drag="xbox_zoom",
        sizing_mode="stretch_width",
    )
    dress(plot)
    plot.ygrid.grid_line_color = GRID
    ticks = axis_ticks(points[0].interval_s, points[-1].interval_s)
    plot.xaxis.ticker = ticks
    plot.xaxis.major_label_overrides = {tick: span(tick) for tick in ticks}
    plot.toolbar.logo = None
    x = [point.interval_s for point in points]
    low, high = [point.low for point in points], [point.high for point in points]
    plot.varea(x, low, high, fill_color=_LINE, fill_alpha=0.14)
    plot.line(x, [point.wall_ratio for point in points], color=_LINE, line_width=1.5)
    _flat(plot, plan.flat_low_s, plan.flat_high_s)
    _marks(plot, decision)
    return plot


def _flat(plot: Any, low: float, high: float) -> None:
    from bokeh.models.annotations import BoxAnnotation, Label

    plot.add_layout(BoxAnnotation(left=low, right=high, fill_color=INK, fill_alpha=0.06, line_color=None))
    words = f"within 1 %: {span(low)} to {span(high)}"
    plot.add_layout(
        Label(
            x=low,
            y=plot.y_range.end,
            x_offset=6,
            y_offset=-18,
            text=words,
            text_color=SOFT,
            text_font_size="12px",
        )
    )


def _marks(plot: Any, decision: SpotDecision) -> None:
    from bokeh.models import ColumnDataSource, HoverTool

    marks = curve_marks(decision)
    source = ColumnDataSource(
        {
            "interval": [interval_s for _, interval_s, _ in marks],
            "ratio": [ratio for _, _, ratio in marks],
            "marker": [_MARKERS[name] for name, _, _ in marks],
            "words": [mark_words(decision, *mark) for mark in marks],
        }
    )
    drawn = plot.scatter("interval", "ratio", source=source, marker="marker", size=11, color=INK)
    plot.add_tools(HoverTool(renderers=[drawn], tooltips="@words"))
