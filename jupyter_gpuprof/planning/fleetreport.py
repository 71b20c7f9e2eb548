"""Where a fleet's GPU-hours went: sums of the site's own records, with what could not be read beside them.

Ratios are sums over sums: a job of 100 GPU-hours weighs a hundred times one of a single hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np

from jupyter_gpuprof.planning.pooling import pooling_of, series_of
from jupyter_gpuprof.planning.survival import curve_of, waits_of, waits_so_far
from jupyter_gpuprof.records.fleet import Job, JobRecords
from jupyter_gpuprof.records.fleetreport import FleetGroup, FleetReport, Pooling
from jupyter_gpuprof.records.ledger import Loss
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: From this coverage on, busy over allocated is a number.
_COVERED = 0.9
#: Times below this are of a trace without dates.
_FIRST_DATE_S = 86400.0 * 366
#: Teams whose curves are drawn.
_MOST_CURVES = 6
_NOT_RESERVED = Missing("nothing is said to be reserved")
_HOUR_S, _HOURS_OF_WEEK = 3600.0, 168
_NO_PRICE = Missing("no price was given")


def fleet_report(
    records: JobRecords,
    *,
    reserved: Mapping[str, int] | None = None,
    price: Number = _NO_PRICE,
    losses: Sequence[Loss] = (),
) -> FleetReport:
    """The report over what was read.

    Args:
        records: from the readers.
        reserved: GPUs that are reserved for each team.
        price: of a GPU-hour.
        losses: of the ledger.
    """
    reserved = reserved or {}
    jobs = [job for job in records.jobs if isinstance(job.gpus, Missing) or job.gpus > 0]
    first_s, last_s = _ends(jobs, records)
    period_h = (last_s - first_s) / _HOUR_S if first_s is not None and last_s is not None else 0.0

    def group(key: str, some: Sequence[Job], gpus: int | None = None) -> FleetGroup:
        return _group(key, some, records.until_s, gpus, period_h)

    total = group("", jobs, sum(reserved.values()) if reserved else None)
    by_team = [group(team, some, reserved.get(team)) for team, some in _split(jobs, lambda job: job.team)]
    pooling = _pooling(records, jobs, reserved)
    waits = waits_so_far(jobs, records.until_s)
    curves = [curve_of("all", *waits)] if waits[0] else []
    if len(by_team) > 1:
        largest = {one.key for one in by_team[:_MOST_CURVES]}
        for team, some in _split(jobs, lambda job: job.team):
            if team in largest:
                curves.append(curve_of(team or "(no team)", *waits_so_far(some, records.until_s)))
    return FleetReport(
        sources=records.sources,
        rows=records.rows,
        jobs=len(jobs),
        refused=records.refused,
        since=_date(first_s),
        until=_date(last_s),
        total=total,
        by_team=tuple(by_team),
        by_user=tuple(group(user, some) for user, some in _split(jobs, lambda job: job.user)),
        by_size=tuple(group(size, some) for size, some in sorted(_split(jobs, _size), key=_by_size)),
        curves=tuple(curves),
        week=_week(jobs, records),
        histogram=_histogram(jobs),
        pooling=pooling,
        losses=tuple(losses),
        price=price,
        money_per_busy_hour=_money(total, price),
        notes=(*records.notes, *_notes(jobs, len(records.jobs) - len(jobs)), *_beyond(pooling)),
    )


def _group(key: str, jobs: Sequence[Job], until_s: Number, gpus: int | None, period_h: float) -> FleetGroup:
    hours = math.fsum(job.gpu_s for job in jobs) / _HOUR_S
    seen_h = math.fsum(job.gpu_s for job in jobs if not isinstance(job.busy_ratio, Missing)) / _HOUR_S
    busy_h = math.fsum(job.gpu_s * job.busy_ratio for job in jobs if not isinstance(job.busy_ratio, Missing))
    used: Number = _NOT_RESERVED
    if gpus and period_h:
        used = hours / (gpus * period_h)
    return FleetGroup(
        key=key,
        jobs=len(jobs),
        gpu_hours=hours,
        busy_ratio=busy_of(busy_h / _HOUR_S, seen_h, hours),
        coverage_ratio=seen_h / hours if hours else Missing("no GPU time was allocated"),
        waits=waits_of(key, *waits_so_far(jobs, until_s)),
        used_ratio=used,
    )


def busy_of(busy_h: float, seen_h: float, allocated_h: float) -> Number | Estimate:
    """Busy over allocated GPU-hours; with less than 90 % seen, the rest all idle or all busy."""
    if not allocated_h:
        return Missing("no GPU time was allocated")
    if not seen_h:
        return Missing("nobody looked at the devices")
    if seen_h >= _COVERED * allocated_h:
        return busy_h / seen_h
    unseen_h = allocated_h - seen_h
    return Estimate(busy_h / seen_h, busy_h / allocated_h, (busy_h + unseen_h) / allocated_h)


def _split(jobs: Sequence[Job], key: Callable[[Job], str]) -> list[tuple[str, list[Job]]]:
    """By GPU time, most first."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(key(job), []).append(job)
    return sorted(found.items(), key=lambda item: (-sum(job.gpu_s for job in item[1]), item[0]))


def _size(job: Job) -> str:
    """The next power of two: ``1``, ``2``, ``3-4``, ``5-8``."""
    if isinstance(job.gpus, Missing):
        return "not told"
    if job.gpus < 1:
        return "<1"
    power = 1
    while power < job.gpus:
        power *= 2
    return str(power) if power <= 2 else f"{power // 2 + 1}-{power}"


def _by_size(item: tuple[str, list[Job]]) -> float:
    text = item[0].split("-")[-1]
    return float(text) if text.isdigit() else (0.5 if text == "<1" else math.inf)


def _ends(jobs: Sequence[Job], records: JobRecords) -> tuple[float | None, float | None]:
    times = [
        float(moment)
        for job in jobs
        for moment in (job.submit_s, job.start_s, job.end_s)
        if not isinstance(moment, Missing)
    ]
    for one in records.series:
        times += [float(one.time_s[0]), float(one.time_s[-1])]
    if not isinstance(records.until_s, Missing):
        times.append(float(records.until_s))
    return (min(times), max(times)) if times else (None, None)


def _date(seconds: float | None) -> str:
    if seconds is None or seconds < _FIRST_DATE_S:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="minutes")


def _week(jobs: Sequence[Job], records: JobRecords) -> tuple[tuple[float, ...], ...] | Missing:
    """Mean GPUs in use in each hour of the week."""
    gpu_s, seconds = np.zeros(_HOURS_OF_WEEK), np.zeros(_HOURS_OF_WEEK)
    for one in records.series:
        if one.time_s[0] < _FIRST_DATE_S:
            continue
        hours = _hour_of_week(one.time_s)
        step_s = float(np.median(np.diff(one.time_s))) if len(one.time_s) > 1 else 60.0
        np.add.at(gpu_s, hours, one.running * step_s)
    if records.series:
        hours = _hour_of_week(records.series[0].time_s)
        times = records.series[0].time_s
        np.add.at(seconds, hours, float(np.median(np.diff(times))) if len(times) > 1 else 60.0)
    spans = [(float(job.start_s), job) for job in jobs if not isinstance(job.start_s, Missing) and job.gpu_s]
    spans = [(start, job) for start, job in spans if start >= _FIRST_DATE_S]
    first = last = 0.0
    for start, job in spans:
        assert not isinstance(job.ran_s, Missing)
        first, last = min(first or start, start), max(last, start + job.ran_s)
        _spread(gpu_s, start, start + float(job.ran_s), job.gpu_s / float(job.ran_s))
    _spread(seconds, first, last, 1.0)
    if not seconds.any():
        return Missing("the records have no dates")
    mean = np.divide(gpu_s, seconds, out=np.zeros_like(gpu_s), where=seconds > 0)
    return tuple(tuple(map(float, row)) for row in mean.reshape(7, 24))


def _spread(hours: np.ndarray[Any, Any], start: float, end: float, rate: float) -> None:
    """Add `rate` for each second from start to end to the hours of the week in which they lie."""
    if end <= start:
        return
    weeks, _ = divmod(end - start, _HOURS_OF_WEEK * _HOUR_S)
    hours += rate * weeks * _HOUR_S
    start += weeks * _HOURS_OF_WEEK * _HOUR_S
    edges = np.concatenate([[start], np.arange((start // _HOUR_S + 1) * _HOUR_S, end, _HOUR_S), [end]])
    np.add.at(hours, _hour_of_week(edges[:-1]), rate * np.diff(edges))


def _hour_of_week(time_s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """0 is Monday from 0 to 1 o'clock, UTC; 1970 began on a Thursday."""
    return ((time_s // _HOUR_S).astype(np.int64) + 3 * 24) % _HOURS_OF_WEEK


def _histogram(jobs: Sequence[Job]) -> tuple[float, ...] | Missing:
    bins = [0.0] * 10
    for job in jobs:
        if not isinstance(job.busy_ratio, Missing):
            bins[min(int(job.busy_ratio * 10), 9)] += job.gpu_s / _HOUR_S
    return tuple(bins) if any(bins) else Missing("nobody looked at the devices")


def _pooling(records: JobRecords, jobs: Sequence[Job], reserved: Mapping[str, int]) -> Pooling | Missing:
    if records.series:
        return pooling_of(records.series)
    if len(reserved) < 2:
        return Missing("what is reserved for each team was not given")
    return pooling_of(series_of(jobs, reserved, records.until_s))


def _beyond(pooling: Pooling | Missing) -> list[str]:
    if isinstance(pooling, Missing) or pooling.peak_of_sum <= pooling.gpus:
        return []
    return [
        f"up to {pooling.peak_of_sum:g} GPUs were in use at one time, more than the {pooling.gpus:g} of all"
        " teams together: the records or the reservations are wrong"
    ]


def _money(total: FleetGroup, price: Number) -> Number:
    if isinstance(price, Missing):
        return price
    ratio = total.busy_ratio.value if isinstance(total.busy_ratio, Estimate) else total.busy_ratio
    if isinstance(ratio, Missing):
        return ratio
    return price / ratio if ratio else Missing("no device worked")


def _notes(jobs: Sequence[Job], without: int) -> list[str]:
    notes = []
    if without:
        notes.append(f"{_jobs(without)} without a GPU left out")
    unknown = sum(isinstance(job.gpus, Missing) for job in jobs)
    if unknown:
        notes.append(f"of {_jobs(unknown)} the record does not tell the GPUs; they count in the waits alone")
    pending = sum(job.state == "pending" for job in jobs)
    if pending:
        notes.append(
            f"{_jobs(pending)} still in the queue, counted as waiting longer than so far (Kaplan-Meier)"
        )
    return notes


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
