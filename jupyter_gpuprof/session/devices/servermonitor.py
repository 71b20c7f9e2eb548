"""The monitor of a real server: the driver, the processes of this machine and the ledger file."""

from __future__ import annotations

from jupyter_gpuprof.probes.simulated import device_reader
from jupyter_gpuprof.records.ledger import Allocation
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.session.devices.reported import Reported
from jupyter_gpuprof.store.lease import Lease
from jupyter_gpuprof.store.ledger import LedgerWriter


def server_monitor(
    *, policy: Policy, interval_s: float, allocation: Allocation, keep_days: float
) -> DeviceMonitor:
    """Reads nothing yet. What is simulated is not written to the ledger of what was real.

    Args:
        policy: what the reaper may do.
        interval_s: planned seconds between two looks.
        allocation: what a device that nobody holds is.
        keep_days: for how long device seconds are kept.
    """
    reader = device_reader()
    real = not getattr(reader, "simulated", False)
    return DeviceMonitor(
        reader,
        policy=policy,
        interval_s=interval_s,
        writer=LedgerWriter() if real else None,
        lease=Lease() if real else None,
        allocation=allocation,
        keep_days=keep_days,
        reported=Reported(),
    )
