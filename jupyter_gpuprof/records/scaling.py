"""Throughput over the number of devices: what a job is worth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share

SCALING_SCHEMA_VERSION = 1

ScalingLabel = Literal[
    "scales",
    "communication-bound",
    "input-bound",
    "not worth more",
    "unclear",
]


@dataclass(frozen=True)
class ScalingPoint:
    """One device count, over all its repeats.

    Args:
        count: devices (ranks).
        throughput: samples per second of all ranks together, the mean over repeats.
        low: end of its interval of about 95 % (`throughput` itself with a single repeat).
        high: the other end.
        efficiency: throughput over count times the throughput of 1 (of the smallest measured count, per
            device, where 1 was not measured).
        exposed_communication: share of the wall time of the ranks, where it was measured.
        exposed_input: the same for waiting for input.
        peak_memory_bytes: the largest of any rank.
        repeats: the throughput of each repeat.
        startup_s: from the launch to the first counted step, mean over repeats.
        outcome: "measured", "out of memory", "failed", "skipped" or "cancelled".
        why: what happened where nothing was measured.
    """

    count: int
    throughput: Number
    low: Number
    high: Number
    efficiency: Number
    exposed_communication: Share
    exposed_input: Share
    peak_memory_bytes: Number
    repeats: tuple[float, ...]
    startup_s: Number = Missing("not measured")
    outcome: Literal["measured", "out of memory", "failed", "skipped", "cancelled"] = "measured"
    why: str = ""


@dataclass(frozen=True)
class AmdahlFit:
    """``speedup(n) = 1 / (serial + (1 - serial) / n)``; `serial` is its serial fraction with an interval."""

    serial: Estimate


@dataclass(frozen=True)
class UslFit:
    """Gunther's law ``speedup(n) = n / (1 + contention (n-1) + coherency n (n-1))`` and its peak.

    `peak_count` is ``sqrt((1 - contention) / coherency)``, beyond which more devices are slower.
    """

    contention: float
    coherency: float
    peak_count: Estimate


@dataclass(frozen=True)
class FitCurve:
    """A law evaluated at device counts for drawing; shape of each: (n,).

    `speedup` and its interval are against the smallest measured count, which is ``counts[0]``.
    """

    law: Literal["Amdahl", "USL"]
    counts: tuple[float, ...]
    speedup: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    measured_to: float  # beyond it the curve is drawn dashed


@dataclass(frozen=True)
class ScalingFit:
    """The laws behind the curve; each missing with its reason."""

    amdahl: AmdahlFit | Missing
    usl: UslFit | Missing
    curve: FitCurve | Missing


@dataclass(frozen=True)
class CostRow:
    """What a count costs for the same work, relative to one device (or to the smallest measured count),
    and in money where prices are known."""

    count: int
    time_ratio: float  # of one device's time
    cost_ratio: float  # of one device's cost: device hours for the same work
    money_per_million_samples: Number = Missing("no price was given")


@dataclass(frozen=True)
class ScalingVerdict:
    """What follows from the curve."""

    label: ScalingLabel
    sentence: str
    reasons: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScalingProgress:
    """Where a scaling stands while it is measured; it is shown, not saved.

    Args:
        what: what runs now, in words: "4 devices, repeat 2, starting".
        done: how much of the whole scaling is done, 0 to 1.
        elapsed_s: since the beginning.
        running: the count that runs now and its throughput so far, samples per second.
    """

    what: str
    done: float
    elapsed_s: float
    running: tuple[int, float] | None = None


@dataclass(frozen=True)
class Scaling:
    """What ``%gpuprof scale`` measured.

    Args:
        mode: "weak" (the batch per device is fixed) or "strong" (the batch of all devices together is).
        backend: where the ranks ran: "local", "slurm".
        ranks: "devices", or "CPU processes" where there is no accelerator.
        steps: counted steps of each rank in each repeat.
        worth_it_count: the largest count that is worth it by the thresholds in `rule`.
        rule: those thresholds in words.
        costs: what each count costs for the same work.
        finished: False while counts are still to come, or after an interrupt.
    """

    scaling_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    mode: Literal["weak", "strong"]
    backend: str
    ranks: Literal["devices", "CPU processes"]
    device_name: str
    simulated: bool
    steps: int
    points: tuple[ScalingPoint, ...]
    fit: ScalingFit
    worth_it_count: Number
    rule: str
    costs: tuple[CostRow, ...]
    verdict: ScalingVerdict
    notes: tuple[str, ...] = ()
    finished: bool = True
    schema_version: int = field(default=SCALING_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> Scaling:
        """The record of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a scaling (NewerSchemaError: of a newer version).
        """
        return decode(Scaling, data, newest=SCALING_SCHEMA_VERSION)
