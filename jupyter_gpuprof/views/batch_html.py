"""Throughput and memory over the batch size as HTML: self-contained, without scripts."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint
from jupyter_gpuprof.views.batch_svg import batch_svg
from jupyter_gpuprof.views.batch_words import POINT_HEADS, curve_facts, failure_words, point_cells
from jupyter_gpuprof.views.format import clean, moment, number, sentence
from jupyter_gpuprof.views.markup import (
    SIMULATED,
    bullet_section,
    fragment,
    head_row,
    hinted,
    line_breaks,
    plain,
    row_cells,
    table,
)

_NUMBERS = (0, 1, 2, 3, 4)


def batch_html(curve: BatchCurve) -> str:
    """The report of one curve as a fragment that a notebook can show and save."""
    rows = "".join(_row(point, curve) for point in curve.points)
    return fragment(
        f"Batch sizes of {clean(curve.run_name)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(curve.run_name)}</span> "
        f"<span>{escape(moment(curve.started_at))}</span></div>",
        SIMULATED if curve.device.simulated else "",
        _conclusion(curve),
        f"<div class='jp-gpuprof-wide'>{batch_svg(curve)}</div>",
        table(head_row(POINT_HEADS, _NUMBERS), rows, "jp-gpuprof-below"),
        bullet_section("What failed", failure_words(curve)),
        _details(curve),
    )


def _conclusion(curve: BatchCurve) -> str:
    figures = ((curve.plateau_batch, "plateau"), (curve.largest_batch, "largest that fits"))
    figures_html = "".join(
        f"<p><b>{hinted(escape(number(reading)), reading)}</b><span>{name}</span></p>"
        for reading, name in figures
    )
    return (
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        "<p class='jp-gpuprof-label' role='heading' aria-level='3'>Batch sizes</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(curve.sentence))}</p></div>"
        f"<div class='jp-gpuprof-figures'>{figures_html}</div></div>"
    )


def _row(point: BatchPoint, curve: BatchCurve) -> str:
    batch, *numbers, outcome = (escape(cell) for cell in point_cells(point, curve))
    cells = [*((cell, "jp-gpuprof-num") for cell in numbers), (outcome, "")]
    return f"<tr><th scope='row' class='jp-gpuprof-num'>{batch}</th>{row_cells(cells)}</tr>"


def _details(curve: BatchCurve) -> str:
    facts = [
        *((name, escape(words)) for name, words in curve_facts(curve)),
        ("Notes", line_breaks(curve.notes)),
        ("Curve", f"<code>{plain(curve.curve_id)}</code>"),
        ("Run", f"<code>{plain(curve.run_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    return f"<dl class='jp-gpuprof-below'>{terms}</dl>"
