"""A reading is a number or the reason why there is none: absent is never zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Missing:
    """There is no number, and this is why (words for a person)."""

    reason: str


@dataclass(frozen=True)
class Estimate:
    """A number with its doubt: a value and an interval of about 95 %."""

    value: float
    low: float
    high: float


#: A share of the wall time, 0 to 1, with its interval.
Share = Estimate | Missing
#: A plain number that may be unknown.
Number = float | int | Missing
