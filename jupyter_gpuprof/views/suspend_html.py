"""A suspension, with all that must hold for one, as HTML."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.suspension import SuspendReport
from jupyter_gpuprof.views.markup import fragment, head_row, plain, row_cells, table
from jupyter_gpuprof.views.suspend_text import TITLE


def suspend_html(report: SuspendReport) -> str:
    """The report of a suspension as a fragment that a notebook can show and save."""
    cells = (
        row_cells(((escape(one.name), ""), ("yes" if one.holds else "no", ""), (plain(one.found), "")))
        for one in report.conditions
    )
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
    return fragment(
        TITLE,
        f"<p><b>{escape(TITLE)}.</b> {plain(report.sentence)}</p>",
        table(head_row(("What must hold", "Holds", "Found"), ()), rows) if rows else "",
    )
