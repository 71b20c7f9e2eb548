"""Throughput and memory over the batch size as Bokeh figures, for a notebook or as a page of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint
from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.views.batch_svg import EXTRAPOLATED, PEAK_TITLE, RATE_TITLE
from jupyter_gpuprof.views.batch_words import (
    axis_top,
    curve_facts,
    fit_curve,
    fitted_points,
    lost_points,
    point_words,
    rated_points,
)
from jupyter_gpuprof.views.figure_page import GRID, INK, SOFT, dress, figure_page
from jupyter_gpuprof.views.format import byte_size, clean, known, number, percent
from jupyter_gpuprof.views.style import PART_COLOURS

_RATE = PART_COLOURS["light"]["device_compute"][0]
_GIB = 2.0**30


def batch_page(curve: BatchCurve) -> str:
    """The figures of `batch_figure` as a page of its own that needs nothing else, offline too.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: no batch size gave a number.
    """
    notes = [f"{name}: {words}." for name, words in curve_facts(curve)]
    return figure_page(f"{clean(curve.run_name)}: batch sizes", curve.sentence, notes, batch_figure(curve))


def batch_figure(curve: BatchCurve) -> Any:
    """Throughput above memory on one axis of batch sizes; for ``bokeh.io.show``.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: no batch size gave a number.
    """
    rates, peaks = rated_points(curve), fitted_points(curve)
    if not rates and not peaks:
        raise UsageError("No batch size of this curve gave a number that could be drawn.")
    try:
        from bokeh.layouts import gridplot
        from bokeh.models import Range1d
    except ImportError as error:
        raise ImportError(
            'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
        ) from error
    sizes, lost = _sizes(curve), lost_points(curve)
    last = max([*sizes, *(batch for batch, _ in fit_curve(curve)[1])])
    batches = Range1d(start=sizes[0] / 1.3, end=last * 1.3)
    plots = []
    if rates:
        plots.append(_rate_plot(curve, rates, batches))
    if peaks:
        plots.append(_peak_plot(curve, peaks, batches))
    for plot in plots:
        plot.xaxis.ticker = sizes
        plot.xaxis.major_label_overrides = {size: number(size) for size in sizes} | {
            point.batch_size: f"{point.batch_size:,}\n{point.outcome}" for point in lost
        }
    plots[-1].xaxis.axis_label = "batch size"
    layout = gridplot([[plot] for plot in plots], sizing_mode="stretch_width", toolbar_location="right")
    layout.toolbar.logo = None
    return layout


def _rate_plot(curve: BatchCurve, rates: Sequence[tuple[BatchPoint, Estimate]], batches: Any) -> Any:
    """Throughput: circles on a line, with a bar for each interval."""
    from bokeh.models import ColumnDataSource
    from bokeh.models.annotations import Span, Whisker

    values = [(known(rate.low) or 0.0, rate.value, known(rate.high) or rate.value) for _, rate in rates]
    plot = _plot(RATE_TITLE, batches, axis_top((max(row) for row in values), 1.08))
    source = ColumnDataSource(
        {
            "batch": [point.batch_size for point, _ in rates],
            "low": [low for low, _, _ in values],
            "rate": [value for _, value, _ in values],
            "high": [high for _, _, high in values],
            "words": [point_words(point) for point, _ in rates],
        }
    )
    plot.line("batch", "rate", source=source, color=_RATE, line_width=1.5)
    circles = plot.scatter("batch", "rate", source=source, marker="circle", size=9, color=_RATE)
    bar: Any = Whisker(base="batch", lower="low", upper="high", source=source, line_color=_RATE)
    bar.upper_head.line_color = bar.lower_head.line_color = _RATE
    plot.add_layout(bar)
    _point_out(plot, circles)
    plateau = known(curve.plateau_batch)
    if plateau is not None:
        plot.add_layout(Span(location=plateau, dimension="height", line_color=SOFT, line_dash="dotted"))
        plot.add_layout(_label(plateau, 0.0, f"stops growing at {number(plateau)}"))
    return plot


def _peak_plot(curve: BatchCurve, peaks: Sequence[BatchPoint], batches: Any) -> Any:
    """Memory: squares, the fit, the device's memory, and a cross for what ran out of it."""
    from bokeh.models import CustomJSTickFormatter
    from bokeh.models.annotations import Span

    inner, outer = fit_curve(curve)
    sizes = [known(point.peak_bytes) or 0.0 for point in peaks]
    capacity = known(curve.device.memory_bytes) or 0.0
    tallest = max([*sizes, capacity, *(peak for _, peak in outer)]) / _GIB
    plot = _plot(PEAK_TITLE + (EXTRAPOLATED if outer else ""), batches, axis_top([tallest], 1.2))
    plot.yaxis.formatter = CustomJSTickFormatter(code="return tick ? tick.toPrecision(3) * 1 + ' GiB' : '0'")
    for line, dash in ((inner, "solid"), (outer, "dashed")):
        if line:
            batch, peak = zip(*line, strict=True)
            plot.line(batch, [value / _GIB for value in peak], color=INK, line_dash=dash, line_width=1.5)
    _point_out(plot, _marks(plot, peaks, [size / _GIB for size in sizes], "square"))
    gone = [point for point in lost_points(curve) if point.outcome == "out of memory"]
    if gone:
        _point_out(plot, _marks(plot, gone, [1.1 * (capacity / _GIB or tallest)] * len(gone), "x"))
    if capacity:
        told = (
            (1.0, "solid", f"the device's {byte_size(capacity)}", 3),
            (curve.until_memory, "dotted", f"{percent(curve.until_memory, 0)} of it", -16),
        )
        for share, dash, words, lift in told:
            height = share * capacity / _GIB
            plot.add_layout(Span(location=height, dimension="width", line_color=INK, line_dash=dash))
            plot.add_layout(_label(batches.start, height, words, lift))
    largest = known(curve.largest_batch)
    if largest is not None and largest <= batches.end and inner:
        line = inner + outer
        height = min(line, key=lambda at: abs(at[0] - largest))[1] / _GIB
        plot.scatter([largest], [height], marker="diamond", size=14, fill_color=None, line_color=INK)
        plot.add_layout(_label(largest, height, f"{number(largest)} fits", -18))
    return plot


def _plot(title: str, batches: Any, top: float) -> Any:
    from bokeh.models import Range1d
    from bokeh.plotting import figure

    plot: Any = figure(
        height=280,
        title=title,
        x_axis_type="log",
        x_range=batches,
        y_range=Range1d(start=0, end=top),
        tools="xbox_zoom,xpan,reset,save",
        active_drag="xbox_zoom",
    )
    dress(plot)
    plot.ygrid.grid_line_color = GRID
    return plot


def _marks(plot: Any, points: Sequence[BatchPoint], heights: Sequence[float], marker: str) -> Any:
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource(
        {
            "batch": [point.batch_size for point in points],
            "peak": list(heights),
            "words": [point_words(point) for point in points],
        }
    )
    return plot.scatter("batch", "peak", source=source, marker=marker, size=11, color=INK, line_width=2)


def _point_out(plot: Any, renderer: Any) -> None:
    """Tell what a mark is when one points at it."""
    from bokeh.models import HoverTool

    plot.add_tools(HoverTool(renderers=[renderer], tooltips="@words"))


def _label(x: float, y: float, words: str, lift: int = 4) -> Any:
    from bokeh.models.annotations import Label

    return Label(x=x, y=y, x_offset=6, y_offset=lift, text=words, text_font_size="12px", text_color=SOFT)


def _sizes(curve: BatchCurve) -> list[int]:
    """Every batch size that has a place on the axis."""
    return sorted({point.batch_size for point in curve.points if point.batch_size > 0})
