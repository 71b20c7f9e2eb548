"""One device through NVML: each answer of the driver as a reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.probes.gpm import Gpm
from jupyter_gpuprof.probes.nvmlcodes import NOT_FOUND, NOTHING, Broken, ask, ask_alone
from jupyter_gpuprof.records.devices import DeviceProcess, DeviceReading, ProcessWork
from jupyter_gpuprof.records.reading import Missing, Number

_MEMORY_V2 = 0x02000028  # the size of the struct and its version, as NVML counts versions
_MIG = Missing("n/a: MIG is on, and the whole device has no such value")
_FIRST = Missing("the work of processes counts from the first reading on")
_UNNAMED = Missing("the driver does not tell the memory of processes")


class NvmlDevice:
    """A device and what must be remembered between two readings of it.

    Args:
        nvml: the pynvml module.
        handle: as NVML gave it.
        named: its index, UUID and name.
        clock: monotonic nanoseconds.
    """

    def __init__(self, nvml: Any, handle: Any, named: DeviceReading, clock: Callable[[], int]) -> None:
        self._nvml = nvml
        self._handle = handle
        self.named = named
        self.broken: Broken | None = None  # why it is left alone until the next init
        self._gpm = Gpm(nvml, handle, clock)
        self._work_since_us: int | None = None

    @classmethod
    def open(cls, nvml: Any, index: int, clock: Callable[[], int]) -> NvmlDevice | Missing:
        """The device of that index, or why this user may not have it.

        Raises:
            Broken: the device is lost, or the driver broken.
        """
        handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if isinstance(handle, Missing):
            return handle
        uuid, name = ask(nvml.nvmlDeviceGetUUID, handle), ask(nvml.nvmlDeviceGetName, handle)
        if isinstance(uuid, Missing):
            return uuid
        mode = ask_alone(nvml.nvmlDeviceGetMigMode, handle)  # changes only with a reset of the device
        mig = not isinstance(mode, Missing) and mode[0] == 1
        called = f"device {index}" if isinstance(name, Missing) else str(name)
        return cls(nvml, handle, DeviceReading(index, str(uuid), called, "unknown", mig=mig), clock)

    def read(self) -> DeviceReading:
        """All that the driver tells now.

        Raises:
            Broken: the device is lost, or the handle no longer good.
        """
        named = self.named
        total, used, reserved = self._memory()  # first, since it tells whether the handle is still good
        return DeviceReading(
            named.index,
            named.uuid,
            named.name,
            "ok",
            "",
            total,
            used,
            reserved,
            _MIG if named.mig else self._utilisation(),
            named.mig,
            self._processes(),
            _MIG if named.mig else self._work(),
            _MIG if named.mig else self._gpm.read(),
        )

    def close(self) -> None:
        """Give back what the driver keeps for us."""
        try:
            self._gpm.close()
        except Broken:
            pass

    def _memory(self) -> tuple[Number, Number, Number]:
        """Total, used by processes, kept by the driver. The old call counts the last as used."""
        memory = ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle, _MEMORY_V2)
        if not isinstance(memory, Missing):
            return int(memory.total), int(memory.used), int(memory.reserved)
        memory = ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)
        if isinstance(memory, Missing):
            return memory, memory, memory
        old = Missing("the driver is old and counts what it keeps as used")
        return int(memory.total), int(memory.used), old

    def _utilisation(self) -> Number:
        rates = ask_alone(self._nvml.nvmlDeviceGetUtilizationRates, self._handle)
        return rates if isinstance(rates, Missing) else _ratio(rates.gpu)

    def _processes(self) -> tuple[DeviceProcess, ...] | Missing:
        listed = ask_alone(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        if isinstance(listed, Missing):
            return listed
        used: dict[int, Number] = {}  # a process is listed once for each of its contexts
        for process in listed:
            one: Number = _UNNAMED if process.usedGpuMemory is None else int(process.usedGpuMemory)
            used[process.pid] = _sum(used.get(process.pid, 0), one)
        return tuple(DeviceProcess(pid, number) for pid, number in used.items())

    def _work(self) -> tuple[ProcessWork, ...] | Missing:
        """The processes that worked since the last reading.

        The time of the newest sample is passed back, else the driver repeats old averages.
        """
        since_us = self._work_since_us or 0
        samples = ask_alone(self._nvml.nvmlDeviceGetProcessUtilization, self._handle, since_us)
        if samples in (NOTHING, NOT_FOUND):
            samples = []  # nobody worked
        if isinstance(samples, Missing):
            return samples
        first, most = self._work_since_us is None, dict[int, Number]()
        for sample in samples:
            ratio = most[sample.pid] = _larger(_ratio(sample.smUtil), most.get(sample.pid, 0.0))
            if not isinstance(ratio, Missing):  # garbage may have any time
                since_us = max(since_us, int(sample.timeStamp))
        self._work_since_us = since_us
        if first and most:
            return _FIRST  # of unknown age
        return tuple(ProcessWork(pid, ratio) for pid, ratio in most.items())


def _sum(one: Number, other: Number) -> Number:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return _UNNAMED
    return one + other


def _larger(one: Number, other: Number) -> Number:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return one if isinstance(one, Missing) else other
    return max(one, other)


def _ratio(percent: int) -> Number:
    """Zombies and other garbage give values far over 100."""
    return percent / 100.0 if 0 <= percent <= 100 else Missing(f"the driver gave {percent} %")
