"""Who must give way to a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jupyter_gpuprof.planning.fleetnodes import choose
from jupyter_gpuprof.planning.fleetstate import Placed, Waiting


def victims_for(
    job: Waiting,
    free: Sequence[int],
    usage: Mapping[str, int],
    guarantees: Mapping[str, int],
    running: Mapping[str, Mapping[int, Placed]],
) -> list[Placed] | None:
    """Whom the job needs to be stopped to fit into its team's guarantee; None if that does not help.

    Args:
        job: the claim; it is served within its guarantee or not at all.
        free: GPUs by machine.
        usage: stable GPUs in use by team.
        guarantees: by team; 0 for who is not in it.
        running: by team, on stable GPUs, without those who already give way.
    """
    team, gpus = job.work.team, job.work.gpus
    used, room = dict(usage), list(free)
    guarantee = guarantees.get(team, 0)
    mine = running.get(team, {}).values()
    own = sorted((p for p in mine if p.job.preemptible and p.job.priority < job.priority), key=_first)
    others = sorted(
        (
            placed
            for other, placed_there in running.items()
            if other != team and used.get(other, 0) > guarantees.get(other, 0)
            for placed in placed_there.values()
            if placed.job.preemptible
        ),
        key=_first,
    )
    chosen: list[Placed] = []
    while own and used.get(team, 0) + gpus > guarantee:
        _take(own.pop(0), chosen, used, room)
    if used.get(team, 0) + gpus > guarantee:
        return None
    for placed in [*others, *own]:
        if choose(room, job.needs):
            break
        other = placed.job.work.team
        if other == team or used[other] > guarantees.get(other, 0):
            _take(placed, chosen, used, room)
    return _spare(chosen, job, used, guarantee, room) if choose(room, job.needs) else None


def _first(placed: Placed) -> tuple[int, float, int]:
    """The lowest priority first, then the newest."""
    return (placed.job.priority, -placed.start_s, -placed.job.index)


def _take(placed: Placed, chosen: list[Placed], used: dict[str, int], room: list[int]) -> None:
    chosen.append(placed)
    used[placed.job.work.team] -= placed.gpus
    for node, gpus in placed.places:
        room[node] += gpus


def _spare(
    chosen: list[Placed], job: Waiting, used: dict[str, int], guarantee: int, room: list[int]
) -> list[Placed]:
    kept = list(chosen)
    for placed in reversed(chosen):
        without = list(room)
        for node, gpus in placed.places:
            without[node] -= gpus
        mine = placed.gpus if placed.job.work.team == job.work.team else 0
        if used.get(job.work.team, 0) + mine + job.work.gpus <= guarantee and choose(without, job.needs):
            kept.remove(placed)
            room = without
            used[placed.job.work.team] += placed.gpus
    return kept
