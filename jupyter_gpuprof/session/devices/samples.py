"""From one look at the devices to the samples that the ledger is made of."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpuprof.analysis.attribution import FREE_BELOW_BYTES
from jupyter_gpuprof.records.devices import Attribution, DeviceReading, Snapshot, Unattributed
from jupyter_gpuprof.records.idleness import Activity
from jupyter_gpuprof.records.ledger import DeviceSample, Holding
from jupyter_gpuprof.records.processes import KernelReport, ProcessId
from jupyter_gpuprof.records.reading import Missing, Number

NO_RUN = Missing("no run measures it")
_ACTIVE = ("training", "running a cell", "background work", "starting")
_IDLE = ("idle", "waiting for input")


class Samples:
    """Samples of devices; remembers all devices ever seen and how each one's work is measured.

    Args:
        user: whose kernels these are.
    """

    def __init__(self, user: str) -> None:
        self.names: dict[str, str] = {}  # by UUID
        self._user = user
        self._counted: set[str] = set()  # devices with counters: what they once told is not told otherwise

    def of(
        self,
        snapshot: Snapshot,
        attribution: Attribution,
        activities: Mapping[str, Activity],
        said: Mapping[ProcessId, KernelReport],
    ) -> list[DeviceSample]:
        """One sample for each device that was read.

        Args:
            snapshot: the devices.
            attribution: who holds them.
            activities: of the kernels, by id.
            said: what each kernel says of itself.
        """
        rest = {other.device_uuid: other for other in attribution.unattributed}
        samples = []
        for device in snapshot.devices:
            if not device.uuid:
                continue
            self.names[device.uuid] = device.name
            if device.state != "ok":
                continue
            measure, ratio = self._busy(device)
            holdings = self._holdings(device, attribution, rest.get(device.uuid), activities, said)
            samples.append(
                DeviceSample(device.uuid, device.name, measure, ratio, device.used_bytes, holdings)
            )
        return samples

    def _busy(self, device: DeviceReading) -> tuple[str, Number]:
        if not isinstance(device.gpm, Missing):
            self._counted.add(device.uuid)
            return "gr_active", device.gpm.active_ratio
        if device.uuid in self._counted:
            return "gr_active", device.gpm
        return "util_nvml", device.utilisation_ratio

    def _holdings(
        self,
        device: DeviceReading,
        attribution: Attribution,
        rest: Unattributed | None,
        activities: Mapping[str, Activity],
        said: Mapping[ProcessId, KernelReport],
    ) -> tuple[Holding, ...] | Missing:
        found = []
        for holder in attribution.holders:
            if holder.device_uuid != device.uuid:
                continue
            doing = activities.get(holder.kernel_id, "unknown")
            run = said.get(holder.kernel) if holder.kernel is not None else None
            found.append(
                Holding(
                    self._user,
                    holder.path,
                    "orphan"
                    if holder.kernel_alive is False
                    else "active"
                    if doing in _ACTIVE
                    else "idle"
                    if doing in _IDLE
                    else "unknown",
                    run_id=run.run_id if run is not None else "",
                    study=run.study if run is not None else "",
                    trial=run.trial if run is not None else "",
                    input_ratio=run.input_ratio if run is not None else NO_RUN,
                )
            )
        if rest is not None and not isinstance(rest.held_bytes, Missing):
            strangers = bool(rest.processes) and rest.held_bytes >= FREE_BELOW_BYTES
        else:
            strangers = rest is not None and bool(rest.processes)
        if strangers:
            found.append(Holding("", "", "unknown"))
        if not found and isinstance(device.processes, Missing):
            return device.processes
        return tuple(found)
