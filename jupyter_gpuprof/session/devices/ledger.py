"""From the ledger file to the report over it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast, get_args

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.ledger_report import report
from jupyter_gpuprof.analysis.repeats import repeat_sentences, repeated
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.ledger import By, LedgerReport
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.store.ledger import ledger_sums
from jupyter_gpuprof.store.runs import recent_runs

#: So many of the last runs are looked at for preprocessing that was repeated.
_LOOKED_AT = 300


def ledger_report(
    by: str = "notebook", since_s: float | None = None, price: float | None = None, path: Path | None = None
) -> LedgerReport:
    """Where the GPU-hours went.

    Args:
        by: "notebook", "device", "user" or "day".
        since_s: only the last so many seconds; None for all.
        price: of one device hour.
        path: another file than `database_path`.

    Raises:
        OptionError: there is no such `by`, time or price.
        LedgerError: the ledger cannot be read.
    """
    if by not in get_args(By):
        raise OptionError(f"The ledger is summed by {', '.join(get_args(By))}, not by {by!r}.")
    if since_s is not None and not since_s > 0:
        raise OptionError(f"The ledger is summed over a time above 0, not {since_s:g} s.")
    if price is not None and not 0 <= price < float("inf"):
        raise OptionError(f"A device hour costs a number from 0 on, not {price:g}.")
    key = cast(By, by)
    since_unix_s = 0.0 if since_s is None else max(clock.unix_ns() * 1e-9 - since_s, 0.0)
    sums, devices = ledger_sums(key, since_unix_s=since_unix_s, path=path)
    cost = Missing("no price was given") if price is None else price
    found = report(sums, key, devices=devices, price=cost)
    return replace(found, notes=found.notes + _repeats(since_unix_s, path))


def _repeats(since_unix_s: float, path: Path | None) -> tuple[str, ...]:
    """What was computed again and again by the last runs."""
    since = datetime.fromtimestamp(since_unix_s, timezone.utc).isoformat()
    runs = [run for run in recent_runs(_LOOKED_AT, path) if run.started_at >= since]
    return repeat_sentences(repeated(runs))
