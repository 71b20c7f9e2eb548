"""What the devices say of themselves, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.processes import ProcessId
from jupyter_gpuprof.records.reading import Missing, Number

#: "lost": it fell off the bus or needs a reset. "unknown": it could not be read this time.
DeviceState = Literal["ok", "lost", "unknown"]
#: "no device": there is nothing to read here, which is no error. "unknown": the driver does not answer.
SnapshotState = Literal["ok", "no device", "unknown"]

HolderState = Literal[
    "training",
    "running a cell",
    "background work",
    "idle",
    "finished and holding",
    "orphan",
    "waiting for input",
    "starting",
    "unknown",
]


@dataclass(frozen=True)
class DeviceProcess:
    """A process that the driver lists as holding memory or a context on a device.

    Args:
        pid: as the driver says, which in a container may be the pid of another namespace.
        used_bytes: its memory on the device, context included.
    """

    pid: int
    used_bytes: Number


@dataclass(frozen=True)
class ProcessWork:
    """A process that worked on a device since the last reading; an idle one has none.

    Args:
        pid: as the driver says; it may be of another namespace than `DeviceProcess.pid`.
        sm_ratio: the share of time in which one of its kernels ran; missing where the driver gave garbage.
    """

    pid: int
    sm_ratio: Number


@dataclass(frozen=True)
class GpmReading:
    """Counters of Hopper and newer devices, averaged over `interval_s`; each is a ratio of 0 to 1.

    Args:
        interval_s: between the two samples that the counters were computed from.
        active_ratio: time in which any work was on the device.
        sm_ratio: streaming multiprocessors that were busy.
        occupancy_ratio: warps in flight, of those that fit.
        tensor_ratio: time in which tensor cores worked.
        dram_ratio: memory bandwidth used.
    """

    interval_s: float
    active_ratio: Number
    sm_ratio: Number
    occupancy_ratio: Number
    tensor_ratio: Number
    dram_ratio: Number


@dataclass(frozen=True)
class DeviceReading:
    """One device at one moment.

    Args:
        index: its place in the driver's order (that of the PCI bus), which CUDA_VISIBLE_DEVICES does not
            change. It may differ after a device was lost: `uuid` is what identifies a device.
        uuid: as the driver writes it ("GPU-..."); empty for a device that never told.
        state: whether the rest of the record was read.
        reason: why `state` is not "ok"; else empty.
        total_bytes: its memory.
        used_bytes: what processes use of it.
        reserved_bytes: what the driver keeps for itself; missing with old drivers, which count it as used.
        utilisation_ratio: the share of time in which any kernel ran, however small. A one-sided signal:
            near 0 the device was idle; a high value does not prove useful work.
        mig: it is split into instances, and what is said of the whole does not hold for them.
        processes: who the driver lists. "Not listed" is not "not using".
        work: who worked since the last reading.
        gpm: its counters.
    """

    index: int
    uuid: str
    name: str
    state: DeviceState
    reason: str = ""
    total_bytes: Number = Missing("not read")
    used_bytes: Number = Missing("not read")
    reserved_bytes: Number = Missing("not read")
    utilisation_ratio: Number = Missing("not read")
    mig: bool = False
    processes: tuple[DeviceProcess, ...] | Missing = Missing("not read")
    work: tuple[ProcessWork, ...] | Missing = Missing("not read")
    gpm: GpmReading | Missing = Missing("not read")

    @property
    def used_includes_reserved(self) -> bool:
        """Whether an idle device may show hundreds of MB as used, since an old driver counts its own."""
        return isinstance(self.reserved_bytes, Missing) and not isinstance(self.used_bytes, Missing)


@dataclass(frozen=True)
class Snapshot:
    """All devices at one moment; a device once seen stays in the list, readable or not.

    Args:
        at_s: monotonic time of the reading in seconds.
        state: whether there was anything to read.
        reason: why `state` is not "ok"; else empty.
        driver: its version; empty where it was not told.
        devices: by index.
    """

    at_s: float
    state: SnapshotState
    reason: str = ""
    driver: str = ""
    devices: tuple[DeviceReading, ...] = ()


@dataclass(frozen=True)
class Holder:
    """A kernel, or what is left of one, that holds memory of a device.

    Args:
        kernel_id: whose it is.
        kernel: the kernel's own process, which tells a restarted kernel from what it left behind.
        path: the notebook; empty where no session has the kernel.
        device_uuid: the device; empty where the kernel named one that the driver does not list.
        pids: its processes that the driver lists there; empty where the driver lists pids of another
            namespace and the kernel itself reports what it holds.
        held_bytes: of the device's memory.
        allocated_bytes: tensors, as the kernel reports it.
        reserved_bytes: tensors and the framework's cache, as the kernel reports it.
        work_ratio: how much of the time since the last reading its processes worked on the device.
        kernel_alive: whether the kernel's own process still runs.
    """

    kernel_id: str
    kernel: ProcessId | None
    path: str
    device_uuid: str
    pids: tuple[int, ...]
    held_bytes: Number
    allocated_bytes: Number
    reserved_bytes: Number
    work_ratio: Number
    kernel_alive: bool | Missing


@dataclass(frozen=True)
class UnattributedProcess:
    """A process listed by the driver that belongs to none of our kernels, as far as can be told."""

    pid: int
    used_bytes: Number
    why: str


@dataclass(frozen=True)
class Unattributed:
    """Memory of a device that belongs to none of our kernels; nothing of it is ever touched.

    Args:
        device_uuid: the device.
        held_bytes: what is used of the device less what our kernels hold.
        processes: what the driver lists there. Where its pids are of another namespace, these may be
            kernels that are shown as holders by what they report themselves.
        why: where the driver lists no processes at all.
    """

    device_uuid: str
    held_bytes: Number
    processes: tuple[UnattributedProcess, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Attribution:
    """Who holds the devices; on each, holders and the rest add up to at most what is used."""

    holders: tuple[Holder, ...]
    unattributed: tuple[Unattributed, ...]
