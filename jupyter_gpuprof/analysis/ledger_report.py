"""Sums of the ledger to a report: busy over allocated with its doubt, the losses, what they cost.

Busy over allocated is sum over sum, never a mean of ratios. What nobody saw is not taken for idle: with a
coverage of at least 90 % the ratio is over the seconds that were seen; below that it is an interval,
``[busy / allocated, (busy + unseen) / allocated]``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from jupyter_gpuprof.records.ledger import (
    STATES,
    By,
    LedgerGroup,
    LedgerReport,
    LedgerSum,
    Loss,
    SameWork,
    State,
)
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: From this coverage on, the ratio is a number.
COVERED = 0.9
#: What a well-fed job reaches: the target of the arithmetic with the same work on fewer devices.
TARGET_RATIO = 0.6
#: The three places where allocated time is lost, and the states that make them up.
PLACES: tuple[tuple[str, tuple[State, ...]], ...] = (
    ("stalled on input", ("input_stall",)),
    ("reserved for nothing", ("reserved_idle",)),
    ("held by what is finished or crashed", ("held_idle", "orphan")),
)
_NO_PRICE = Missing("no price was given")


def report(
    sums: Sequence[LedgerSum],
    by: By,
    *,
    devices: int,
    price: Number = _NO_PRICE,
    target_ratio: float = TARGET_RATIO,
) -> LedgerReport:
    """The report over the sums of the ledger.

    Args:
        sums: from ``store.ledger.ledger_sums``.
        by: what their keys are.
        devices: how many devices they are about.
        price: of one device hour.
        target_ratio: for `same_work`.
    """
    total = group("", sums)
    days = [group(day, rows) for day, rows in sorted(_split(sums, lambda row: row.day).items())]
    groups = [group(key, rows) for key, rows in sorted(_split(sums, lambda row: row.key).items())]
    if by != "day":
        groups.sort(key=lambda g: -g.allocated_s)
    losses = []
    for place, states in PLACES:
        lost_s = sum(total.seconds[state] for state in states)
        losses.append(Loss(place, lost_s, price if isinstance(price, Missing) else lost_s / 3600 * price))
    measures = tuple(sorted({row.measure for row in sums if row.state == "busy" and row.measure}))
    return LedgerReport(
        since=days[0].key if days else "",
        until=days[-1].key if days else "",
        by=by,
        groups=tuple(groups),
        total=total,
        days=tuple(days),
        losses=tuple(losses),
        same_work=_same_work(total, devices, target_ratio),
        price=price,
        money_per_busy_hour=_money_per_busy_hour(total, price),
        devices=devices,
        measures=measures,
        notes=_notes(measures),
    )


def group(key: str, sums: Iterable[LedgerSum]) -> LedgerGroup:
    """Sums of one key, all days together."""
    seconds: dict[State, float] = dict.fromkeys(STATES, 0.0)
    samples = 0
    for row in sums:
        seconds[row.state] += row.seconds
        samples += row.samples
    capacity_s = math.fsum(seconds.values())
    allocated_s = capacity_s - seconds["free"]
    unseen_s = seconds["unknown"]
    nothing = Missing("no second was allocated")
    return LedgerGroup(
        key=key,
        seconds=seconds,
        capacity_s=capacity_s,
        allocated_s=allocated_s,
        coverage_ratio=(allocated_s - unseen_s) / allocated_s if allocated_s > 0 else nothing,
        busy_ratio=busy_over_allocated(seconds["busy"], allocated_s, unseen_s)
        if allocated_s > 0
        else nothing,
        samples=samples,
    )


def busy_over_allocated(busy_s: float, allocated_s: float, unseen_s: float) -> Number | Estimate:
    """Busy over allocated device seconds, with an interval where too much of it was not seen.

    Args:
        busy_s: seen to be busy.
        allocated_s: allocated in all, the unseen ones among them.
        unseen_s: allocated or maybe so, and not sampled.
    """
    seen_s = allocated_s - unseen_s
    if seen_s <= 0:
        return Missing("nobody looked at the devices")
    if seen_s / allocated_s >= COVERED:
        return busy_s / seen_s
    return Estimate(busy_s / seen_s, busy_s / allocated_s, (busy_s + unseen_s) / allocated_s)


def same_work(devices: int, busy_ratio: float, target_ratio: float = TARGET_RATIO) -> SameWork:
    """On how many devices the work would fit if they were busy for `target_ratio` of the time."""
    worth = devices * busy_ratio
    return SameWork(devices, busy_ratio, target_ratio, worth, math.ceil(worth / target_ratio - 1e-9))


def _same_work(total: LedgerGroup, devices: int, target_ratio: float) -> SameWork | Missing:
    """Of all visible devices, so that free ones count as idle."""
    seen_s = total.capacity_s - total.seconds["unknown"]
    if not devices or seen_s <= 0:
        return Missing("nobody looked at the devices")
    if seen_s / total.capacity_s < COVERED:
        return Missing(f"only {seen_s / total.capacity_s:.0%} of the time was seen")
    return same_work(devices, total.busy_s / seen_s, target_ratio)


def _money_per_busy_hour(total: LedgerGroup, price: Number) -> Number:
    if isinstance(price, Missing):
        return price
    if not total.busy_s:
        return Missing("no device worked")
    return price * total.allocated_s / total.busy_s


def _notes(measures: tuple[str, ...]) -> tuple[str, ...]:
    if len(measures) < 2:
        return ()
    return (f"busy was measured in {len(measures)} ways ({', '.join(measures)}), which differ",)


def _split(sums: Sequence[LedgerSum], key: Callable[[LedgerSum], str]) -> dict[str, list[LedgerSum]]:
    found: defaultdict[str, list[LedgerSum]] = defaultdict(list)
    for row in sums:
        found[key(row)].append(row)
    return found
