"""Throughput and memory over the batch size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.run import Device

BATCH_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class BatchPoint:
    """One batch size, as it was measured; running out of memory is a measurement, too.

    `samples_per_s` and `step_s` come with the counted steps, `peak_bytes` from the framework's allocator.
    `why` says what happened where there are no numbers.
    """

    batch_size: int
    outcome: Literal["measured", "out of memory", "failed"]
    samples_per_s: Estimate | Missing
    step_s: Number
    peak_bytes: Number
    why: str = ""


@dataclass(frozen=True)
class MemoryFit:
    """``peak = base + per_sample * batch`` by least squares; `worst_ratio` is the largest relative error."""

    base_bytes: float
    per_sample_bytes: float
    worst_ratio: float


@dataclass(frozen=True)
class BatchCurve:
    """What ``%gpuprof batch`` measured.

    Args:
        points: by batch size, smallest first.
        until_memory: the share of the device's memory that may be filled.
        memory: the fit of the peak against the batch.
        largest_batch: the largest batch that fits into that share by the fit and by what was measured.
        plateau_batch: from this batch on throughput does not grow any more (missing if it still does).
        sentence: what follows, in one sentence.
    """

    curve_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    device: Device
    points: tuple[BatchPoint, ...]
    until_memory: float
    memory: MemoryFit | Missing
    largest_batch: Number
    plateau_batch: Number
    sentence: str
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=BATCH_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The curve as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> BatchCurve:
        """The curve of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a curve (NewerSchemaError: of a newer version).
        """
        return decode(BatchCurve, data, newest=BATCH_SCHEMA_VERSION)
