"""What stands in the way of suspending a process: what it says of itself, and what shows from outside."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from jupyter_gpuprof.probes import hostmemory, kernelwindow, owndevice
from jupyter_gpuprof.probes.processes import ProcessTable
from jupyter_gpuprof.records.devices import Snapshot
from jupyter_gpuprof.records.reading import Missing, Number

#: Loaded modules that use devices in a way of their own, or may use unified memory.
OTHER_LIBRARIES = (
    "cudf", "cupy", "cuml", "jax", "numba.cuda", "nvidia.dali", "pycuda", "rmm", "tensorflow", "warp",
)  # fmt: skip
#: Set by profilers that are loaded into a process before it begins.
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "KINETO_USE_DAEMON")
_MPS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")


def own_facts() -> dict[str, Any]:
    """What only the process itself knows, as fields of `SuspensionFacts`; no call wakes or asks a device."""
    torch: Any = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    backend = "native"
    if torch is not None and getattr(torch.cuda, "is_initialized", bool)():
        backend = str(torch.cuda.memory.get_allocator_backend())
    return {
        "used_devices": len(owndevice.used_devices()),
        "distributed": bool(distributed and distributed.is_available() and distributed.is_initialized()),
        "other_libraries": [name for name in OTHER_LIBRARIES if name in sys.modules]
        + ([f"torch's allocator {backend}"] if backend != "native" else []),
        "profiling": _profiling(torch),
        "mps_variables": [name for name in _MPS if name in os.environ],
    }


def outside_facts(pid: int, snapshot: Snapshot, own_pids: frozenset[int]) -> dict[str, Any]:
    """What shows from outside, as fields of `SuspensionFacts`.

    Args:
        pid: of the process.
        snapshot: of the devices.
        own_pids: processes that do not count as its children: whoever asks here.
    """
    devices, footprint = _holdings(pid, snapshot)
    table = {facts.id.pid: facts for facts in ProcessTable().look([pid])}
    process = table.get(pid)
    uid = process.uid if process is not None else None
    me = os.getuid() if hasattr(os, "getuid") else None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "driver": snapshot.driver or Missing(snapshot.reason or "its version was not told"),
        "same_user": Missing("whose it is cannot be read") if uid is None else me in (0, uid),
        "devices": devices,
        "mig": _mig(snapshot, devices),
        "footprint_bytes": footprint,
        "free_host_bytes": hostmemory.free_bytes(),
        "children": tuple(sorted(_children(pid, table) - own_pids))
        if process
        else Missing("the process cannot be read"),
        "nvml_loaded": nvml_loaded(pid),
    }


def room(snapshot: Snapshot, uuid: str) -> Number:
    """Free memory of a device, in bytes."""
    for device in snapshot.devices:
        if device.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-"):
            total, used, kept = device.total_bytes, device.used_bytes, device.reserved_bytes
            if isinstance(total, Missing) or isinstance(used, Missing):
                return Missing(device.reason or "the device does not tell its memory")
            return total - used - (0 if isinstance(kept, Missing) else kept)
    return Missing(snapshot.reason or "the device is not there")


def mps_runs() -> bool | Missing:
    """Whether a multi-process server of CUDA runs on this machine, as far as its processes are seen."""
    try:
        import psutil

        names = {process.info["name"] or "" for process in psutil.process_iter(["name"])}
    except Exception as error:
        return Missing(f"processes cannot be listed ({error})")
    return any(name.startswith("nvidia-cuda-mps") for name in names)


def nvml_loaded(pid: int) -> bool | Missing:
    """Whether the driver's monitoring library is loaded in a process; it keeps device files open."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Missing(f"its loaded libraries cannot be read ({error.strerror})")
    return "libnvidia-ml.so" in maps


def _profiling(torch: Any) -> str:
    found = [name for name in _INJECTED if name in os.environ]
    profiler = getattr(getattr(torch, "autograd", None), "profiler", None)
    if getattr(profiler, "_is_profiler_enabled", False):
        found.append("torch.profiler is on")
    if not kernelwindow.suspendable():
        found.append("%%gpuprof looked at gpu ops in this kernel (--kernels off does not)")
    return ", ".join(found)


def _holdings(pid: int, snapshot: Snapshot) -> tuple[tuple[str, ...] | Missing, Number]:
    if snapshot.state != "ok":
        why = Missing(snapshot.reason or f"the devices: {snapshot.state}")
        return why, why
    found: dict[str, Number] = {}
    for device in snapshot.devices:
        if isinstance(device.processes, Missing):
            return device.processes, device.processes
        for process in device.processes:
            if process.pid == pid:
                found[device.uuid] = process.used_bytes
    sizes = list(found.values())
    unread = [size for size in sizes if isinstance(size, Missing)]
    total = sum(size for size in sizes if not isinstance(size, Missing))
    if not sizes:
        return (), Missing("the driver does not list the process")
    return tuple(found), unread[0] if unread else total


def _mig(snapshot: Snapshot, devices: tuple[str, ...] | Missing) -> bool | Missing:
    if isinstance(devices, Missing) or not devices:
        return Missing("it is not known which device is used")
    return any(device.mig for device in snapshot.devices if device.uuid in devices)


def _children(pid: int, table: dict[int, Any]) -> frozenset[int]:
    found, size = {pid}, 0
    while len(found) > size:
        size = len(found)
        found |= {id for id, facts in table.items() if facts.parent_pid in found}
    return frozenset(found - {pid})
