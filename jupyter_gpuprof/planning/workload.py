"""From recorded jobs to what a replay needs: when each came, what it asks for, and how long it works."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpuprof.records.fleet import Job, Refused
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.reading import Missing


@dataclass(frozen=True, slots=True)
class Work:
    """One job to be placed.

    Args:
        run_s: how long it works with all its GPUs.
        limit_s: its time limit, infinite if it has none.
        start_s: when it started by the records.
    """

    job_id: str
    team: str
    priority_class: str
    submit_s: float
    gpus: int
    nodes: int
    run_s: float
    limit_s: float = math.inf
    start_s: float = math.nan


def workload(jobs: Iterable[Job], policy: FleetPolicy | None = None) -> tuple[list[Work], list[Refused]]:
    """The jobs that can be replayed, by their submission, and why the others cannot.

    Args:
        jobs: as recorded; fractions of a GPU are rounded up.
        policy: whose pool they must fit.
    """
    works: list[Work] = []
    counts: dict[str, list[str]] = {}
    largest = math.inf if policy is None else max(policy.gpus, policy.spot.gpus)
    for job in jobs:
        reason = _unfit(job, largest)
        if reason:
            counts.setdefault(reason, []).append(job.job_id)
            continue
        assert not isinstance(job.submit_s, Missing)
        assert not isinstance(job.ran_s, Missing)
        assert not isinstance(job.gpus, Missing)
        limit_s = math.inf if isinstance(job.limit_s, Missing) else float(job.limit_s)
        works.append(
            Work(
                job.job_id,
                job.team,
                job.priority_class,
                float(job.submit_s),
                math.ceil(job.gpus - 1e-9),
                job.nodes,
                float(job.ran_s),
                limit_s,
                math.nan if isinstance(job.start_s, Missing) else float(job.start_s),
            )
        )
    works.sort(key=lambda work: work.submit_s)
    return works, [Refused(why, len(ids), f"job {ids[0]}") for why, ids in counts.items()]


def _unfit(job: Job, largest: float) -> str:
    if isinstance(job.gpus, Missing):
        return "its GPUs are not told"
    if job.gpus <= 0:
        return "it used no GPU"
    if isinstance(job.submit_s, Missing):
        return "when it was submitted is not told"
    if isinstance(job.ran_s, Missing) or job.state == "pending" or (job.ran_s == 0):
        return "it has not run, so how long it works is not known"
    if job.gpus > largest:
        return f"it asks for more GPUs than the pool has ({largest:g})"
    return ""
