"""Collects jobs from a file's rows: what makes no sense is counted and its first place kept."""

from __future__ import annotations

import dataclasses
import math
import re
from datetime import datetime, tzinfo

from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, Refused, TeamSeries
from jupyter_gpuprof.records.reading import Missing, Number

#: What schedulers write where there is no time yet.
_NO_TIME = frozenset({"", "unknown", "none", "n/a", "na", "nan", "null", "-", "invalid"})
_NOT_YET = Missing("has not happened")


#: Of one job; more is a slip of the pen.
_MOST_GPUS = 1_000_000
#: Moments between 0001 and 9999, which a date can tell.
_DATES_S = (-62_135_596_800.0, 253_402_300_799.0)


class BadRow(Exception):
    """A row that cannot be used; the message is the reason."""


class Tally:
    """Jobs and refused rows of one or several files.

    Args:
        zone: of times that are written without one.

    Attributes:
        rows: rows, lines or items that tell a job.
        notes: what a person should know.
    """

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.jobs: list[Job] = []
        self.series: list[TeamSeries] = []
        self.rows = 0
        self.notes: list[str] = []
        self.is_zone_guessed = False
        self._refused: dict[str, tuple[int, str]] = {}
        self._seen: set[tuple[object, ...]] = set()

    def add(self, job: Job, where: str) -> None:
        """Keep a job, unless it makes no sense or was there already."""
        reason = _nonsense(job)
        key = (job.job_id, job.team, job.submit_s, job.start_s)
        if not reason and key in self._seen:
            reason = "it is there twice"
        if reason:
            self.refuse(reason, where)
            return
        self._seen.add(key)
        self.jobs.append(job)

    def refuse(self, reason: str, where: str) -> None:
        """Count a row that cannot be used."""
        count, first = self._refused.get(reason, (0, where))
        self._refused[reason] = (count + 1, first)

    def refused(self) -> tuple[Refused, ...]:
        """Why and how many, most first."""
        found = (Refused(reason, count, first) for reason, (count, first) in self._refused.items())
        return tuple(sorted(found, key=lambda refused: -refused.count))

    def until_s(self) -> Number:
        """The last moment that any job tells of."""
        moments = [
            float(moment)
            for job in self.jobs
            for moment in (job.submit_s, job.start_s, job.end_s, _seen_until(job))
            if not isinstance(moment, Missing)
        ]
        return max(moments) if moments else NOT_TOLD

    def finished(self, until_s: Number) -> list[Job]:
        """The jobs, those that run with the time for which they have run."""
        jobs = []
        for job in self.jobs:
            is_untold = job.state == "running" and isinstance(job.ran_s, Missing)
            if is_untold and not isinstance(until_s, Missing) and not isinstance(job.start_s, Missing):
                job = dataclasses.replace(job, ran_s=until_s - job.start_s)
            jobs.append(job)
        return jobs

    def time(self, text: object) -> Number:
        """A moment in seconds: ISO 8601 with or without a zone, or plain seconds.

        Raises:
            BadRow: it is none of them.
        """
        words = str("" if text is None else text).strip()
        if words.lower() in _NO_TIME:
            return _NOT_YET
        if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", words):
            return _in_dates(float(words))
        try:
            moment = datetime.fromisoformat(words.replace("Z", "+00:00").replace("/", "-"))
        except ValueError:
            raise BadRow("a time cannot be read") from None
        if moment.tzinfo is None:
            self.is_zone_guessed = True
            moment = moment.replace(tzinfo=self.zone)
        return _in_dates(moment.timestamp())


def _in_dates(moment_s: float) -> float:
    if not _DATES_S[0] <= moment_s <= _DATES_S[1]:
        raise BadRow("a time is before the year 1 or after 9999")
    return moment_s


def number(text: object) -> Number:
    """A plain number; missing where there is none.

    Raises:
        BadRow: it is something else.
    """
    words = str("" if text is None else text).strip()
    if words.lower() in _NO_TIME:
        return NOT_TOLD
    try:
        value = float(words)
    except ValueError:
        raise BadRow("a number cannot be read") from None
    if not math.isfinite(value):
        return NOT_TOLD
    return value


def _seen_until(job: Job) -> Number:
    if job.state == "running" and not isinstance(job.start_s, Missing) and not isinstance(job.ran_s, Missing):
        return job.start_s + job.ran_s
    return NOT_TOLD


def _nonsense(job: Job) -> str:
    submit, start, end = job.submit_s, job.start_s, job.end_s
    if not isinstance(job.gpus, Missing) and job.gpus < 0:
        return "it has less than no GPU"
    if not isinstance(job.gpus, Missing) and job.gpus > _MOST_GPUS:
        return f"it has more than {_MOST_GPUS:,} GPUs"
    if not isinstance(job.ran_s, Missing) and job.ran_s < 0:
        return "it ran for less than no time"
    if not isinstance(start, Missing):
        if not isinstance(submit, Missing) and start < submit:
            return "it starts before it was submitted"
        if not isinstance(end, Missing) and end < start:
            return "it ends before it starts"
    elif not isinstance(submit, Missing) and not isinstance(end, Missing) and end < submit:
        return "it ends before it was submitted"
    return ""
