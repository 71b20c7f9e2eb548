"""Remedies where the device is busy: is it too large, and which levers are free?"""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.catalogue import SmallerDevice
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.levers import KNOWN, Lever
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Remedy

#: So many slices of this device, and so many other devices, are named, the smallest first.
SLICES, DEVICES = 2, 4

_BATCH: Number = Missing("depends on how the step grows with the batch: %gpuprof batch measures it")
_DEVICE: Number = Missing("depends on the other device: run it there and compare")
_LEVER: Number = Missing("depends on the model: measure it")


def oversized_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """A larger batch, or a smaller device."""
    capacity, peak = facts.device.memory_bytes, facts.memory.peak_allocated_bytes
    if isinstance(capacity, Missing) or isinstance(peak, Missing) or not peak:
        return []
    return [
        Remedy(
            "oversized.batch",
            f"A larger batch: memory alone would allow about {0.9 * capacity / peak:.0f} times as much; "
            "run %gpuprof batch",
            _BATCH,
            "90 % of the capacity over the peak, if all of the peak grew with the batch",
        ),
        _smaller_device(peak, facts.smaller),
    ]


def _smaller_device(peak_bytes: float, smaller: tuple[SmallerDevice, ...]) -> Remedy:
    needed = f"{1.2 * peak_bytes / 2**30:.1f} GiB"
    slices = [device for device in smaller if device.of_this_device][:SLICES]
    others = [device for device in smaller if device.kind == "device"][:DEVICES]
    options = []
    if slices:
        options.append(f"a slice of this one ({', '.join(map(_slice, slices))})")
    if others:
        options.append(", ".join(map(_named, others)))
    named = f"A smaller device: {', or '.join(options)}" if options else "A smaller device"
    return Remedy(
        "oversized.device",
        f"{named}; the peak with a fifth of headroom is {needed}",
        _DEVICE,
        "; ".join(["measured peak of the allocator, plus 20 %", *_saving(smaller)]),
    )


def _named(device: SmallerDevice) -> str:
    return f"{device.name} ({device.memory_bytes / 2**30:.0f} GiB)"


def _slice(device: SmallerDevice) -> str:
    return f"MIG {device.name.rpartition(' ')[2]}"


def _saving(smaller: tuple[SmallerDevice, ...]) -> list[str]:
    """The most that can be saved in an hour, where the person set prices."""
    best, most = None, 0.0
    for device in smaller:
        if not isinstance(device.saving_per_hour, Missing) and device.saving_per_hour > most:
            best, most = device, float(device.saving_per_hour)
    if best is None:
        return []
    of = f" of {best.priced}" if best.priced else ""
    return [f"{best.name} costs {most:.2f} less per hour at your prices{of}"]


def free_levers(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """Levers that are not in use yet, then those of which it could not be told."""
    if facts.levers is None:
        names = ", ".join(lever.name for lever in KNOWN)
        how = "whether they are on was not looked at: profile the loop live"
        return [Remedy("size.levers", f"Look for levers that are still free: {names}", _LEVER, how)]
    used = [lever for lever in facts.levers if lever.state == "on"]
    free = [_free(lever) for lever in facts.levers if lever.state == "off"]
    free += [_untold(lever) for lever in facts.levers if lever.state == "unknown"]
    if not used:
        return free
    already = "on already: " + "; ".join(map(_with_detail, used))
    if not free:
        return [Remedy("size.levers", "All levers that could help here are on", _LEVER, already)]
    first = free[0]
    return [Remedy(first.id, first.title, _LEVER, f"{first.how}; {already}", first.setting), *free[1:]]


def _free(lever: Lever) -> Remedy:
    return Remedy(
        f"size.{lever.id}",
        f"Try {lever.name}; it helps when {lever.helps_when}",
        _LEVER,
        f"off: {lever.detail}",
        lever.setting,
    )


def _untold(lever: Lever) -> Remedy:
    return Remedy(
        f"size.{lever.id}",
        f"Check {lever.name}; it helps when {lever.helps_when}",
        _LEVER,
        f"whether it is on could not be told: {lever.detail}",
        lever.setting,
    )


def _with_detail(lever: Lever) -> str:
    return f"{lever.name} ({lever.detail})" if lever.detail else lever.name
