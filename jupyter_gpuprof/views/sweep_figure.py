"""The trials of a sweep over GPU-hours as a Bokeh figure, live or as a page of its own."""

from __future__ import annotations

import hashlib
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.sweep import SweepReport
from jupyter_gpuprof.views import livefigure
from jupyter_gpuprof.views.figure_page import GRID, INK, dress, figure_page
from jupyter_gpuprof.views.format import clean
from jupyter_gpuprof.views.style import PART_COLOURS
from jupyter_gpuprof.views.sweep_html import sweep_html
from jupyter_gpuprof.views.sweep_words import FIGURE_TITLE, bars, facts

_BAR = PART_COLOURS["light"]["device_compute"][0]


def sweep_series(report: SweepReport) -> dict[str, dict[str, list[object]]]:
    """The columns of the figure: "trials" as of `sweep_words.bars`, "stopped" and "best" as single points."""
    columns = bars(report)
    columns["row"] = list(range(len(columns["to"])))

    def picked(keep: list[bool]) -> dict[str, list[object]]:
        return {
            name: [v for v, kept in zip(values, keep, strict=True) if kept]
            for name, values in columns.items()
        }

    return {
        "trials": columns,
        "stopped": picked([mark == "stopped" for mark in columns["mark"]]),
        "best": picked([bool(best) for best in columns["best"]]),
    }


def sweep_page(report: SweepReport) -> str:
    """The figure as a page of its own that needs nothing else, offline too.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: there is no trial.
    """
    notes = [*report.reasons, *(f"{name}: {words}." for name, words in facts(report))]
    return figure_page(f"{clean(report.sweep.study)}: sweep", report.sentence, notes, sweep_figure(report))


def sweep_figure(report: SweepReport) -> Any:
    """One bar for each trial, its losing part pale, a cross where it was stopped; for ``bokeh.io.show``.

    Raises:
        ImportError: bokeh is not installed.
        UsageError: there is no trial.
    """
    if not report.sweep.trials:
        raise UsageError("The study has no trial yet.")
    try:
        from bokeh.models import ColumnDataSource, HoverTool
        from bokeh.plotting import figure
    except ImportError as error:
        raise ImportError(
            'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
        ) from error
    sources = {
        name: ColumnDataSource(data=columns, name=f"gpuprof {name}")
        for name, columns in sweep_series(report).items()
    }
    plot: Any = figure(
        height=360,
        title=FIGURE_TITLE,
        x_axis_label="GPU-hours of the study",
        y_axis_label="trials as they began",
        tools="xbox_zoom,xpan,reset,save",
        active_drag="xbox_zoom",
        sizing_mode="stretch_width",
    )
    bar = {"y": "row", "height": 0.8, "source": sources["trials"], "line_color": None}
    drawn = [
        plot.hbar(left="from", right="losing", color=_BAR, **bar),
        plot.hbar(left="losing", right="to", color=_BAR, fill_alpha=0.3, **bar),
        plot.scatter("to", "row", source=sources["stopped"], marker="x", size=9, color=INK, line_width=2),
        plot.scatter("to", "row", source=sources["best"], marker="star", size=12, color=INK),
    ]
    plot.add_tools(HoverTool(renderers=drawn, tooltips="@told"))
    dress(plot)
    plot.y_range.flipped = True
    plot.x_range.start = 0
    plot.xgrid.grid_line_color = GRID
    plot.toolbar.logo = None
    return plot


def sweep_key(report: SweepReport) -> str:
    """A name for this study that is safe in HTML, CSS and scripts."""
    return "gp" + hashlib.sha256(report.sweep.study.encode("utf-8", "replace")).hexdigest()[:12]


def live_figure_html(report: SweepReport, *, library: bool = False) -> str:
    """The figure as a fragment that is updated in place; see `livefigure.figure_html`."""
    return livefigure.figure_html(sweep_figure(report), sweep_key(report), library=library)


def live_report_html(report: SweepReport) -> str:
    """The report, which carries its numbers to the figures of this study on the page."""
    key = sweep_key(report)
    return f"{sweep_html(report, key)}\n{livefigure.push_html(sweep_series(report), key)}"
