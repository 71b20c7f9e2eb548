"""A curve as a Bokeh figure that is updated in place, shown live as livefigure.py says."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress
from jupyter_gpuprof.views import livefigure
from jupyter_gpuprof.views.scaling_html import scaling_html
from jupyter_gpuprof.views.scaling_series import curve_key, curve_series
from jupyter_gpuprof.views.scaling_words import banners, picture_title, ranks_noun
from jupyter_gpuprof.views.style import PART_COLOURS

# The figure has a light ground in every theme: its canvas knows nothing of the theme of the page.
_INK, _SOFT, _GRID = "#1c2126", "#59626c", "#dde1e6"
_FONT = "system-ui, sans-serif"
_LAW = PART_COLOURS["light"]["device_compute"][0]


class ScalingFigure:
    """A curve as a Bokeh figure, in `plot`, for ``bokeh.io.show``.

    Args:
        scaling: the curve, finished or not.
        progress: where the measurement stands while it goes on.

    Raises:
        ImportError: bokeh is not installed.
    """

    def __init__(self, scaling: Scaling, progress: ScalingProgress | None = None) -> None:
        try:
            from bokeh.models import ColumnDataSource
        except ImportError as error:
            raise ImportError(
                'The figure needs bokeh, which is not installed: pip install "jupyter-gpuprof[plot]"'
            ) from error
        self._sources = {
            name: ColumnDataSource(data=columns, name=f"gpuprof {name}")
            for name, columns in curve_series(scaling, progress).items()
        }
        self.plot = _plot(scaling, self._sources)

    def update(self, scaling: Scaling, progress: ScalingProgress | None = None) -> None:
        """Draw what has come since, in place."""
        for name, columns in curve_series(scaling, progress).items():
            self._sources[name].data = columns


def figure_html(scaling: Scaling, progress: ScalingProgress | None = None, *, library: bool = False) -> str:
    """The figure as a fragment, which draws itself where the page has BokehJS.

    Args:
        scaling: the curve, finished or not.
        progress: where the measurement stands while it goes on.
        library: bring BokehJS along (1.3 MB): for the first display only, never for a saved notebook.

    Raises:
        ImportError: bokeh is not installed.
    """
    return livefigure.figure_html(ScalingFigure(scaling, progress).plot, curve_key(scaling), library=library)


def report_html(scaling: Scaling, progress: ScalingProgress | None = None) -> str:
    """The report of `scaling_html`, which carries its numbers to the figures of this curve on the page."""
    pushed = livefigure.push_html(curve_series(scaling, progress), curve_key(scaling))
    return f"{scaling_html(scaling, progress)}\n{pushed}"


def _plot(scaling: Scaling, sources: dict[str, Any]) -> Any:
    from bokeh.core.properties import value
    from bokeh.models import DataRange1d, HoverTool
    from bokeh.models.annotations import Whisker
    from bokeh.plotting import figure

    plot: Any = figure(
        title="\n".join([picture_title(scaling), *banners(scaling)]),
        x_axis_type="log",
        y_axis_type="log",
        x_range=DataRange1d(range_padding=0.12),
        y_range=DataRange1d(range_padding=0.12),
        x_axis_label=ranks_noun(scaling),
        y_axis_label=f"samples/s of all {ranks_noun(scaling)} together",
        height=400,
        sizing_mode="stretch_width",
        tools="pan,box_zoom,reset,save",
    )
    at = {"x": "count", "y": "throughput"}
    plot.varea(x="count", y1="low", y2="high", source=sources["band"], fill_color=_LAW, fill_alpha=0.14)
    plot.line(
        **at, source=sources["ideal"], color=_SOFT, line_dash="dotted", line_width=2, legend_label="ideal"
    )
    plot.line(**at, source=sources["fit"], color=_LAW, line_width=2, legend_label="fitted law")
    plot.line(
        **at, source=sources["beyond"], color=_LAW, line_width=2, line_dash="dashed",
        legend_label="beyond what was measured",
    )  # fmt: skip
    plot.add_layout(
        Whisker(base="count", upper="high", lower="low", source=sources["points"], line_color=_INK)
    )
    ring = {"size": 12, "line_color": _INK, "fill_color": None, "line_width": 2}
    dots = [
        plot.scatter(**at, source=sources["points"], size=9, color=_INK, legend_label="measured"),
        plot.scatter(**at, source=sources["running"], **ring),
        plot.scatter(**at, source=sources["absent"], size=10, color=_INK, marker="x", line_width=2),
    ]
    for name, words in (("running", "running"), ("absent", "not measured")):
        plot.text(
            **at, source=sources[name], text=value(words), y_offset=-10, text_align="center",
            text_font=value(_FONT), text_font_size="12px", text_color=_SOFT,
        )  # fmt: skip
    plot.add_tools(HoverTool(renderers=dots, tooltips="@told"))
    _dress(plot)
    return plot


def _dress(plot: Any) -> None:
    """The looks of the figure."""
    from bokeh.models import FixedTicker, NumeralTickFormatter

    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.xaxis.ticker = FixedTicker(ticks=[2**i for i in range(21)])
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.grid.grid_line_color = _GRID
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = _GRID
    plot.axis.minor_tick_line_color = None
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.axis_label_text_color = plot.axis.major_label_text_color = _SOFT
    plot.title.text_color = _INK
    plot.title.text_font = plot.axis.axis_label_text_font = plot.axis.major_label_text_font = _FONT
    plot.axis.axis_label_text_font_size = plot.axis.major_label_text_font_size = "12px"
    plot.add_layout(plot.legend[0], "below")  # inside it would lie on the points
    plot.legend.orientation = "horizontal"
    plot.legend.label_text_font, plot.legend.label_text_font_size = _FONT, "12px"
    plot.legend.label_text_color, plot.legend.border_line_color = _SOFT, None
