"""The fleet: jobs as the site's own records tell them, and what could not be read of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from jupyter_gpuprof.records.reading import Missing, Number

JobState = Literal["pending", "running", "completed", "failed", "cancelled"]

NOT_TOLD = Missing("the record does not tell")


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a scheduler, or one stretch in which a notebook held devices.

    Times are seconds since 1970 (UTC), or since the beginning of a trace that has no dates.

    Args:
        team: whose quota it ran on: an account, a queue, a virtual cluster; "" where there are none.
        gpus: asked for or given; a fraction where devices are shared.
        submit_s, start_s, end_s: missing for what has not happened, or is not told.
        ran_s: for how long it held its GPUs so far, without gaps between attempts.
        priority_class: as the scheduler calls it.
        nodes: on how many machines.
        limit_s: the time limit that was asked for.
        busy_ratio: share of its GPU time in which the devices worked, where somebody looked.
    """

    job_id: str
    team: str
    user: str
    gpus: Number
    submit_s: Number
    start_s: Number
    end_s: Number
    ran_s: Number
    state: JobState
    priority_class: str = ""
    nodes: int = 1
    limit_s: Number = NOT_TOLD
    busy_ratio: Number = NOT_TOLD

    @property
    def gpu_s(self) -> float:
        """Device seconds it held; 0 where GPUs or time are not told."""
        if isinstance(self.gpus, Missing) or isinstance(self.ran_s, Missing):
            return 0.0
        return float(self.gpus * self.ran_s)


@dataclass(frozen=True)
class Refused:
    """Rows that could not be used: why, how many, and where the first of them is."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True, eq=False)
class TeamSeries:
    """GPUs of one team's partition, at equal distances in time.

    Args:
        time_s: seconds since 1970, UTC.
        capacity, running, pending: GPUs there are, allocated, and asked for by jobs in the queue.
    """

    team: str
    time_s: np.ndarray[Any, Any]
    capacity: np.ndarray[Any, Any]
    running: np.ndarray[Any, Any]
    pending: np.ndarray[Any, Any]


@dataclass(frozen=True)
class JobRecords:
    """What was read of one or several files.

    Args:
        sources: the files' names, each with its kind.
        rows: how many rows, lines or items they have, without the steps of jobs.
        refused: which of them could not be used.
        until_s: the moment at which the records end: what ran then had not ended.
        notes: what a person should know.
        series: of files that count GPUs and tell no jobs.
    """

    sources: tuple[str, ...]
    jobs: tuple[Job, ...]
    rows: int
    refused: tuple[Refused, ...] = ()
    until_s: Number = NOT_TOLD
    notes: tuple[str, ...] = ()
    series: tuple[TeamSeries, ...] = ()
