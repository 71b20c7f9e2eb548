"""Before and after as HTML: a bar above the other, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from jupyter_gpuprof.views.bars import part_bar
from jupyter_gpuprof.views.markup import head_row, row_cells, table
from jupyter_gpuprof.views.parts import Part
from jupyter_gpuprof.views.rows import Row
from jupyter_gpuprof.views.style import part_class

_WHEN = ("before", "after")


def pair_bars(before: Sequence[Part], after: Sequence[Part]) -> str:
    """The bar of the parts before, and under it the one after."""
    bars = zip(_WHEN, (part_bar(before), part_bar(after)), strict=True)
    pairs = (f"<span class='jp-gpuprof-soft'>{when}</span>{bar}" for when, bar in bars)
    return f"<div class='jp-gpuprof-pair'>{''.join(pairs)}</div>"


def pair_table(rows: Iterable[Row]) -> str:
    """A table of what was before, what is after, and what changed."""
    heads = head_row(("", *_WHEN, "change"), numbers=(1, 2))
    return table(heads, "".join(_pair_row(row) for row in rows))


def _pair_row(row: Row) -> str:
    key = f"<span class='jp-gpuprof-key {part_class(row.key)}'></span>" if row.key else ""
    number_class = "jp-gpuprof-num"
    cells = ((escape(row.before), number_class), (escape(row.after), number_class), (escape(row.change), ""))
    return f"<tr><th scope='row'>{key}{escape(row.name)}</th>{row_cells(cells)}</tr>"
