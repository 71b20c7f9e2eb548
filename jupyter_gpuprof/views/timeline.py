"""Steps drawn out as Bokeh figures to zoom into, for a notebook or as a page of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.ops import OpSpan, OpWindow, StepTimeline
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.format import clean, percent, seconds, sentence, why
from jupyter_gpuprof.views.op_words import bar_name, drawn_timelines, lane_name, step_words
from jupyter_gpuprof.views.style import KIND_PARTS, PART_COLOURS
from jupyter_gpuprof.views.timeline_svg import READ_AS

_MOST_FIGURES = 16
_HOW_TO = (
    "Drag over a stretch of time to zoom into it, on all ranks at once; double arrow resets."
    " Point at a bar for its name, click on the legend to hide a lane."
)
_PAGE_STYLE = """
body { margin: 0; padding: 24px 16px; background: #fff; color: #1c2126;
  font: 400 14px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1400px; margin: 0 auto; }
h1 { margin: 0; font-size: 24px; font-weight: 600; letter-spacing: -0.01em; }
p { margin: 6px 0; max-width: 100ch; }
.soft { color: #59626c; font-size: 13px; margin-bottom: 20px; }
"""
_GRID, _RAISED, _SOFT, _INK = "#dde1e6", "#f1f3f5", "#59626c", "#1c2126"
_FONT = "system-ui, sans-serif"
_COLUMNS = ("left", "right", "bottom", "top", "name", "took", "begins", "busy")
_TOOLTIPS = [("name", "@name"), ("took", "@took"), ("begins at", "@begins"), ("busy", "@busy")]


def timeline_page(run: Run) -> str:
    """The figures of `bokeh_figures` as a page of its own that needs nothing else, offline too.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: the run has no timeline.
    """
    layout, left_out = _figures(run)
    from bokeh.embed import components
    from bokeh.resources import Resources

    script, division = components(layout)
    title = f"gpuprof: {clean(run.name)}"
    notes = " ".join(words for words in (_HOW_TO, READ_AS, left_out) if words)
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style>\n"
        f"{Resources(mode='inline', components=['bokeh']).render()}\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(clean(run.name))}: {escape(run.verdict.label)}</h1>\n"
        f"<p>{escape(sentence(run.verdict.sentence))}</p>\n<p class='soft'>{escape(notes)}</p>\n"
        f"{division}\n</main>\n{script}\n</body>\n</html>\n"
    )


def bokeh_figures(run: Run) -> Any:
    """A column of figures, one per rank, whose times zoom together; for ``bokeh.io.show``.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: the run has no timeline.
    """
    return _figures(run)[0]


def _figures(run: Run) -> tuple[Any, str]:
    """The figures and a sentence on what is left out."""
    timelines, left_out = drawn_timelines(run, _MOST_FIGURES)
    if not timelines:
        reason = "" if isinstance(run.ops, OpWindow) else f": {why(run.ops)}"
        raise UsageError(f"This run has no timeline{reason}.")
    try:
        from bokeh.layouts import gridplot
        from bokeh.models import Range1d
    except ImportError as error:
        raise ImportError(
            'The timeline needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
        ) from error
    longest_ms = max(timeline.duration_s for timeline in timelines) * 1e3 or 1.0
    times = Range1d(start=0, end=longest_ms, bounds=(0, longest_ms * 1.02))
    ranks = [list(of_rank) for _, of_rank in groupby(timelines, key=lambda timeline: timeline.rank)]
    figures = [_figure(steps, times, several_ranks=len(ranks) > 1) for steps in ranks]
    _add_legend(figures)
    figures[0].height += 24
    figures[-1].height += 20
    figures[-1].xaxis.axis_label = "ms into the step"
    layout = gridplot([[plot] for plot in figures], sizing_mode="stretch_width", toolbar_location="right")
    layout.toolbar.logo = None
    return layout, left_out


def _figure(steps: Sequence[StepTimeline], times: Any, several_ranks: bool) -> Any:
    """The steps of one rank, under each other."""
    from bokeh.models import Range1d
    from bokeh.plotting import figure

    rows = sum(len(step.lanes) + 1 for step in steps)
    plot: Any = figure(
        height=24 * rows + 60,
        x_range=times,
        y_range=Range1d(start=-rows, end=0),
        tools="xbox_zoom,xpan,xwheel_zoom,reset,save",
        active_drag="xbox_zoom",
    )
    names: dict[float, str] = {}
    bars: dict[str, dict[str, list[Any]]] = {}
    top = 0.0
    for step in steps:
        _add_title(plot, top - 0.75, step_words(step, len(steps) == 1, several_ranks))
        for row, lane in enumerate(step.lanes):
            middle = top - 1.5 - row
            names[middle] = lane_name(lane.kind)
            _add_bars(bars.setdefault(lane.kind, {name: [] for name in _COLUMNS}), lane.spans, middle - 0.4)
            plot.quad(
                left=0, right=step.duration_s * 1e3, bottom=middle - 0.4, top=middle + 0.4,
                fill_color=_RAISED, line_color=None, level="underlay",
            )  # fmt: skip
        top -= len(step.lanes) + 1
    _draw_bars(plot, bars)
    _dress(plot, names)
    return plot


def _add_bars(bars: dict[str, list[Any]], spans: Iterable[OpSpan], bottom: float) -> None:
    """Append the bars of a lane to the columns of its kind."""
    for span in spans:
        row = (
            span.start_s * 1e3,
            (span.start_s + span.duration_s) * 1e3,
            bottom,
            bottom + 0.8 * max(min(span.busy_ratio, 1.0), 0.1),
            bar_name(span, 120),
            seconds(span.duration_s),
            f"{span.start_s * 1e3:,.3f} ms",
            percent(span.busy_ratio, 0),
        )
        for name, value in zip(_COLUMNS, row, strict=True):
            bars[name].append(value)


def _add_title(plot: Any, y: float, words: str) -> None:
    from bokeh.models.annotations import Label

    plot.add_layout(
        Label(
            x=0, x_units="screen", y=y, text=words, text_font=_FONT,
            text_font_size="13px", text_font_style="bold", text_color=_INK, text_baseline="middle",
        )
    )  # fmt: skip


def _draw_bars(plot: Any, bars: dict[str, dict[str, list[Any]]]) -> None:
    """The bars of all lanes, named by their kind, with what is told when one points at them."""
    from bokeh.models import HoverTool

    drawn = []
    for kind, columns in bars.items():
        part = KIND_PARTS.get(kind)
        renderer = plot.quad(
            left="left", right="right", bottom="bottom", top="top", source=columns, name=kind,
            color=PART_COLOURS["light"][part][0] if part else _SOFT, fill_alpha=0.85, line_width=0.5,
        )  # fmt: skip
        drawn.append(renderer)
    plot.add_tools(HoverTool(renderers=drawn, tooltips=_TOOLTIPS, point_policy="follow_mouse"))


def _add_legend(figures: Sequence[Any]) -> None:
    """One legend above the first figure, which hides lanes in all of them."""
    from bokeh.models.annotations import Legend, LegendItem

    of_kind: dict[str, list[Any]] = {}
    for plot in figures:
        for renderer in plot.renderers:
            if renderer.name:
                of_kind.setdefault(renderer.name, []).append(renderer)
    for first, *others in of_kind.values():
        for other in others:
            first.js_link("visible", other, "visible")
    legend: Any = Legend(
        items=[LegendItem(label=lane_name(kind), renderers=drawn[:1]) for kind, drawn in of_kind.items()],
        orientation="horizontal", click_policy="hide", location="top_left", border_line_color=None,
        margin=0, label_text_font=_FONT, label_text_font_size="12px", label_text_color=_SOFT,
    )  # fmt: skip
    figures[0].add_layout(legend, "above")


def _dress(plot: Any, names: dict[float, str]) -> None:
    """The looks of a figure; `names` are those of the lanes by their middle."""
    from bokeh.models import FixedTicker

    plot.min_border_left = 120
    plot.outline_line_color = None
    plot.yaxis.ticker = FixedTicker(ticks=list(names))
    plot.yaxis.major_label_overrides = names
    plot.yaxis.axis_line_color = plot.yaxis.major_tick_line_color = None
    plot.xaxis.axis_line_color = plot.xaxis.major_tick_line_color = _GRID
    plot.xaxis.minor_tick_line_color = None
    plot.axis.major_label_text_font = plot.axis.axis_label_text_font = _FONT
    plot.axis.major_label_text_color = plot.axis.axis_label_text_color = _SOFT
    plot.axis.major_label_text_font_size = plot.axis.axis_label_text_font_size = "12px"
    plot.axis.axis_label_text_font_style = "normal"
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_color = _GRID
