"""What a checkpoint costs as plain text for a terminal."""

from __future__ import annotations

from jupyter_gpuprof.records.spot import CheckpointCost
from jupyter_gpuprof.views.checkpoint_words import PART_HEADS, WAY_HEADS, cost_facts, part_rows, way_cells
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap

_NARROWEST = 48


def checkpoint_text(cost: CheckpointCost, width: int = 100) -> str:
    """The report of one measurement, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    title = wrap(f"gpuprof checkpoint: {clean(cost.run_name)}", width)
    if cost.device.simulated:
        title.append("SIMULATED device: no real hardware was measured")
    parts = part_rows(cost)
    facts = [*cost_facts(cost), ("Measured", f"{clean(cost.cost_id)}, {moment(cost.started_at)}")]
    blocks = [
        title,
        wrap(sentence(cost.sentence), width),
        fitting([WAY_HEADS, *map(way_cells, cost.ways)], width, (1, 2, 3, 4, 5, 6), "", (2, 4, 5)),
        fitting([PART_HEADS, *parts], width, (2, 3), "", (1,)) if parts else [],
        [line for name, words in facts for line in wrap(words, width, f"{name:<15}", " " * 15)],
        ["Notes", *bullet_lines(cost.notes, width)] if cost.notes else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"
