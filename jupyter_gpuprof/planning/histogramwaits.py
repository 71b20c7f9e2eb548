"""Quantiles of waits that are only counted in ranges, as in a histogram of Prometheus."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jupyter_gpuprof.records.fleetreplay import Waits
from jupyter_gpuprof.records.reading import Missing, Number


def waits_of_buckets(key: str, up_to: Mapping[float, float]) -> Waits:
    """Waits of jobs that started; a quantile above the last bound is not told.

    Within a range the waits are taken as spread evenly, as Prometheus's `histogram_quantile` does.

    Args:
        key: whose.
        up_to: how many waited at most so many seconds, by the bounds of the ranges; one is infinite.
    """
    bounds = sorted(up_to)
    jobs = up_to[bounds[-1]] if bounds else 0.0
    longest = max((bound for bound in bounds if bound < math.inf), default=0.0)

    def within(ratio: float) -> Number:
        rank, below_s, below = ratio * jobs, 0.0, 0.0
        if jobs <= 0:
            return Missing("no job")
        for bound in bounds:
            if up_to[bound] >= rank:
                if math.isinf(bound):
                    return Missing("not reached")
                inside = up_to[bound] - below
                return below_s + (bound - below_s) * ((rank - below) / inside if inside else 1.0)
            below_s, below = bound, up_to[bound]
        return Missing("not reached")

    return Waits(key, round(jobs), 0, within(0.5), within(0.9), within(0.99), longest)
