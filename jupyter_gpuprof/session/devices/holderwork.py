"""What the processes of a holder do and hold, from one look at devices and processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_gpuprof.analysis.attribution import FREE_BELOW_BYTES, work_of
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.records.devices import DeviceReading, Holder, Snapshot
from jupyter_gpuprof.records.idleness import Work
from jupyter_gpuprof.records.processes import KernelProcess, ProcessFacts
from jupyter_gpuprof.records.reading import Missing, Number

_UNREAD = Missing("its processes cannot be read")
_UNLISTED = Missing("the driver does not list it, which does not prove that it holds nothing")
_NO_REPORT = Missing("the kernel has not said")


def kernel_work(
    kernel: KernelProcess | None, holdings: Sequence[Holder], snapshot: Snapshot, tree: ProcessTree
) -> Work:
    """What the processes of a kernel do and hold.

    Args:
        kernel: with its descendants; None for one whose processes are elsewhere.
        holdings: what it holds, one for each device.
        snapshot: the devices.
        tree: the processes.
    """
    if kernel is None or kernel.id is None:
        return Work(cpu_s=_UNREAD, process_busy_ratio=_UNREAD, device_busy_ratio=_UNREAD)
    listed = [h for h in holdings if h.pids]
    reported = [
        h.allocated_bytes if isinstance(h.reserved_bytes, Missing) else h.reserved_bytes for h in holdings
    ]
    where = {h.device_uuid for h in holdings}
    devices = [d for d in snapshot.devices if d.uuid in where] or snapshot.devices
    return Work(
        cpu_s=tree.cpu_s({kernel.id, *kernel.descendants}),
        process_busy_ratio=_most([h.work_ratio for h in holdings], "it holds no device as far as is known"),
        device_busy_ratio=_most([busy(d) for d in devices], "there is no device"),
        driver_bytes=_sum([h.held_bytes for h in listed]) if listed else _unlisted(snapshot, tree),
        reported_bytes=_sum(reported) if reported else _NO_REPORT,
    )


def orphan_work(process: ProcessFacts, snapshot: Snapshot, tree: ProcessTree) -> Work:
    """What one process does and holds by itself."""
    pid = process.id.pid
    held = held_by(pid, snapshot)
    on = [d for d in snapshot.devices if d.uuid in dict(held)]
    return Work(
        cpu_s=process.cpu_s,
        process_busy_ratio=_most([work_of(pid, d) for d in on], "the driver does not list it"),
        device_busy_ratio=_most([busy(d) for d in on or snapshot.devices], "there is no device"),
        driver_bytes=_sum([size for _, size in held]) if held else _unlisted(snapshot, tree),
    )


def held_by(pid: int, snapshot: Snapshot) -> tuple[tuple[str, Number], ...]:
    """What the driver lists for a process: bytes by device UUID."""
    return tuple(
        (device.uuid, process.used_bytes)
        for device in snapshot.devices
        if not isinstance(device.processes, Missing)
        for process in device.processes
        if process.pid == pid
    )


def busy(device: DeviceReading) -> Number:
    """How much of the time since the last look a device worked for anybody.

    The counters of newer devices are averages of that time; the coarse figure of all others is one of the
    last moments, and says of a split device nothing.
    """
    if not isinstance(device.gpm, Missing) and not isinstance(device.gpm.active_ratio, Missing):
        return device.gpm.active_ratio
    return device.utilisation_ratio


def _unlisted(snapshot: Snapshot, tree: ProcessTree) -> Number:
    """What a process holds that is in no list: nothing, if no memory of any device is unaccounted for."""
    if snapshot.state == "no device":
        return 0
    for device in snapshot.devices:
        if isinstance(device.processes, Missing) or isinstance(device.used_bytes, Missing):
            return _UNLISTED
        sizes = [p.used_bytes for p in device.processes]
        known = sum(size for size in sizes if not isinstance(size, Missing))
        foreign = any(p.pid not in tree.by_pid for p in device.processes)
        if foreign or device.used_bytes - known >= FREE_BELOW_BYTES:
            return _UNLISTED
    return 0 if snapshot.devices else _UNLISTED


def _most(ratios: Iterable[Number], nothing: str) -> Number:
    """The largest; missing where one that is missing might be larger."""
    values = list(ratios)
    known = [value for value in values if not isinstance(value, Missing)]
    unknown = [value for value in values if isinstance(value, Missing)]
    if unknown and not any(known):
        return unknown[0]
    return max(known) if known else Missing(nothing)


def _sum(sizes: Iterable[Number]) -> Number:
    total: float | int = 0
    for size in sizes:
        if isinstance(size, Missing):
            return size
        total += size
    return total
