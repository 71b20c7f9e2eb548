"""Where a fleet's GPU-hours went, by the site's own records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.fleet import Refused
from jupyter_gpuprof.records.fleetreplay import FLEET_SCHEMA_VERSION, Waits
from jupyter_gpuprof.records.ledger import Loss
from jupyter_gpuprof.records.reading import Estimate, Missing, Number


@dataclass(frozen=True)
class FleetGroup:
    """The jobs of a team, a user or a size.

    Args:
        gpu_hours: allocated.
        busy_ratio: busy over allocated, weighted by GPU-hours: a number, or below 90 % coverage an
            estimate whose interval takes what nobody saw for all idle and for all busy.
        coverage_ratio: GPU-hours that somebody looked at over allocated ones.
        used_ratio: allocated over what is reserved for the team.
    """

    key: str
    jobs: int
    gpu_hours: float
    busy_ratio: Number | Estimate
    coverage_ratio: Number
    waits: Waits
    used_ratio: Number = Missing("nothing is said to be reserved")


@dataclass(frozen=True)
class Pooling:
    """What the partitions of teams would be together.

    Args:
        step_s: between two looks; steps: how many there were.
        capacity_gpu_hours, allocated_gpu_hours: of all partitions.
        pending_gpu_hours: waited for in queues; coverable_gpu_hours: of them, those that GPUs idle in
            other partitions at that moment would have covered.
        peak_of_sum, sum_of_peaks: allocated GPUs, together and each for itself.
        queued_ratio: share of the time with a queue somewhere; covered_ratio: of that, the share in which
            idle GPUs would have covered the whole queue.
        demand_p90, demand_p99, demand_max: running and pending GPUs together.
        within_ratio: share of the time in which they fit the pool.
    """

    step_s: float
    steps: int
    gpus: float
    capacity_gpu_hours: float
    allocated_gpu_hours: float
    pending_gpu_hours: float
    coverable_gpu_hours: float
    peak_of_sum: float
    sum_of_peaks: float
    queued_ratio: float
    covered_ratio: Number
    demand_p90: float
    demand_p99: float
    demand_max: float
    within_ratio: float
    by_team: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class SurvivalCurve:
    """The share of jobs that still wait after a time, one step each."""

    key: str
    time_s: tuple[float, ...]
    waiting_ratio: tuple[float, ...]


@dataclass(frozen=True)
class Observed:
    """How busy the allocated devices were by one kind of metrics in a Prometheus.

    Args:
        measure: the metric that tells it.
        key: a team (a namespace of Kubernetes), "" for all.
        gpu_hours: allocated by these metrics.
        busy_ratio: busy over allocated; an estimate where less than 90 % of it was seen.
        coverage_ratio: of the allocated GPU-hours, those that were looked at.
    """

    measure: str
    key: str
    gpu_hours: float
    busy_ratio: Number | Estimate
    coverage_ratio: Number


@dataclass(frozen=True)
class FleetReport:
    """The report.

    Args:
        rows: in the files; refused: of them, those that could not be used.
        since, until: first submission or start, and the moment the records end; ISO 8601, "" without dates.
        week: GPUs allocated on average by weekday (Monday first, UTC) and hour.
        histogram: GPU-hours by busy ratio in ten steps from 0 to 1; missing where nobody looked.
        losses: of the ledger, the three places where allocated time is lost.
        money_per_busy_hour: price times allocated over busy.
        observed: by a Prometheus, in the time of the records; all teams first.
        observed_waits: of its histograms, of jobs that started; all teams first.
    """

    sources: tuple[str, ...]
    rows: int
    jobs: int
    refused: tuple[Refused, ...]
    since: str
    until: str
    total: FleetGroup
    by_team: tuple[FleetGroup, ...]
    by_user: tuple[FleetGroup, ...]
    by_size: tuple[FleetGroup, ...]
    curves: tuple[SurvivalCurve, ...]
    week: tuple[tuple[float, ...], ...] | Missing
    histogram: tuple[float, ...] | Missing
    pooling: Pooling | Missing
    losses: tuple[Loss, ...]
    price: Number
    money_per_busy_hour: Number
    notes: tuple[str, ...]
    observed: tuple[Observed, ...] = ()
    observed_waits: tuple[Waits, ...] = ()
    schema_version: int = field(default=FLEET_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; a number that is not known is ``{"missing": why}``."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded
