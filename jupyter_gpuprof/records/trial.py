"""A change, tried: the same cell with and without it, interleaved, and what that showed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.run import Device, Label, Shares

TRIAL_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Variant:
    """The cell without the change, or with it.

    Args:
        label: the verdict over all its rounds.
        sentence: why, in one sentence.
        step_s: the mean step in seconds, all in but for validation, with its interval.
        rounds_s: the mean step of each round, in the order they ran.
        steps: counted steps over all rounds.
        samples_per_step: the batch size, where it is known.
        shares: of the last round.
        peak_allocated_bytes: the largest of its rounds.
    """

    label: Label
    sentence: str
    step_s: Estimate
    rounds_s: tuple[float, ...]
    steps: int
    samples_per_step: Number
    shares: Shares
    peak_allocated_bytes: Number


@dataclass(frozen=True)
class Trial:
    """What ``%gpuprof try`` measured.

    Args:
        settings: what was changed, as ``name=value``.
        order: the order of the rounds, A without and B with the change.
        unit: what `ratio` compares: the time of a step, or of a sample where the batch size changed.
        ratio: time without over time with the change: above 1 the change is faster.
        predicted: the same, as it was predicted before.
        predicted_how: how.
        lines: the exact lines to change in the cell.
        not_applied: what of the change could not be made, and why.
    """

    trial_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    device: Device
    settings: tuple[str, ...]
    order: str
    unit: Literal["step", "sample"]
    before: Variant
    after: Variant
    ratio: Estimate
    predicted: Number = Missing("nothing was predicted")
    predicted_how: str = ""
    lines: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=TRIAL_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The trial as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> Trial:
        """The trial of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a trial (NewerSchemaError: of a newer version).
        """
        return decode(Trial, data, newest=TRIAL_SCHEMA_VERSION)
