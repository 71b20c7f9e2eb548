"""What a holder of a device is doing, from what is known of it."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.devices import Holder, HolderState
from jupyter_gpuprof.records.processes import KernelActivity
from jupyter_gpuprof.records.reading import Missing, Number


@dataclass(frozen=True)
class WorkThresholds:
    """From what on a kernel without a running cell counts as working.

    Args:
        cpu_cores: processor cores that its process tree keeps busy.
        device_ratio: share of the time in which its processes work on the device.
    """

    cpu_cores: float = 0.05
    device_ratio: float = 0.01


def holder_state(
    holder: Holder, activity: KernelActivity, thresholds: WorkThresholds | None = None
) -> HolderState:
    """The first state that the facts prove; "idle" needs all of them, and "unknown" is what remains."""
    limits = thresholds or WorkThresholds()
    if holder.kernel_alive is False:
        return "orphan"
    if activity.starting:
        return "starting"
    if activity.training_active is True:
        return "training"
    requests = activity.open_requests
    if not isinstance(requests, Missing) and requests > 0:
        return "waiting for input" if activity.waiting_for_input is True else "running a cell"
    working = (
        _above(activity.cpu_cores, limits.cpu_cores),
        _above(holder.work_ratio, limits.device_ratio),
    )
    if True in working:
        return "background work"
    if isinstance(requests, Missing) or None in working:
        return "unknown"
    return "finished and holding" if activity.finished_training else "idle"


def _above(value: Number, threshold: float) -> bool | None:
    return None if isinstance(value, Missing) else value > threshold
