"""What a replay came to, and what a change of policy would bring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.fleet import Refused
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

FLEET_SCHEMA_VERSION = 1

#: In the words of the question "cut cost without slowing the team down": a result keeps the wait, a cut
#: pays with it.
FleetLabel = Literal["result", "cut", "no saving", "unclear"]

_NOT_ASKED = Missing("not asked for")


@dataclass(frozen=True)
class Waits:
    """Queue waits of some jobs in seconds; who still waits counts as waiting longer than so far.

    Args:
        key: a team, a class, a size, "" for all.
        pending: jobs that had not started, of `jobs`.
        p50_s, p90_s, p99_s: the wait within which so many started (Kaplan-Meier); missing where so many
            did not.
        longest_s: the longest wait that was seen, of a job that started or of one that still waited.
    """

    key: str
    jobs: int
    pending: int
    p50_s: Number
    p90_s: Number
    p99_s: Number
    longest_s: float


@dataclass(frozen=True)
class Outcome:
    """What came of the jobs under one policy.

    Args:
        gpus, spot_gpus: the pool.
        waits, by_team, by_class: in the queue, all attempts together.
        never: jobs that no GPUs could ever be given, or that never finished.
        makespan_s: from the first submission to the last end.
        used_ratio: GPU time held by jobs over all there was, of stable GPUs.
        useful_gpu_hours: work that was done and kept; paid_gpu_hours: stable ones there were, and spot
            ones in use.
        lost_gpu_hours: work that had to be redone; overhead_gpu_hours: stopping and resuming.
        stopped: how often a job had to give way, or lost spot capacity.
        claims: how many; slowest_claim_s: of them; bound_s: T_claim, which it must be within.
        money_per_useful_hour: paid over useful, times the price; without a price in GPU-hours.
    """

    policy: str
    gpus: int
    spot_gpus: int
    jobs: int
    waits: Waits
    by_team: tuple[Waits, ...]
    by_class: tuple[Waits, ...]
    never: int
    makespan_s: float
    used_ratio: Number
    useful_gpu_hours: float
    paid_gpu_hours: float
    lost_gpu_hours: float
    overhead_gpu_hours: float
    stopped: int
    claims: int
    slowest_claim_s: Number
    bound_s: Number
    money_per_useful_hour: Number


@dataclass(frozen=True)
class FleetVerdict:
    """What the change brings.

    Args:
        cost_ratio: what a useful GPU-hour costs after over before.
        p90_change_s: the wait after minus before, with an interval from resampled weeks.
    """

    label: FleetLabel
    sentence: str
    cost_ratio: Number
    p90_change_s: Estimate | Number


@dataclass(frozen=True)
class Tried:
    """A size of the pool in a search: whether each team's p90 stays within its limit, and who fails."""

    gpus: int
    is_enough: bool
    worst: str
    p90_s: Number
    limit_s: float


@dataclass(frozen=True)
class Search:
    """The smallest pool that keeps each team's p90 within its limit; gpus is missing if none does."""

    gpus: Number
    tried: tuple[Tried, ...]


@dataclass(frozen=True)
class WhatIf:
    """One point of the what-if page: a size, the share that is guaranteed, how much may be borrowed."""

    gpus: int
    guaranteed_ratio: float
    borrow_ratio: float
    outcome: Outcome


@dataclass(frozen=True)
class FleetComparison:
    """Two policies over the same jobs.

    Args:
        before, after: `before` is what there is: the records, or each team in its reservation.
        refused: jobs that could not be replayed.
        notes: what a person should know.
    """

    before: Outcome
    after: Outcome
    verdict: FleetVerdict
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    search: Search | Missing = _NOT_ASKED
    schema_version: int = field(default=FLEET_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; a number that is not known is ``{"missing": why}``."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded
