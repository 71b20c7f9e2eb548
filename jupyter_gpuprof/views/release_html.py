"""Releases of the device as HTML: self-contained, without scripts."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.release import ReleaseReport
from jupyter_gpuprof.views.markup import (
    SIMULATED,
    bullets,
    fragment,
    head_row,
    heading,
    row_cells,
    table,
)
from jupyter_gpuprof.views.release_words import headline, remarks, tables


def release_html(report: ReleaseReport) -> str:
    """The report of a release, an offload or a return as a fragment that a notebook can show and save."""
    return fragment(
        f"gpuprof {report.kind}",
        SIMULATED if report.simulated else "",
        f"<p><b>{escape(headline(report))}</b></p>",
        *(heading(title) + _table(rows) for title, rows in tables(report)),
        bullets(remarks(report)),
    )


def _table(rows: list[tuple[str, str, str]]) -> str:
    cells = (
        row_cells(((escape(name), ""), (escape(size), "jp-gpuprof-num"), (escape(why), "")))
        for name, size, why in rows
    )
    return table(head_row(("Variable", "Memory", "Why"), (1,)), "".join(f"<tr>{row}</tr>" for row in cells))
