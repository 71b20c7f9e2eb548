"""The parts of a step: their plain names, which of them are known, and how wide their bars are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Device, Run, Shares
from jupyter_gpuprof.views.format import known, why

_NAMES = {
    "device_compute": "device compute",
    "exposed_communication": "communication",
    "exposed_input": "input wait",
    "copies": "copies",
    "host_gap": "host gap",
    "between.epoch_start": "epoch start",
    "between.validation": "validation",
    "between.checkpoint": "checkpoint",
    "between.other": "other host work",
}

#: Which part a label points at.
PART_OF_LABEL = {
    "input-bound": "exposed_input",
    "host-bound": "host_gap",
    "communication-bound": "exposed_communication",
    "oversized": "device_compute",
    "correctly sized": "device_compute",
    "compute-bound": "device_compute",
}


@dataclass(frozen=True)
class Part:
    """One measured part of the step."""

    key: str
    name: str
    share: Estimate


def part_name(key: str, run: Run) -> str:
    """The part in plain words; on the host clock, compute is not told as the device's."""
    return _part_name(key, run.device, run.clock)


def measured_parts(run: Run) -> list[Part]:
    """The parts that have a number, always in the same order."""
    return parts_of(run.shares, run.device, run.clock)


def parts_of(shares: Shares, device: Device, clock: str) -> list[Part]:
    """The same of shares, the device they were measured on, and the clock: "device" or "host"."""
    return [
        Part(key, _part_name(key, device, clock), share)
        for key, share in shares.items()
        if isinstance(share, Estimate) and known(share) is not None
    ]


def _part_name(key: str, device: Device, clock: str) -> str:
    if key == "device_compute" and clock == "host":
        return "compute (CPU)" if device.kind == "cpu" else "compute (host clock)"
    return _NAMES.get(key, key)


def missing_parts(run: Run) -> list[tuple[str, str]]:
    """The names of the parts that have no number, each with the reason."""
    gone = []
    for key, share in run.shares.items():
        if isinstance(share, Missing):
            gone.append((part_name(key, run), why(share)))
        elif known(share) is None:
            gone.append((part_name(key, run), "not a number"))
    return gone


def missing_words(run: Run) -> str:
    """The parts that have no number on one line, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing_parts(run):
        by_reason.setdefault(reason, []).append(name)
    return ", ".join(f"{' and '.join(names)} ({reason})" for reason, names in by_reason.items())


def compute_note(run: Run) -> str | None:
    """That the compute share holds the host gap too, where the two could not be told apart."""
    compute, gap = run.shares.device_compute, run.shares.host_gap
    if known(compute) is None or not isinstance(gap, Missing):
        return None
    return f"The share of {part_name('device_compute', run)} includes the host gap."


def bar_widths(values: Sequence[float]) -> list[float]:
    """Widths in percent, as large as the values and 100 in all; none if there is nothing to draw."""
    sizes = [max(value, 0.0) for value in values]
    total = sum(sizes)
    if not 0 < total < math.inf:
        return []
    return [100.0 * (size / total) for size in sizes]
