"""The monitor's ledger answer as a table for other programs."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.records.ledger import LedgerGroup, LedgerReport
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.server.protocol import Json
from jupyter_gpuprof.views.ledger_text import ledger_csv


def answer_csv(answer: Json) -> str:
    """One line for each group, as ``jupyter gpuprof ledger --csv`` prints it.

    Args:
        answer: of ``Monitor.ledger``.
    """
    groups = tuple(
        LedgerGroup(**{name: _reading(value) for name, value in g.items()}) for g in answer["groups"]
    )
    return ledger_csv(LedgerReport(**{**answer, "groups": groups}))


def _reading(value: Any) -> Any:
    """What `records.codec.encode` made of a reading, as the reading."""
    if isinstance(value, dict) and value.keys() == {"missing"}:
        return Missing(value["missing"])
    if isinstance(value, dict) and value.keys() == {"value", "low", "high"}:
        return Estimate(**value)
    return value
