"""The ledger's notebooks as jobs: one for each stretch of hours in which a notebook held devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpuprof.records.fleet import Job, JobRecords
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.store.database import open_database, readable

_HOUR_S = 3600.0
_NO_QUEUE = Missing("a notebook takes a device without a queue")


@dataclass
class _Stretch:
    first: int
    last: int
    held_s: float = 0.0
    busy_s: float = 0.0
    seen_s: float = 0.0
    devices: set[str] = field(default_factory=set)


def ledger_jobs(path: Path | None = None) -> JobRecords:
    """The jobs of the ledger file; their wait is not told, since nothing queues for a notebook.

    Args:
        path: another file than ``database_path``.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    with readable(), open_database(path) as database:
        rows = database.execute(
            "SELECT user, notebook, hour, device_uuid, state, SUM(seconds) FROM device_seconds"
            " WHERE state NOT IN ('free', 'reserved_idle') AND notebook != ''"
            " GROUP BY 1, 2, 3, 4, 5 ORDER BY user, notebook, hour"
        ).fetchall()
    jobs: list[Job] = []
    stretch, whose = _Stretch(0, -2), ("", "")
    for user, notebook, hour, device, state, seconds in rows:
        if (user, notebook) != whose or hour > stretch.last + 1:
            jobs += _job(whose, stretch)
            stretch, whose = _Stretch(hour, hour), (user, notebook)
        stretch.last = hour
        stretch.devices.add(device)
        stretch.held_s += seconds
        stretch.busy_s += seconds if state == "busy" else 0.0
        stretch.seen_s += 0.0 if state == "unknown" else seconds
    jobs += _job(whose, stretch)
    ends = [float(job.end_s) for job in jobs if not isinstance(job.end_s, Missing)]
    until: Number = max(ends) if ends else Missing("the ledger is empty")
    return JobRecords(("the ledger",), tuple(jobs), len(jobs), until_s=until)


def _job(whose: tuple[str, str], stretch: _Stretch) -> list[Job]:
    if not stretch.devices:
        return []
    gpus, start_s = len(stretch.devices), stretch.first * _HOUR_S
    seen: Number = Missing("nobody looked at the devices")
    return [
        Job(
            job_id=f"{whose[1]} {stretch.first}",
            team="",
            user=whose[0],
            gpus=gpus,
            submit_s=_NO_QUEUE,
            start_s=start_s,
            end_s=(stretch.last + 1) * _HOUR_S,
            ran_s=stretch.held_s / gpus,
            state="completed",
            busy_ratio=stretch.busy_s / stretch.seen_s if stretch.seen_s else seen,
        )
    ]
