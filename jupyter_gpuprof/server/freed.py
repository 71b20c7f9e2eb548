"""Whether devices are free after something was ended: what they show then, against before."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sighting import Sighting


def why_not_free(sighting: Sighting, uuids: tuple[str, ...], pids: set[int], freed: Number) -> str:
    """Why the devices cannot be said to be free of these processes, or ""."""
    for device in sighting.snapshot.devices:
        if device.uuid not in uuids:
            continue
        if not isinstance(device.processes, Missing):
            left = sorted({process.pid for process in device.processes} & pids)
            if left:
                return f"Memory is still held by process {', '.join(map(str, left))}."
        elif isinstance(freed, Missing):
            return f"It cannot be seen whether the memory is free: {freed.reason}."
        elif freed <= 0:
            return "As much memory is in use as before."
    return "" if uuids else "It is not known which device was held."


def used_bytes(sighting: Sighting, uuids: tuple[str, ...]) -> Number:
    """Bytes in use on these devices together."""
    total: float | int = 0
    for device in sighting.snapshot.devices:
        if device.uuid in uuids:
            if isinstance(device.used_bytes, Missing):
                return device.used_bytes
            total += device.used_bytes
    return total


def freed_bytes(before: Number, after: Number) -> Number:
    """Bytes that came free between two looks; others may have taken some meanwhile."""
    if isinstance(before, Missing) or isinstance(after, Missing):
        return before if isinstance(before, Missing) else after
    return max(before - after, 0)
