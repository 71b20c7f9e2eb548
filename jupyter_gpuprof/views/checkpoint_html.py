"""What a checkpoint costs as HTML: self-contained, without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from jupyter_gpuprof.records.spot import CheckpointCost
from jupyter_gpuprof.views.checkpoint_words import PART_HEADS, WAY_HEADS, cost_facts, part_rows, way_cells
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.markup import (
    SIMULATED,
    fragment,
    head_row,
    heading,
    line_breaks,
    plain,
    row_cells,
    table,
)

_WAY_NUMBERS, _PART_NUMBERS = (1, 2, 3, 4, 5, 6), (2, 3)


def checkpoint_html(cost: CheckpointCost) -> str:
    """The report of one measurement as a fragment that a notebook can show and save."""
    parts = part_rows(cost)
    ways = _rows(map(way_cells, cost.ways), _WAY_NUMBERS)
    held = table(head_row(PART_HEADS, _PART_NUMBERS), _rows(parts, _PART_NUMBERS), "jp-gpuprof-below")
    return fragment(
        f"Checkpoints of {clean(cost.run_name)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(cost.run_name)}</span> "
        f"<span>{escape(moment(cost.started_at))}</span></div>",
        SIMULATED if cost.device.simulated else "",
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        "<p class='jp-gpuprof-label' role='heading' aria-level='3'>What a checkpoint costs</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(cost.sentence))}</p></div></div>",
        table(head_row(WAY_HEADS, _WAY_NUMBERS), ways, "jp-gpuprof-below"),
        f"{heading('What it holds')}{held}" if parts else "",
        _details(cost),
    )


def _rows(rows: Iterable[tuple[str, ...]], numbers: tuple[int, ...]) -> str:
    drawn = []
    for first, *rest in rows:
        cells = [
            (escape(cell), "jp-gpuprof-num" if i in numbers else "") for i, cell in enumerate(rest, start=1)
        ]
        drawn.append(f"<tr><th scope='row'>{escape(first)}</th>{row_cells(cells)}</tr>")
    return "".join(drawn)


def _details(cost: CheckpointCost) -> str:
    facts = [
        *((name, escape(words)) for name, words in cost_facts(cost)),
        ("Notes", line_breaks(cost.notes)),
        ("Measured", f"<code>{plain(cost.cost_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    return f"<dl class='jp-gpuprof-below'>{terms}</dl>"
