"""Bokeh figures as a page of their own, and their looks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from jupyter_gpuprof.views.format import clean, sentence

GRID, SOFT, INK = "#dde1e6", "#59626c", "#1c2126"
FONT = "system-ui, sans-serif"

_STYLE = """
body { margin: 0; padding: 24px 16px; background: #fff; color: #1c2126;
  font: 400 14px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1400px; margin: 0 auto; }
h1 { margin: 0; font-size: 24px; font-weight: 600; letter-spacing: -0.01em; }
p { margin: 6px 0; max-width: 100ch; }
.soft { color: #59626c; font-size: 13px; }
"""


def figure_page(title: str, words: str, notes: Sequence[str], layout: Any) -> str:
    """A page that needs nothing else, offline too.

    Args:
        title: what it shows, as plain text.
        words: what follows, in a sentence.
        notes: smaller sentences below.
        layout: a Bokeh model.

    Raises:
        ImportError: bokeh is not installed.
    """
    from bokeh.embed import components
    from bokeh.resources import Resources

    script, division = components(layout)
    soft = "".join(f"<p class='soft'>{escape(sentence(note))}</p>\n" for note in notes)
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'/>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n"
        f"<title>{escape(f'gpuprof: {clean(title)}')}</title>\n<style>{_STYLE}</style>\n"
        f"{Resources(mode='inline', components=['bokeh']).render()}\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(clean(title))}</h1>\n<p>{escape(sentence(words))}</p>\n{soft}"
        f"{division}\n</main>\n{script}\n</body>\n</html>\n"
    )


def dress(plot: Any) -> None:
    """The looks of a figure."""
    plot.min_border_left = 80
    plot.outline_line_color = None
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = GRID
    plot.axis.minor_tick_line_color = None
    plot.axis.major_label_text_font = plot.axis.axis_label_text_font = plot.title.text_font = FONT
    plot.axis.major_label_text_color = plot.axis.axis_label_text_color = SOFT
    plot.axis.major_label_text_font_size = plot.axis.axis_label_text_font_size = "12px"
    plot.axis.axis_label_text_font_style = "normal"
    plot.title.text_color, plot.title.text_font_size = INK, "13px"
    plot.xgrid.grid_line_color = plot.ygrid.grid_line_color = None
