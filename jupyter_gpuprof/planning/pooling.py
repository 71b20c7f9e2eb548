"""What the partitions of teams would be together: how much of the queue idle GPUs elsewhere would cover.

Counts only: that a job does not fit the GPUs left on several machines is not seen here, and "allocated" is
the scheduler's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jupyter_gpuprof.records.fleet import Job, TeamSeries
from jupyter_gpuprof.records.fleetreport import Pooling
from jupyter_gpuprof.records.reading import Missing, Number

#: Looks at the partitions, at most.
_MOST_STEPS = 50_000
_Floats = np.ndarray[Any, np.dtype[Any]]


def pooling_of(series: Sequence[TeamSeries]) -> Pooling | Missing:
    """The sums over all partitions at each moment at which all of them were counted."""
    times = _together(series)
    if len(times) < 2:
        return Missing("the partitions were not counted at the same moments")
    rows = [np.searchsorted(one.time_s, times) for one in series]
    capacity, running, pending = (
        np.stack([getattr(one, name)[at] for one, at in zip(series, rows, strict=True)])
        for name in ("capacity", "running", "pending")
    )
    step_h = float(np.median(np.diff(times))) / 3600
    idle, queue = np.maximum(capacity - running, 0).sum(axis=0), pending.sum(axis=0)
    demand, queued = (running + pending).sum(axis=0), queue > 0
    return Pooling(
        step_s=step_h * 3600,
        steps=len(times),
        gpus=float(capacity.sum(axis=0).max()),
        capacity_gpu_hours=float(capacity.sum()) * step_h,
        allocated_gpu_hours=float(running.sum()) * step_h,
        pending_gpu_hours=float(queue.sum()) * step_h,
        coverable_gpu_hours=float(np.minimum(queue, idle).sum()) * step_h,
        peak_of_sum=float(running.sum(axis=0).max()),
        sum_of_peaks=float(running.max(axis=1).sum()),
        queued_ratio=float(queued.mean()),
        covered_ratio=float((idle >= queue)[queued].mean())
        if queued.any()
        else Missing("there was no queue"),
        demand_p90=_rank(demand, 0.9),
        demand_p99=_rank(demand, 0.99),
        demand_max=float(demand.max()),
        within_ratio=float((demand <= capacity.sum(axis=0)).mean()),
        by_team=tuple(
            (one.team, _share(running[i], capacity[i]), float((pending[i] > 0).mean()))
            for i, one in enumerate(series)
        ),
    )


def series_of(jobs: Sequence[Job], capacity: Mapping[str, int], until_s: Number) -> tuple[TeamSeries, ...]:
    """Counts by team at equal distances, from jobs.

    Args:
        jobs: as recorded; those of other teams than in `capacity` are left out.
        capacity: GPUs of each team's partition.
        until_s: when the records end.
    """
    spans: dict[str, list[tuple[float, float, float, float]]] = {team: [] for team in capacity}
    for job in jobs:
        if job.team not in spans or isinstance(job.gpus, Missing):
            continue
        came = job.start_s if isinstance(job.submit_s, Missing) else job.submit_s
        end = until_s if isinstance(job.end_s, Missing) else job.end_s
        if isinstance(came, Missing) or isinstance(end, Missing):
            continue
        start = end if isinstance(job.start_s, Missing) else job.start_s
        spans[job.team].append((float(came), float(start), float(end), float(job.gpus)))
    every = [moment for rows in spans.values() for row in rows for moment in row[:3]]
    if not every:
        return ()
    first, last = min(every), max(every)
    step_s = max(60.0, (last - first) / _MOST_STEPS)
    times = np.arange(first, last + step_s, step_s)
    return tuple(
        TeamSeries(
            team,
            times,
            np.full(len(times), capacity[team]),
            _count(times, [(start, end, gpus) for _, start, end, gpus in rows]),
            _count(times, [(came, start, gpus) for came, start, _, gpus in rows]),
        )
        for team, rows in sorted(spans.items())
    )


def _count(times: _Floats, spans: Sequence[tuple[float, float, float]]) -> _Floats:
    """GPUs at each moment of spans that begin at it or before and end after it."""
    change = np.zeros(len(times) + 1)
    if spans:
        begins, ends, gpus = (np.array(column) for column in zip(*spans, strict=True))
        np.add.at(change, np.searchsorted(times, begins), gpus)
        np.add.at(change, np.searchsorted(times, ends), -gpus)
    return np.cumsum(change)[:-1]


def _together(series: Sequence[TeamSeries]) -> _Floats:
    if not series:
        return np.zeros(0)
    times = series[0].time_s
    for one in series[1:]:
        times = np.intersect1d(times, one.time_s)
    return times


def _share(part: _Floats, whole: _Floats) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else 0.0


def _rank(values: _Floats, ratio: float) -> float:
    return float(np.sort(values)[int(np.ceil(ratio * len(values))) - 1])
