"""A look at devices and holders without a server: this user's kernels, and what the driver lists."""

from __future__ import annotations

import os

from jupyter_gpuprof.probes.localkernels import local_kernels
from jupyter_gpuprof.probes.nvml import DeviceReader
from jupyter_gpuprof.probes.processes import ProcessTable
from jupyter_gpuprof.probes.simulated import device_reader
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import SeenKernel, Sighting
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.session.devices.reported import Reported

_ONLY_ITS_SERVER = Missing("only its server knows what it works on")


class LocalLook:
    """Looks again and again; what two looks are needed for is missing in the first.

    Args:
        reader: of the devices.
        interval_s: planned seconds between two looks.
    """

    def __init__(self, reader: DeviceReader | None = None, interval_s: float = 1.0) -> None:
        self._table = ProcessTable()
        self._monitor = DeviceMonitor(
            reader or device_reader(),
            policy=Policy(enabled=False, start_grace_s=0.0),
            interval_s=interval_s,
            reported=Reported(),
            server_pid=os.getpid(),
        )

    def look(self) -> Sighting:
        """One look."""
        kernels = local_kernels(self._table.look([os.getpid()]))
        return self._monitor.tick(
            [
                SeenKernel(
                    kernel_id=kernel.kernel_id,
                    path=kernel.session_name,
                    kernelspec="",
                    pid=kernel.id.pid,
                    version=0,
                    open_requests=_ONLY_ITS_SERVER,
                )
                for kernel in kernels
            ]
        )

    def close(self) -> None:
        """Let go of the driver."""
        self._monitor.close()
