"""Queue waits with those who still wait: Kaplan and Meier's estimate.

A job that still waits, or was cancelled while it did, tells only that its wait is longer than so far. Leaving
it out makes the waits too short, most when the queue is longest. (Kaplan and Meier, JASA 53, 1958.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jupyter_gpuprof.records.fleet import Job
from jupyter_gpuprof.records.fleetreplay import Waits
from jupyter_gpuprof.records.fleetreport import SurvivalCurve
from jupyter_gpuprof.records.reading import Missing, Number

_Floats = np.ndarray[Any, np.dtype[Any]]
#: Points of a curve that is drawn.
_MOST_POINTS = 200


def waiting_share(wait_s: Sequence[float], has_started: Sequence[bool]) -> tuple[_Floats, _Floats]:
    """The share that still waits after each wait at which somebody started.

    Args:
        wait_s: until the start, or so far.
        has_started: whether it ended with a start.

    Returns:
        The waits in order, and the share after each.
    """
    waits, started = np.asarray(wait_s, dtype=float), np.asarray(has_started, dtype=bool)
    order = np.argsort(waits, kind="stable")
    times, first = np.unique(waits[order], return_index=True)
    # At equal times those who start come before those who are seen to wait.
    starts = np.add.reduceat(started[order].astype(float), first) if len(times) else np.zeros(0)
    at_risk = len(waits) - first
    share = np.cumprod(1 - starts / at_risk) if len(times) else np.zeros(0)
    return times[starts > 0], share[starts > 0]


def waits_of(key: str, wait_s: Sequence[float], has_started: Sequence[bool]) -> Waits:
    """Quantiles of the waits, as waits that really happened (nearest rank where nobody waits any more)."""
    pending = len(has_started) - int(np.count_nonzero(has_started))
    times, share = waiting_share(wait_s, has_started)

    def within(ratio: float) -> Number:
        reached = np.nonzero(share <= 1 - ratio + 1e-9)[0]
        if len(reached):
            return float(times[reached[0]])
        return Missing("not reached" if len(wait_s) else "no job")

    longest = float(max(wait_s, default=0.0))
    return Waits(key, len(wait_s), pending, within(0.5), within(0.9), within(0.99), longest)


def waits_so_far(jobs: Iterable[Job], until_s: Number) -> tuple[list[float], list[bool]]:
    """The waits of recorded jobs, and whether each ended with a start; jobs that tell no wait are left out.

    Args:
        jobs: as recorded.
        until_s: the moment at which the records end.
    """
    waits: list[float] = []
    started: list[bool] = []
    for job in jobs:
        if isinstance(job.submit_s, Missing):
            continue
        if not isinstance(job.start_s, Missing):
            waits.append(job.start_s - job.submit_s)
            started.append(True)
            continue
        if job.state not in ("pending", "cancelled"):
            continue  # it ran, and nobody tells from when on
        seen_s = until_s if isinstance(job.end_s, Missing) else job.end_s
        if not isinstance(seen_s, Missing) and seen_s >= job.submit_s:
            waits.append(seen_s - job.submit_s)
            started.append(False)
    return waits, started


def curve_of(key: str, wait_s: Sequence[float], has_started: Sequence[bool]) -> SurvivalCurve:
    """The curve to draw, thinned; it goes on to the longest wait that was seen."""
    times, share = waiting_share(wait_s, has_started)
    if len(times) > _MOST_POINTS:
        kept = np.unique(np.linspace(0, len(times) - 1, _MOST_POINTS).astype(int))
        times, share = times[kept], share[kept]
    longest = max(wait_s, default=0.0)
    if longest > (times[-1] if len(times) else 0.0):
        times = np.append(times, longest)
        share = np.append(share, share[-1] if len(share) else 1.0)
    return SurvivalCurve(key, tuple(map(float, times)), tuple(map(float, share)))
