"""Durations and shares in the sentences of a decision, no more exact than they are known."""

from __future__ import annotations

import math

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spot import Range

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def span(seconds: float) -> str:
    """A duration in one unit, two figures or all before the point: ``15 min``, ``2.5 h``, ``110 s``."""
    fitting = ((size, unit) for size, unit in _UNITS if seconds >= 2 * size or seconds == size)
    size, unit = next(fitting, (1.0, "s") if seconds >= 1 else (1e-3, "ms"))
    value = seconds / size
    text = f"{value:.0f}" if value >= 10 else f"{value:.2g}"
    return f"{text} {unit}"


def span_range(what: Range) -> str:
    """A duration with its doubt: ``24 h (4.3 h to 39 d)``, ``more than 8 h``."""
    if isinstance(what.value, Missing):
        return f"more than {_span(what.low)}"
    if what.low == what.value == what.high:
        return span(float(what.value))
    return f"{span(float(what.value))} ({_span(what.low)} to {_span(what.high)})"


def percent(share: float) -> str:
    """A share of 0 to 1: ``4.2 %``, ``46 %``."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def percent_range(what: Range) -> str:
    """A share with its doubt: ``46 % (41 to 60 %)``, ``at most 46 %``."""
    low, high = _finite(what.low), _finite(what.high)
    if isinstance(what.value, Missing):
        return f"at most {percent(high)}" if high is not None else "not bounded"
    if what.low == what.value == what.high:
        return percent(float(what.value))
    ends = f"{percent(low)}" if low is not None else "?"
    return (
        f"{percent(float(what.value))} ({ends} to {percent(high) if high is not None else 'without bound'})"
    )


def _span(number: Number) -> str:
    return "?" if isinstance(number, Missing) else span(float(number))


def _finite(number: Number) -> float | None:
    return None if isinstance(number, Missing) or not math.isfinite(number) else float(number)
