"""Samples to seconds: what every second of a device was, so that the states add up to all of it.

A sample of a device says for which share of the time it worked, so a second may be split: 20 % busy for
ten seconds are two busy seconds and eight others. What the others are depends on who holds the device.
Where a run knows from its own steps how long the device waited for input, that share is input stall,
even if the driver's coarse figure says busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jupyter_gpuprof.records.ledger import Allocation, DeviceSample, Holding, LedgerRow, State
from jupyter_gpuprof.records.reading import Missing

#: A sample speaks for the time since the last one, but for no longer than so many planned intervals.
GAP_INTERVALS = 3
#: Less memory in use than this is a device that nobody holds (the driver's own use is some MiB).
_HELD_BYTES = 64 * 2**20
#: A device that works less than this is not working.
_WORKS_RATIO = 0.01
_NOBODY = Holding("", "", "unknown")
#: What only a machine that is allocated to somebody has in its environment.
_ALLOCATED_BY = ("JUPYTERHUB_USER", "JUPYTERHUB_API_TOKEN", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID")


def detect_allocation(environ: Mapping[str, str]) -> Allocation:
    """Whether the devices that are seen are this server's own, from the environment it runs in."""
    return "visible" if any(environ.get(name) for name in _ALLOCATED_BY) else "held"


def account(
    samples: Sequence[DeviceSample],
    known: Mapping[str, str],
    *,
    ended_unix_s: float,
    passed_s: float,
    interval_s: float,
    allocation: Allocation,
) -> list[LedgerRow]:
    """The rows of one tick: each visible device's time since the last tick, once.

    Args:
        samples: of this tick, one for each device that could be reached.
        known: devices seen before, UUID to name; those that are in no sample are unknown.
        ended_unix_s: when the samples were taken, in seconds since 1970.
        passed_s: monotonic seconds since the last tick.
        interval_s: planned seconds between two ticks. After a longer gap than `GAP_INTERVALS` of them a
            sample speaks for one of them only, and the time before is unknown.
        allocation: what a device that nobody holds is.
    """
    if passed_s <= 0:
        return []
    seen_s = passed_s if passed_s <= GAP_INTERVALS * interval_s else interval_s
    rows: list[LedgerRow] = []
    for sample in samples:
        name, uuid = sample.device_name, sample.device_uuid
        for hour, seconds in _hours(ended_unix_s - passed_s, passed_s - seen_s):
            rows.append(LedgerRow(hour, uuid, name, "unknown", seconds))
        for hour, seconds in _hours(ended_unix_s - seen_s, seen_s):
            rows += _divide(sample, hour, seconds, allocation)
    for uuid in known.keys() - {sample.device_uuid for sample in samples}:
        for hour, seconds in _hours(ended_unix_s - passed_s, passed_s):
            rows.append(LedgerRow(hour, uuid, known[uuid], "unknown", seconds))
    return rows


def _divide(sample: DeviceSample, hour: int, seconds: float, allocation: Allocation) -> Iterator[LedgerRow]:
    """The seconds that one sample speaks for, by state and holder."""
    holdings = _holdings(sample)
    if holdings is None:
        idle: State = "reserved_idle" if allocation == "visible" else "free"
        parts: Iterable[tuple[State, float]] = [(idle, seconds)]
        yield from _rows(sample, hour, _NOBODY, parts)
        return
    # What is active is what the time goes to; else all holders have an equal part in the idleness.
    shared = [h for h in holdings if h.doing == "active"] or holdings
    for holding in shared:
        yield from _rows(sample, hour, holding, _parts(sample, holding, seconds / len(shared)))


def _holdings(sample: DeviceSample) -> Sequence[Holding] | None:
    """Who holds the device; None where certainly nobody does."""
    if isinstance(sample.holdings, Missing):
        return [_NOBODY]
    if sample.holdings:
        return sample.holdings
    used, busy = sample.used_bytes, sample.busy_ratio
    works = isinstance(busy, Missing) or busy > _WORKS_RATIO
    # Processes of other containers hold memory and work without being listed.
    if isinstance(used, Missing):
        return [_NOBODY] if works else None
    return [_NOBODY] if used >= _HELD_BYTES or (works and not isinstance(busy, Missing)) else None


def _parts(sample: DeviceSample, holding: Holding, seconds: float) -> list[tuple[State, float]]:
    """The seconds of one holder by state."""
    waits = 0.0 if isinstance(holding.input_ratio, Missing) else min(max(holding.input_ratio, 0.0), 1.0)
    if holding.doing != "active":
        waits = 0.0
    if isinstance(sample.busy_ratio, Missing):
        return [("input_stall", waits * seconds), ("unknown", (1 - waits) * seconds)]
    busy = min(max(sample.busy_ratio, 0.0), 1.0 - waits)
    rest: State
    if holding.doing == "active":
        rest = "host_idle"
    elif holding.doing == "orphan":
        rest = "orphan"
    elif holding.doing == "unknown" and isinstance(sample.holdings, Missing):
        rest = "unknown"
    else:
        rest = "host_idle" if holding.doing == "unknown" and busy > _WORKS_RATIO else "held_idle"
    return [
        ("busy", busy * seconds),
        ("input_stall", waits * seconds),
        (rest, (1.0 - busy - waits) * seconds),
    ]


def _rows(
    sample: DeviceSample, hour: int, holding: Holding, parts: Iterable[tuple[State, float]]
) -> Iterator[LedgerRow]:
    for state, seconds in parts:
        if seconds > 1e-9:  # no rows for what rounding leaves
            yield LedgerRow(
                hour=hour,
                device_uuid=sample.device_uuid,
                device_name=sample.device_name,
                state=state,
                seconds=seconds,
                samples=0 if state == "unknown" else 1,
                user=holding.user,
                notebook=holding.notebook,
                run_id=holding.run_id,
                study=holding.study,
                trial=holding.trial,
                measure=sample.measure,
            )


def _hours(begun_unix_s: float, seconds: float) -> Iterator[tuple[int, float]]:
    """A stretch of time cut at the full hours."""
    at_s, end_s = begun_unix_s, begun_unix_s + seconds
    while end_s - at_s > 1e-9:
        hour = int(at_s // 3600)
        until_s = min((hour + 1) * 3600.0, end_s)
        yield hour, until_s - at_s
        at_s = until_s
