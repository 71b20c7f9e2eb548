"""The sections of the HTML report on gpu ops and ranks, there only where the run has them."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.ops import OpTotal, OpWindow
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.format import clean, counted, number, percent, seconds, sentence
from jupyter_gpuprof.views.markup import bullets, head_row, heading, hinted, plain, row_cells, table
from jupyter_gpuprof.views.op_words import (
    RANK_HEADS,
    chosen_rows,
    drawn_timelines,
    op_name,
    rank_marks,
    rank_readings,
    what_it_did,
    window_readings,
    window_words,
)
from jupyter_gpuprof.views.style import KIND_PARTS, part_class
from jupyter_gpuprof.views.timeline_svg import READ_AS, timeline_svg

#: Ranks in the table, and ranks drawn; the others are in the run.
MOST_ROWS, MOST_DRAWN = 16, 3
#: Characters of an op's name; its whole name is in the title.
_NAME_WIDTH, _TITLE_WIDTH = 80, 1000

_NUMBER = "jp-gpuprof-num"
_OP_HEADS = ("op", "kind", "count", "total", "of busy")
_MARK_PARTS = {"late": "exposed_communication", "starved": "exposed_input"}


def ops_section(run: Run) -> str:
    """What the device did: the window's figures and the ops that took most time."""
    ops = run.ops
    if not isinstance(ops, OpWindow):
        return ""
    figures = "".join(
        f"<p><b>{hinted(escape(percent(reading)), reading)}</b> <span>{name}</span></p>"
        for name, reading in window_readings(ops, run.device.kind == "cpu")
    )
    agreement = f"<p class='jp-gpuprof-note'>{escape(sentence(ops.agreement))}</p>" if ops.agreement else ""
    return (
        f"{heading(what_it_did(run))}<p class='jp-gpuprof-soft'>{escape(window_words(ops))}</p>"
        f"<div class='jp-gpuprof-figures'>{figures}</div>{agreement}{_top_ops(ops)}"
    )


def ranks_section(ranks: Ranks | None) -> str:
    """The ranks side by side, and what it means."""
    if ranks is None or not ranks.rows:
        return ""
    rows, left_out = chosen_rows(ranks, MOST_ROWS)
    body = "".join(_rank_row(ranks, row) for row in rows)
    heads = head_row(RANK_HEADS, numbers=range(2, len(RANK_HEADS)))
    note = f"<p class='jp-gpuprof-soft jp-gpuprof-note'>{escape(left_out)}</p>" if left_out else ""
    return (
        f"{heading(f'Ranks: {len(ranks.rows)}')}{bullets(ranks.sentences)}"
        f"{table(heads, body, 'jp-gpuprof-ranks')}{note}"
    )


def timeline_section(run: Run) -> str:
    """The steps drawn out, folded away."""
    timelines, left_out = drawn_timelines(run, MOST_DRAWN)
    if not timelines:
        return ""
    notes = " ".join(words for words in (READ_AS, left_out) if words)
    steps = counted(len(timelines), "step") if timelines[0].which != "window" else "the window"
    return (
        f"<details><summary>Timeline: {steps} drawn out</summary>"
        f"<p class='jp-gpuprof-soft jp-gpuprof-note'>{escape(notes)}</p>"
        f"<div class='jp-gpuprof-wide'>{timeline_svg(timelines)}</div></details>"
    )


def _top_ops(ops: OpWindow) -> str:
    if not ops.top_ops:
        return ""
    rows = "".join(_op_row(op) for op in ops.top_ops)
    return table(head_row(_OP_HEADS, numbers=(2, 3, 4)), rows, "jp-gpuprof-ops")


def _op_row(op: OpTotal) -> str:
    part = KIND_PARTS.get(op.kind)
    key = f"<span class='jp-gpuprof-key {part_class(part)}'></span>" if part else ""
    whole, name = clean(op.name[:_TITLE_WIDTH]), op_name(op.name, _NAME_WIDTH)
    cells = (
        (plain(op.kind), ""),
        (number(op.count), _NUMBER),
        (seconds(op.total_s), _NUMBER),
        (escape(percent(op.busy_ratio)), _NUMBER),
    )
    return f"<tr><th scope='row' title='{escape(whole)}'>{key}{escape(name)}</th>{row_cells(cells)}</tr>"


def _rank_row(ranks: Ranks, row: RankRow) -> str:
    marks = "".join(
        f" <span class='jp-gpuprof-mark {part_class(_MARK_PARTS[mark])}'>{mark}</span>"
        for mark in rank_marks(ranks, row)
    )
    label, _, also = clean(row.label).partition(", ")
    aside = f" <span class='jp-gpuprof-soft'>{escape(also)}</span>" if also else ""
    cells = [(f"{escape(label)}{aside}", "")]
    cells += [(hinted(escape(words), reading), _NUMBER) for words, reading in rank_readings(row)]
    return f"<tr><th scope='row' title='{plain(row.source)}'>{row.rank}{marks}</th>{row_cells(cells)}</tr>"
