"""From what the driver lists to the notebooks that hold the devices.

A process belongs to a kernel if the kernel is its ancestor, if it was seen below the kernel earlier, or
if it carries the kernel's tag in its environment; pid and start time must match. Whatever cannot be told
is unattributed, with the reason. In a container the driver may list pids of another namespace, so kernels
also report themselves what they hold, and that counts where the driver lists none of their processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jupyter_gpuprof.analysis.owner import Owners
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.records.devices import (
    Attribution,
    DeviceProcess,
    DeviceReading,
    Holder,
    Snapshot,
    Unattributed,
    UnattributedProcess,
)
from jupyter_gpuprof.records.processes import KernelProcess, KernelReport, ProcessFacts
from jupyter_gpuprof.records.reading import Missing, Number

#: An idle device has a few MB in use by nobody.
FREE_BELOW_BYTES = 64 * 1024**2
_NO_REPORT = Missing("the kernel does not report")


def attribute(
    snapshot: Snapshot,
    processes: Iterable[ProcessFacts],
    kernels: Iterable[KernelProcess],
    reports: Iterable[KernelReport] = (),
    *,
    own_uid: int | None = None,
    server_pid: int | None = None,
) -> Attribution:
    """Who holds what.

    Args:
        snapshot: the devices.
        processes: the kernels' trees and what the driver lists, as of about the same moment.
        kernels: this server's, and those that are gone while something of them may be left.
        reports: what kernels say of themselves; the latest of a kernel and device counts.
        own_uid: whose processes may belong to a kernel by their tag alone.
        server_pid: this server, for the words about what is not attributed.
    """
    owners = Owners(ProcessTree(processes), tuple(kernels), own_uid, server_pid)
    latest = _latest(owners, reports, snapshot.devices)
    holders: list[Holder] = []
    rest: list[Unattributed] = []
    for device in snapshot.devices:
        here = {kernel: report for (kernel, uuid), report in latest.items() if uuid == device.uuid}
        found, other = _on_device(device, owners, here)
        holders += found
        rest.append(other)
    listed = {device.uuid for device in snapshot.devices}
    for (kernel, uuid), report in latest.items():
        if uuid not in listed:
            holders.append(
                _reported(kernel, uuid, report, owners, Missing("the driver does not list the device"))
            )
    holding = [holder for holder in holders if holder.pids or holder.held_bytes != 0]
    return Attribution(tuple(holding), tuple(rest))


def is_free(device: DeviceReading) -> bool | Missing:
    """Whether nobody holds the device: nobody is listed and no more is used than by an idle device."""
    if isinstance(device.used_bytes, Missing):
        return device.used_bytes
    if device.processes and not isinstance(device.processes, Missing):
        return False
    if device.used_includes_reserved:
        return Missing("the driver is old and counts what it keeps for itself as used")
    return device.used_bytes < FREE_BELOW_BYTES


def work_of(pid: int, device: DeviceReading) -> Number:
    """How much of the time since the last reading a listed process worked on the device.

    A process without a sample did nothing, if the samples that there are belong to listed processes (else
    they may be of other pids for the same ones). A device without any work had none of this process.
    """
    if not isinstance(device.work, Missing):
        sampled = {work.pid: work.sm_ratio for work in device.work}
        ratio = sampled.get(pid)
        if ratio is not None and not isinstance(ratio, Missing):
            return ratio
        if ratio is None and sampled and sampled.keys() <= _listed(device):
            return 0.0
    if device.utilisation_ratio == 0:
        return 0.0
    return Missing("the driver does not tell the work of this process")


def _listed(device: DeviceReading) -> set[int]:
    return set() if isinstance(device.processes, Missing) else {process.pid for process in device.processes}


def _latest(
    owners: Owners, reports: Iterable[KernelReport], devices: tuple[DeviceReading, ...]
) -> dict[tuple[KernelProcess, str], KernelReport]:
    """The last report of each kernel about each device; reports of kernels that are gone are history."""
    latest: dict[tuple[KernelProcess, str], KernelReport] = {}
    for report in sorted(reports, key=lambda report: report.at_s):
        kernel = owners.of_report(report.id)
        if kernel is not None:
            latest[kernel, _device_uuid(report, devices)] = report
    return latest


def _device_uuid(report: KernelReport, devices: tuple[DeviceReading, ...]) -> str:
    """The driver's name of the reported device; the report's own where the driver does not list it."""
    for device in devices:
        if report.device_uuid and _bare(device.uuid) == _bare(report.device_uuid):
            return device.uuid
        if not report.device_uuid and device.index == report.device_index:
            return device.uuid
    return report.device_uuid


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def _on_device(
    device: DeviceReading, owners: Owners, reports: dict[KernelProcess, KernelReport]
) -> tuple[list[Holder], Unattributed]:
    owned: dict[KernelProcess, list[DeviceProcess]] = {}
    strangers: list[UnattributedProcess] = []
    for process in () if isinstance(device.processes, Missing) else device.processes:
        owner = owners.of_listed(process.pid)
        if isinstance(owner, Missing):
            strangers.append(UnattributedProcess(process.pid, process.used_bytes, owner.reason))
        else:
            owned.setdefault(owner, []).append(process)
    holders = [_listed_holder(k, device, found, reports.get(k), owners) for k, found in owned.items()]
    nothing = 0.0 if device.utilisation_ratio == 0 else Missing("the driver lists no process of this kernel")
    for kernel, report in reports.items():
        if kernel not in owned:
            holders.append(_reported(kernel, device.uuid, report, owners, nothing))
    why = device.processes.reason if isinstance(device.processes, Missing) else ""
    holders = _fitted(holders, device.used_bytes)
    return holders, Unattributed(device.uuid, _left(holders, device.used_bytes), tuple(strangers), why)


def _listed_holder(
    kernel: KernelProcess,
    device: DeviceReading,
    processes: list[DeviceProcess],
    report: KernelReport | None,
    owners: Owners,
) -> Holder:
    used = [process.used_bytes for process in processes]
    work = [work_of(process.pid, device) for process in processes]
    said = _reported(kernel, device.uuid, report, owners, _most(work))
    unknown = next((value for value in used if isinstance(value, Missing)), None)
    held = sum(value for value in used if not isinstance(value, Missing))
    if unknown is not None:
        held_bytes = unknown if isinstance(said.held_bytes, Missing) else said.held_bytes
    else:
        held_bytes = held
    return replace(said, pids=tuple(sorted(process.pid for process in processes)), held_bytes=held_bytes)


def _most(work: list[Number]) -> Number:
    """The largest; missing where one that is missing might be larger."""
    known = [ratio for ratio in work if not isinstance(ratio, Missing)]
    unknown = [ratio for ratio in work if isinstance(ratio, Missing)]
    return unknown[0] if unknown and not any(known) else max(known)


def _reported(
    kernel: KernelProcess, uuid: str, report: KernelReport | None, owners: Owners, work: Number
) -> Holder:
    allocated = _NO_REPORT if report is None else report.allocated_bytes
    reserved = _NO_REPORT if report is None else report.reserved_bytes
    return Holder(
        kernel_id=kernel.kernel_id,
        kernel=kernel.id,
        path=kernel.path,
        device_uuid=uuid,
        pids=(),
        held_bytes=allocated if isinstance(reserved, Missing) else reserved,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        work_ratio=work,
        kernel_alive=owners.alive(kernel),
    )


def _fitted(holders: list[Holder], used_bytes: Number) -> list[Holder]:
    """The driver's total and the parts are read some time apart: parts that exceed it are scaled to fit."""
    total = sum(h.held_bytes for h in holders if not isinstance(h.held_bytes, Missing))
    if isinstance(used_bytes, Missing) or total <= used_bytes:
        return holders
    return [
        h
        if isinstance(h.held_bytes, Missing)
        else replace(h, held_bytes=int(h.held_bytes * used_bytes // total))
        for h in holders
    ]


def _left(holders: list[Holder], used_bytes: Number) -> Number:
    if isinstance(used_bytes, Missing):
        return used_bytes
    held = 0.0
    for holder in holders:
        if isinstance(holder.held_bytes, Missing):
            return Missing("what one of the kernels holds is not known")
        held += holder.held_bytes
    return int(used_bytes - held)
