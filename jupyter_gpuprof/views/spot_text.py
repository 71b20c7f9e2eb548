"""A decision on spot capacity as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.spot import SpotDecision
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.spot_words import PLAN_HEADS, plan_cells, spot_facts

_NARROWEST = 48


def spot_text(decision: SpotDecision, width: int = 100) -> str:
    """The report of one decision, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    cells = [plan_cells(plan) for plan in decision.plans]
    facts = [
        *spot_facts(decision),
        ("Decision", f"{clean(decision.decision_id)}, {moment(decision.started_at)}"),
    ]
    blocks = [
        wrap(f"gpuprof spot: {clean(decision.run_name)}", width),
        wrap(sentence(decision.sentence), width),
        bullet_lines(decision.reasons, width),
        fitting([PLAN_HEADS, *cells], width, (), "", (3, 2, 4)),
        [line for name, words in facts for line in wrap(words, width, f"{name:<15}", " " * 15)],
        _list("Notes", decision.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _list(title: str, items: Sequence[str], width: int) -> list[str]:
    return [title, *bullet_lines(items, width)] if items else []
