"""A replay without gang scheduling: a job takes each GPU as it comes, holds it, and works once it has all.

What that costs shows in GPU seconds held for nothing, up to jobs that wait for each other for ever. GPUs are
counted together, each within its team's share; nobody gives way.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.planning.fleetstate import Played
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, PriorityClass, Team


@dataclass
class Held:
    """A job that has some of its GPUs, and from when on: the sum of those moments."""

    index: int
    work: Work
    gpus: int = 0
    since_s: float = 0.0


def replay_without_gang(works: Sequence[Work], policy: FleetPolicy) -> Played:
    """Place all jobs, one GPU at a time in turn.

    Args:
        works: by their submission.
        policy: its nodes, spot capacity and reclaiming are not used.
    """
    never = [math.nan] * len(works)
    played = Played(never, never[:], never[:], [0] * len(works))
    teams, classes = dict(policy.teams), dict(policy.classes)
    used: defaultdict[str, int] = defaultdict(int)
    free, coming = policy.gpus, 0
    waiting: list[Held] = []
    ends: list[tuple[float, int]] = []
    now = 0.0
    while ends or coming < len(works):
        now = min(
            ends[0][0] if ends else math.inf, works[coming].submit_s if coming < len(works) else math.inf
        )
        while ends and ends[0][0] <= now:
            index = heapq.heappop(ends)[1]
            played.end_s[index] = now
            free += works[index].gpus
            used[works[index].team] -= works[index].gpus
        while coming < len(works) and works[coming].submit_s <= now:
            waiting.append(Held(coming, works[coming]))
            coming += 1
        waiting.sort(key=lambda held: -classes.get(held.work.priority_class, PriorityClass()).priority)
        given = True
        while free and given:
            given = False
            for held in waiting:
                team = teams.get(held.work.team, Team())
                most = math.inf if team.borrow is None else team.guarantee + team.borrow
                if free and held.gpus < held.work.gpus and used[held.work.team] < most:
                    held.gpus, held.since_s = held.gpus + 1, held.since_s + now
                    free, given = free - 1, True
                    used[held.work.team] += 1
        for held in [held for held in waiting if held.gpus == held.work.gpus]:
            waiting.remove(held)
            played.start_s[held.index], played.wait_s[held.index] = now, now - held.work.submit_s
            played.overhead_s += held.gpus * now - held.since_s
            played.held_s += held.gpus * (now + held.work.run_s) - held.since_s
            heapq.heappush(ends, (now + held.work.run_s, held.index))
    for held in waiting:  # they wait for each other
        played.overhead_s += held.gpus * now - held.since_s
        played.held_s += held.gpus * now - held.since_s
    return played
