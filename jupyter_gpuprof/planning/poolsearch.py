"""The smallest pool that keeps each team's p90 queue wait within its limit; the grid of the what-if page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jupyter_gpuprof.planning.fleetoutcome import limit_of, outcome_of, play
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, Team
from jupyter_gpuprof.records.fleetreplay import Outcome, Search, Tried, WhatIf
from jupyter_gpuprof.records.reading import Missing, Number


def limits_of(policy: FleetPolicy, before: Outcome) -> dict[str, float]:
    """The wait that nine of ten jobs of each team must stay within: as set, else what is flat today."""
    rows = before.by_team or (before.waits,)
    limits = {row.key: limit_of(float(row.p90_s)) for row in rows if not isinstance(row.p90_s, Missing)}
    for name, team in policy.teams:
        if not isinstance(team.p90_s, Missing):
            limits[name] = float(team.p90_s)
    return limits


def search_pool(
    works: Sequence[Work],
    policy: FleetPolicy,
    limits: Mapping[str, float],
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Search:
    """Look for it by halving; waits fall with the size, as good as always.

    Args:
        works: the jobs.
        policy: scaled with the size, its guarantees in proportion.
        limits: by team.
        seed: of the replay.
        progress: told each size that is tried.
    """
    tried: dict[int, Tried] = {}

    def enough(gpus: int) -> bool:
        if gpus not in tried:
            if progress is not None:
                progress(gpus)
            sized = policy.sized(gpus)
            tried[gpus] = _look(gpus, outcome_of(works, play(works, sized, seed=seed), sized), limits)
        return tried[gpus].is_enough

    step = max(policy.nodes, default=1)
    low, high = max((work.gpus for work in works), default=1) - 1, policy.gpus
    if not enough(high):
        return Search(Missing("the pool as it is does not keep the limits"), tuple(tried.values()))
    while high - low > step:
        middle = (low + high) // 2 // step * step
        middle = middle if middle > low else middle + step
        if enough(middle):
            high = middle
        else:
            low = middle
    return Search(high, tuple(tried[gpus] for gpus in sorted(tried)))


def _look(gpus: int, outcome: Outcome, limits: Mapping[str, float]) -> Tried:
    """The team that is closest to its limit, or furthest beyond."""
    worst, wait, limit, is_enough = "", outcome.waits.p90_s, 0.0, not outcome.never
    excess = -1.0
    for row in outcome.by_team or (outcome.waits,):
        if row.key not in limits:
            continue
        p90: Number = row.p90_s
        over = float("inf") if isinstance(p90, Missing) else p90 / max(limits[row.key], 1e-9)
        if over > excess:
            worst, wait, limit, excess = row.key, p90, limits[row.key], over
    return Tried(gpus, is_enough and excess <= 1, worst, wait, limit)


def what_if(
    works: Sequence[Work],
    policy: FleetPolicy,
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> tuple[WhatIf, ...]:
    """Replays over sizes (60 to 120 % of the pool), guarantees (none, half, all) and borrowing (none, free).

    Args:
        works, policy, seed: as in `search_pool`; guarantees grow with the size.
        progress: told each size.
    """
    largest = max((work.gpus for work in works), default=1)
    points = []
    for percent in (60, 70, 80, 90, 100, 120):
        sized = policy.sized(max(policy.gpus * percent // 100, 1))
        if sized.gpus < largest:
            continue
        if progress is not None:
            progress(sized.gpus)
        for guaranteed in (0.0, 0.5, 1.0):
            for borrow in (0.0, 1.0):
                if not guaranteed and not borrow:
                    continue  # nobody could run
                shares = tuple(
                    (name, Team(int(team.guarantee * guaranteed), None if borrow else 0, team.p90_s))
                    for name, team in sized.teams
                )
                changed = replace(sized, teams=shares)
                outcome = outcome_of(works, play(works, changed, seed=seed), changed)
                points.append(WhatIf(sized.gpus, guaranteed, borrow, outcome))
    return tuple(points)
