"""What this process has of the accelerators, asked of the framework alone: nothing here wakes a device."""

from __future__ import annotations

import os
import sys
from typing import Any

from jupyter_gpuprof.probes import hooks, machine, processes
from jupyter_gpuprof.records.processes import KernelReport
from jupyter_gpuprof.records.reading import Missing, Number


def used_devices() -> tuple[Any, ...]:
    """The devices (`torch.device`) of which this process has memory, those of one kind."""
    awake = machine.awake_accelerator()
    if awake is None:
        return ()
    torch = sys.modules["torch"]
    every = (torch.device(awake.type, index) for index in range(machine.device_count(awake.type)))
    return tuple(device for device in every if reserved_bytes(device))


def allocated_bytes(device: Any) -> int:
    """What tensors use of a device, as its allocator counts; 0 where it does not count."""
    return _read("memory_allocated", device) or 0


def reserved_bytes(device: Any) -> int:
    """Tensors and the allocator's cache; what tensors use where the cache is not counted."""
    return (
        _read("memory_reserved", device)
        or _read("driver_allocated_memory", device)
        or allocated_bytes(device)
    )


def free_bytes(device: Any) -> Number:
    """What this process could still allocate there: what the driver has left, and its own cache."""
    torch = sys.modules["torch"]
    asked = (
        getattr(getattr(torch, "accelerator", None), "get_memory_info", None),
        getattr(getattr(torch, device.type, None), "mem_get_info", None),
    )
    for ask in asked:
        try:
            left = int(ask(device)[0])  # type: ignore[misc]
        except Exception:
            continue
        return left + max(reserved_bytes(device) - allocated_bytes(device), 0)
    return Missing(f"{device.type} does not tell its free memory")


def empty_cache(devices: tuple[Any, ...]) -> None:
    """Give the driver back what the framework's allocator keeps and nobody uses."""
    torch = sys.modules.get("torch")
    if torch is None or not devices:
        return
    module = getattr(torch, devices[0].type, None)
    workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if devices[0].type == "cuda" and workspaces is not None:
        workspaces()  # tens of MiB that the allocator counts as in use
    empty = getattr(module, "empty_cache", None)
    empty = empty or getattr(getattr(torch, "accelerator", None), "empty_cache", None)
    if empty is not None:
        empty()


def finish(device: Any) -> None:
    """Wait until a device has done all that it was given."""
    torch = sys.modules["torch"]
    module: Any = getattr(torch, device.type, None)
    wait = getattr(module, "synchronize", None) or torch.accelerator.synchronize
    wait() if device.type == "mps" else wait(device)


def busy_ratio() -> Number:
    """1 if a used device has work of this thread's stream left at this moment, 0 if not.

    One look only: what goes on giving work to a device shows in its processor time, too.
    """
    devices = used_devices()
    if not devices:
        return Missing("no accelerator is in use")
    torch = sys.modules["torch"]
    try:
        stream = getattr(torch, "accelerator", None) or getattr(torch, devices[0].type)
        return float(any(not stream.current_stream(device).query() for device in devices))
    except Exception as error:
        return Missing(f"the device could not be asked for its work ({error})")


def training() -> bool:
    """Whether a profiled run is on, whose hooks see the training."""
    return hooks.current() is not None


def own_reports(at_s: float) -> tuple[KernelReport, ...]:
    """What this kernel says of itself, one report for each device it uses; none where it uses none.

    Args:
        at_s: monotonic seconds, now.
    """
    me = processes.process_id()
    if me is None:
        return ()
    return tuple(
        KernelReport(
            me,
            _uuid(device),
            _driver_index(device),
            allocated_bytes(device),
            reserved_bytes(device),
            training(),
            at_s,
        )
        for device in used_devices()
    )


def _read(name: str, device: Any) -> int | None:
    """A figure of the allocator; None where there is no such."""
    torch = sys.modules["torch"]
    module = getattr(torch, device.type, None)
    for owner in (getattr(torch, "accelerator", None), module):
        read = getattr(owner, name, None)
        if read is None:
            continue
        try:
            return int(read() if device.type == "mps" and owner is module else read(device))
        except Exception:
            continue
    return None


def _uuid(device: Any) -> str:
    module: Any = getattr(sys.modules["torch"], device.type, None)
    try:
        return str(module.get_device_properties(device).uuid)
    except Exception:
        return ""


def _driver_index(device: Any) -> int | None:
    """The driver's own index, where the environment does not number the devices anew."""
    moved = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
    return None if any(name in os.environ for name in moved) else int(device.index)
