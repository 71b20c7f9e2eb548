"""Facts of the machine and of the device that a run trained on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Device, Memory


def usable_cores() -> int:
    """Processor cores this process may use: its affinity, and the cgroup's quota where there is one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


def import_torch() -> Any | None:
    """The torch module, or None where it is not installed (or broken)."""
    try:
        import torch
    except Exception:
        return None
    return torch


def training_threads(clock: str) -> int:
    """Host cores that a training step keeps busy: torch's threads on a CPU, one beside an accelerator."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None and clock == "host" else 1


def torch_threads() -> int | None:
    """How many threads torch computes with in this process; None where it is not imported."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None else None


def device_module() -> str:
    """The module that gave torch a kind of device that is not its own ("torch_npu.npu"); "" without one."""
    torch = sys.modules.get("torch")
    kind = _ask(lambda: torch._C._get_privateuse1_backend_name())  # type: ignore[union-attr]
    return str(getattr(getattr(torch, kind, None), "__name__", "")) if kind else ""


def awake_accelerator() -> Any | None:
    """The accelerator that this process has already begun to use, as a `torch.device`; never wakes one."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "accelerator"):
        return None
    try:
        device = torch.accelerator.current_accelerator()
        if device is None or not _initialized(torch, device.type):
            return None
        return torch.device(device.type, torch.accelerator.current_device_index())
    except Exception:
        return None


def any_accelerator() -> Any | None:
    """The accelerator that torch would use, as a `torch.device`; asks without making a context on it."""
    torch = import_torch()
    if torch is None or not hasattr(torch, "accelerator"):
        return torch.device("cuda") if torch is not None and torch.cuda.is_available() else None
    return _ask(lambda: torch.accelerator.current_accelerator(check_available=True))


def device_count(kind: str) -> int:
    """How many devices of a kind this process may use."""
    module: Any = getattr(sys.modules.get("torch"), kind, None)
    return int(_ask(lambda: module.device_count()) or 0)


def accelerator_in_use() -> Any | None:
    """The accelerator on which this process holds memory, as a `torch.device`."""
    device = awake_accelerator()
    if device is None or not _ask(lambda: sys.modules["torch"].accelerator.memory_allocated(device)):
        return None
    return device


def _initialized(torch: Any, kind: str) -> bool:
    module = getattr(torch, kind, None)
    asked = getattr(module, "is_initialized", None)
    return bool(asked()) if asked is not None else module is not None


def describe_device(device: Any | None) -> Device:
    """The device as a record; None is the CPU."""
    if device is None or device.type == "cpu":
        unknown = Missing("on a CPU the step's memory is the host's")
        return Device("cpu", _cpu_name(), usable_cores(), unknown, False)
    torch = sys.modules["torch"]
    module: Any = getattr(torch, device.type, None)
    return Device(
        kind=device.type,
        name=_ask(lambda: str(module.get_device_name(device))) or device.type,
        count=1,
        memory_bytes=_capacity(torch, module, device),
        simulated=bool(getattr(module, "simulated", False)),
    )


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _ask(question: Any) -> Any | None:
    try:
        return question()
    except Exception:
        return None


def _capacity(torch: Any, module: Any, device: Any) -> Number:
    total = _ask(lambda: torch.accelerator.get_memory_info(device)[1])
    if total is None:
        total = _ask(lambda: module.mem_get_info(device)[1])
    return int(total) if total else Missing("the device does not tell its memory")


class PeakMemory:
    """The allocator's peak over a run, without resetting a peak that the person may be tracking.

    Args:
        device: a `torch.device`; None is the CPU.
        fresh: nothing had been on the device before the run.
    """

    def __init__(self, device: Any | None, *, fresh: bool = False) -> None:
        self.device = device if device is not None and device.type != "cpu" else None
        self._before = 0 if fresh else self._read("max_memory_allocated")

    def _read(self, name: str) -> int | None:
        if self.device is None:
            return None
        torch = sys.modules["torch"]
        read = getattr(getattr(torch, "accelerator", None), name, None)
        read = read or getattr(getattr(torch, self.device.type, None), name, None)
        return _ask(lambda: int(read(self.device))) if read is not None else None

    def reading(self) -> tuple[Memory, str]:
        """The peaks in bytes, and a remark where they may be older than the run."""
        if self.device is None:
            unknown = Missing("on a CPU the step's memory is the host's")
            return Memory(unknown, unknown), ""
        peak, reserved = self._read("max_memory_allocated"), self._read("max_memory_reserved")
        unread = Missing("the framework does not tell its peak memory")
        memory = Memory(unread if peak is None else peak, unread if reserved is None else reserved)
        older = peak is not None and peak == self._before and peak > 0
        remark = "The memory peak is from before this cell; the cell itself used no more than that."
        return memory, remark if older else ""


def devices() -> list[str]:
    """The devices that torch sees, in words; torch is not imported for the question."""
    torch = sys.modules.get("torch")
    if torch is None:
        return [f"CPU, {usable_cores()} cores (torch is not imported yet, so accelerators are unknown)"]
    found = [f"CPU, {usable_cores()} cores"]
    accelerator = getattr(torch, "accelerator", None)
    kind = _ask(lambda: accelerator.current_accelerator().type) if accelerator is not None else None
    if kind is None and torch.cuda.is_available():
        kind = "cuda"
    module: Any = getattr(torch, kind, None) if kind else None
    for index in range(_ask(lambda: module.device_count()) or 0):
        device = describe_device(torch.device(kind, index))
        found.append(f"{kind}:{index} {device.name}{' (SIMULATED)' if device.simulated else ''}")
    return found if len(found) > 1 else [*found, "no accelerator"]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device (or the host) had no memory left."""
    torch = sys.modules.get("torch")
    kinds = [
        getattr(torch, "OutOfMemoryError", None),
        getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None),
    ]
    known = tuple(kind for kind in kinds if isinstance(kind, type))
    if isinstance(error, (MemoryError, *known)):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()
