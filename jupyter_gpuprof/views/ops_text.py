"""The blocks of the text report on gpu ops and ranks, there only where the run has them."""

from __future__ import annotations

from jupyter_gpuprof.records.ops import OpTotal, OpWindow
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.format import clean, known, number, percent, seconds, sentence
from jupyter_gpuprof.views.lines import bullet_lines, columns, fitting, wrap
from jupyter_gpuprof.views.op_words import (
    chosen_rows,
    op_name,
    rank_marks,
    rank_readings,
    what_it_did,
    window_readings,
    window_words,
)

#: Ranks and ops in the text; the others are in the run.
MOST_ROWS, MOST_OPS = 16, 5

_SHORTEST_NAME = 24
_RANK_HEADS = ("rank", "", "step", "input wait", "comm.", "waiting", "busy", "host gap", "verdict")


def ops_block(run: Run, width: int) -> list[str]:
    """What the device did: the window's figures and the ops that took most time."""
    ops = run.ops
    if not isinstance(ops, OpWindow):
        return []
    figures = [
        f"{name} {percent(reading)}"
        for name, reading in window_readings(ops, run.device.kind == "cpu")
        if known(reading) is not None
    ]
    lines = [what_it_did(run), *wrap(window_words(ops), width, "  "), *wrap(", ".join(figures), width, "  ")]
    if ops.agreement:
        lines += wrap(sentence(ops.agreement), width, "  ")
    if ops.top_ops:
        lines += _op_lines(ops.top_ops[:MOST_OPS], width)
    return lines


def ranks_block(ranks: Ranks | None, width: int) -> list[str]:
    """The ranks side by side, and what it means."""
    if ranks is None or not ranks.rows:
        return []
    rows, left_out = chosen_rows(ranks, MOST_ROWS)
    cells = [_RANK_HEADS, *(_rank_cells(ranks, row) for row in rows)]
    last = len(_RANK_HEADS) - 1
    # What goes first where there is no room: the verdict, the host gap, the share that is busy, ...
    table = fitting(
        cells, width, right=(0, *range(2, last)), indent="  ", drop=(last, *range(last - 1, 2, -1))
    )
    lines = [f"Ranks: {len(ranks.rows)}", *bullet_lines(ranks.sentences, width), *table]
    return lines + (wrap(left_out, width, "  ") if left_out else [])


def _op_lines(ops: tuple[OpTotal, ...], width: int) -> list[str]:
    numbers = [(number(op.count), seconds(op.total_s), percent(op.busy_ratio), clean(op.kind)) for op in ops]
    heads = ("count", "total", "of busy", "kind")
    taken = max(map(len, columns([heads, *numbers], right=(0, 1, 2), keep_end=True)))
    room = max(width - taken - 4, _SHORTEST_NAME)
    cells = [(*row, op_name(op.name, room)) for row, op in zip(numbers, ops, strict=True)]
    return fitting([(*heads, "op"), *cells], width, right=(0, 1, 2), indent="  ", drop=(3, 0))


def _rank_cells(ranks: Ranks, row: RankRow) -> tuple[str, ...]:
    marks = ", ".join(rank_marks(ranks, row))
    numbers = (words for words, _ in rank_readings(row))
    return (str(row.rank), marks, *numbers, clean(row.label).partition(", ")[0])
