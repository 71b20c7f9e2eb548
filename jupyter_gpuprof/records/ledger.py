"""The ledger: what every second of every visible device was, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

LEDGER_SCHEMA_VERSION = 1

#: What a second of a device is; each is in exactly one of these.
State = Literal[
    "busy",  # the device worked
    "input_stall",  # it waited for a batch, by a run's own step timing
    "host_idle",  # it waited for the host while a cell, a run or background work was in progress
    "held_idle",  # a notebook that does nothing held it
    "orphan",  # a process whose kernel is gone held it
    "reserved_idle",  # it was allocated, and nobody held it
    "free",  # nobody held it
    "unknown",  # nobody looked, or could not read
]
STATES: tuple[State, ...] = get_args(State)

#: Whose the devices of this machine are: all that the server sees are its own ("visible": under
#: JupyterHub, Kubernetes, Slurm), or only those that somebody holds ("held": a shared machine).
Allocation = Literal["visible", "held"]

#: What a report is summed by.
By = Literal["notebook", "device", "user", "day"]


@dataclass(frozen=True)
class Holding:
    """Who holds a device at one sample, and what goes on there.

    Args:
        user, notebook: whose it is; "" where it cannot be told.
        doing: "active" (a cell, a run or background work), "idle", "orphan" or "unknown".
        run_id, study, trial: what it works on, "" for nothing that we know of.
        input_ratio: share of the time in which the device waits for input, by the run's step timing.
    """

    user: str
    notebook: str
    doing: Literal["active", "idle", "orphan", "unknown"]
    run_id: str = ""
    study: str = ""
    trial: str = ""
    input_ratio: Number = Missing("no run measures it")


@dataclass(frozen=True)
class DeviceSample:
    """One device at one sample.

    Args:
        measure: how busy was measured: "gr_active" or "util_nvml".
        busy_ratio: share of the time since the last sample in which the device worked.
        used_bytes: of its memory, without what the driver reserves.
        holdings: who holds it; missing where the list of processes cannot be read.
    """

    device_uuid: str
    device_name: str
    measure: str
    busy_ratio: Number
    used_bytes: Number
    holdings: tuple[Holding, ...] | Missing


@dataclass(frozen=True)
class LedgerRow:
    """Seconds of one device in one state for one holder within one hour.

    Args:
        hour: whole hours since 1970, UTC.
        seconds: how many of that hour.
        samples: behind them; 0 where nobody looked.
    """

    hour: int
    device_uuid: str
    device_name: str
    state: State
    seconds: float
    samples: int = 0
    user: str = ""
    notebook: str = ""
    run_id: str = ""
    study: str = ""
    trial: str = ""
    measure: str = ""


@dataclass(frozen=True)
class LedgerSum:
    """Seconds in one state on one day (ISO 8601, UTC) for one key of a report."""

    key: str
    day: str
    state: State
    measure: str
    seconds: float
    samples: int


@dataclass(frozen=True)
class LedgerGroup:
    """The sums of a report for one notebook, device, user or day, or for all.

    Args:
        key: its name, "" for what cannot be attributed.
        seconds: by state; the states add up to `capacity_s`.
        allocated_s: all but free.
        coverage_ratio: sampled over allocated seconds.
        busy_ratio: busy over allocated: a number, or below 90 % coverage an estimate whose interval
            takes what nobody saw for all idle and for all busy.
    """

    key: str
    seconds: Mapping[State, float]
    capacity_s: float
    allocated_s: float
    coverage_ratio: Number
    busy_ratio: Number | Estimate
    samples: int = 0

    @property
    def busy_s(self) -> float:
        """Device seconds that did work."""
        return self.seconds.get("busy", 0.0)


@dataclass(frozen=True)
class Loss:
    """One of the places where allocated time is lost, and what it costs."""

    place: str
    seconds: float
    money: Number


@dataclass(frozen=True)
class SameWork:
    """How many devices the work of `devices` at `busy_ratio` would need at `target_ratio`.

    ``worth = devices * busy_ratio`` and ``needed = ceil(worth / target_ratio)``: 8 devices at 20 % do the
    work of 1.6; at 60 % the same work fits on 3.
    """

    devices: int
    busy_ratio: float
    target_ratio: float
    worth: float
    needed: int


@dataclass(frozen=True)
class LedgerReport:
    """Where the GPU-hours went.

    Args:
        since, until: first and last day in it, ISO 8601, "" for an empty ledger.
        by: what `groups` are.
        groups: by allocated time, most first; days in their order.
        days: the sums of each day, for the picture.
        losses: input, reserved for nothing, held by what is finished or crashed.
        price: of one device hour, in whatever money.
        money_per_busy_hour: ``price * allocated / busy``.
        measures: how busy was measured; two of them cannot be compared.
        notes: what a person should know.
    """

    since: str
    until: str
    by: By
    groups: tuple[LedgerGroup, ...]
    total: LedgerGroup
    days: tuple[LedgerGroup, ...]
    losses: tuple[Loss, ...]
    same_work: SameWork | Missing
    price: Number
    money_per_busy_hour: Number
    devices: int
    measures: tuple[str, ...]
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=LEDGER_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values; a number that is not known is ``{"missing": why}``."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded
