"""This machine's memory and processors in the place of a GPU, where there is none: for demonstrations.

What is shown is true of the machine and says everywhere that it is simulated: kernels and what they started
hold the memory that is theirs alone, and work as much as their processors do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes.hostmemory import free_bytes, private_bytes
from jupyter_gpuprof.probes.nvml import DeviceReader, NvmlReader
from jupyter_gpuprof.probes.processes import ProcessTable
from jupyter_gpuprof.records.devices import DeviceProcess, DeviceReading, ProcessWork, Snapshot
from jupyter_gpuprof.records.processes import ProcessId
from jupyter_gpuprof.records.reading import Missing, Number

#: Set to anything but "" or "0", it puts the simulated device in the place of the real ones.
SIMULATED = "JUPYTER_GPUPROF_SIMULATED"
#: A kernel that did nothing yet has less; a process below it holds nothing.
FLOOR_BYTES = 128 * 2**20
_FIRST = Missing("work counts from the first reading on")
_NONE = Missing("a simulated device has none")


def device_reader(environment: Mapping[str, str] = os.environ) -> DeviceReader:
    """NVIDIA's devices, or the simulated one if the environment asks for it."""
    return SimulatedReader() if environment.get(SIMULATED, "0") not in ("", "0") else NvmlReader()


class SimulatedReader:
    """One device; its memory is what kernels hold and what was free besides at the first reading.

    Args:
        table: of the processes.
        clock: monotonic nanoseconds.
        held: the memory of a process in bytes, None for one that is gone.
    """

    simulated = True

    def __init__(
        self,
        table: ProcessTable | None = None,
        *,
        clock: Callable[[], int] = clock.now_ns,
        held: Callable[[int], int | None] = private_bytes,
    ) -> None:
        self._table = table or ProcessTable()
        self._clock = clock
        self._held = held
        self._total: Number | None = None
        self._last: tuple[float, dict[ProcessId, float]] | None = None

    def read(self) -> Snapshot:
        """The device now, from this user's processes that a Jupyter server started."""
        from jupyter_gpuprof.probes.machine import (
            usable_cores,
        )  # loads all records of a run: not at the start

        now_s = self._clock() * 1e-9
        cpu_s = {process.id: process.cpu_s for process in self._table.look(())}
        sizes = {id.pid: self._held(id.pid) or 0 for id in cpu_s}
        holding = {pid: size for pid, size in sizes.items() if size >= FLOOR_BYTES}
        used = sum(holding.values())
        if self._total is None:
            free = free_bytes()
            self._total = free if isinstance(free, Missing) else used + int(free)
        work: tuple[ProcessWork, ...] | Missing = _FIRST
        busy: Number = _FIRST
        if self._last is not None and now_s > self._last[0]:
            before_s, before = self._last
            most_s = (now_s - before_s) * usable_cores()
            shares = {
                id.pid: min(1.0, max(0.0, spent - before[id]) / most_s)
                for id, spent in cpu_s.items()
                if id in before and id.pid in holding
            }
            work = tuple(ProcessWork(pid, share) for pid, share in shares.items() if share)
            busy = min(1.0, sum(shares.values()))
        self._last = now_s, cpu_s
        listed = tuple(DeviceProcess(pid, size) for pid, size in holding.items())
        device = DeviceReading(
            0, "SIMULATED-0", "SIMULATED (host memory)", "ok", "", self._total, used, 0, busy, False, listed,
            work, _NONE,
        )  # fmt: skip
        return Snapshot(now_s, "ok", "", "simulated", (device,))

    def close(self) -> None:
        """Nothing is open."""
