"""Throughput and memory over the batch size as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.batch import BatchCurve
from jupyter_gpuprof.views.batch_words import POINT_HEADS, curve_facts, failure_words, point_cells
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap

_NARROWEST = 48


def batch_text(curve: BatchCurve, width: int = 100) -> str:
    """The report of one curve, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    title = wrap(f"gpuprof batch: {clean(curve.run_name)}", width)
    if curve.device.simulated:
        title.append("SIMULATED device: no real hardware was measured")
    cells = [point_cells(point, curve) for point in curve.points]
    blocks = [
        title,
        wrap(sentence(curve.sentence), width),
        fitting([POINT_HEADS, *cells], width, (0, 1, 2, 3, 4), "", (2, 3)),
        _facts(curve, width),
        _list("What failed", failure_words(curve), width),
        _list("Notes", curve.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _facts(curve: BatchCurve, width: int) -> list[str]:
    facts = [
        *curve_facts(curve),
        ("Curve", f"{clean(curve.curve_id)}, {moment(curve.started_at)}, of run {clean(curve.run_id)}"),
    ]
    return [line for name, words in facts for line in wrap(words, width, f"{name:<15}", " " * 15)]


def _list(title: str, items: Sequence[str], width: int) -> list[str]:
    return [title, *bullet_lines(items, width)] if items else []
