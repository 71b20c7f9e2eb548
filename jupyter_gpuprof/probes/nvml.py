"""The devices through NVML, for a program that must not hang or stop because of a driver.

Lives in the server, never in a kernel: a handle there keeps device files open. NVML's own order ignores
CUDA_VISIBLE_DEVICES, so devices are known by UUID. All calls are made in one thread (`PatientThread`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes.nvmlcodes import LOST, NO_DRIVER, Broken, as_broken, ask
from jupyter_gpuprof.probes.nvmldevice import NvmlDevice
from jupyter_gpuprof.probes.timelimit import NotAnswered, PatientThread
from jupyter_gpuprof.records.devices import DeviceReading, DeviceState, Snapshot, SnapshotState
from jupyter_gpuprof.records.reading import Missing

#: How long to wait before the next init after a failure, doubled each time.
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 300.0
_NO_DEVICE = "the driver lists no device"


class DeviceReader(Protocol):
    """Whatever tells the state of the devices."""

    def read(self) -> Snapshot:
        """All devices now. Never raises, and returns within a time limit."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class NvmlReader:
    """NVIDIA's devices; one thread at a time may read.

    A driver that fails is asked again after 1, 2, 4 ... 300 s with a new init, since handles stay bad
    after the cause is gone. A device once seen stays in each snapshot.

    Args:
        clock: monotonic nanoseconds.
        limit_s: how long to wait for one device, and for an init.
    """

    def __init__(self, *, clock: Callable[[], int] = clock.now_ns, limit_s: float = 2.0) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._thread = PatientThread("gpuprof-nvml")
        self._driver: _Driver | None = None
        self._opened: _Driver | None = None  # by the patient thread
        self._failure: tuple[SnapshotState, str] = ("unknown", "not read yet")
        self._seen: dict[str, DeviceReading] = {}  # as last named, by UUID
        self._retry_s = FIRST_RETRY_S
        self._retry_at_s = 0.0
        self._gave_up_at_s = 0.0

    def read(self) -> Snapshot:
        """All devices now. Never raises, and never waits longer than the limit for a device."""
        now_s = self._clock() * 1e-9
        if self._thread.busy:
            return self._failed(now_s, "unknown", self._hung(now_s))
        self._adopt()
        if (self._driver is None or self._driver.broken) and now_s >= self._retry_at_s:
            self._reopen(now_s)
        if self._driver is None:
            return self._failed(now_s, *self._failure)
        driver = self._driver
        readings = [self._read_device(device, now_s) for device in driver.devices]
        readings += self._named(driver.nameless, {reading.uuid for reading in readings})
        self._seen.update({reading.uuid: reading for reading in readings if reading.uuid})
        readings += self._unlisted(readings)
        if not driver.broken:
            self._retry_s = FIRST_RETRY_S
        if not readings:
            return Snapshot(now_s, "no device", _NO_DEVICE, driver.version)
        readable = any(reading.state == "ok" for reading in readings)
        return Snapshot(
            now_s,
            "ok" if readable else "unknown",
            "" if readable else readings[0].reason,
            driver.version,
            tuple(sorted(readings, key=lambda reading: reading.index)),
        )

    def close(self) -> None:
        """Let go of the driver and end the thread (that of a hung driver ends when its call returns)."""
        if not self._thread.busy:
            self._adopt()
            driver, self._driver = self._driver, None
            if driver is not None:
                try:
                    self._thread.call(driver.close, self._limit_s)
                except NotAnswered:
                    pass
        self._thread.close(0.0 if self._thread.busy else self._limit_s)

    def _reopen(self, now_s: float) -> None:
        """A new init; the next one waits longer."""
        self._retry_at_s = now_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
        old, self._driver = self._driver, None
        try:
            self._thread.call(lambda: self._open(old), self._limit_s)
        except NotAnswered:
            self._gave_up_at_s = now_s
            self._failure = "unknown", self._hung(now_s)
        except ImportError:
            self._failure = "no device", "the package nvidia-ml-py is not installed"
        except Exception as error:
            broken = as_broken(error)
            nothing = broken.code in NO_DRIVER and not self._seen
            self._failure = "no device" if nothing else "unknown", broken.reason
        else:
            self._adopt()

    def _open(self, old: _Driver | None) -> None:
        """In the patient thread; a driver that took longer than the limit is found by the next reading."""
        import pynvml  # 0.2 s of import, so only where devices are read

        if old is not None:
            old.close()
        self._opened = _Driver.open(pynvml, self._clock)

    def _adopt(self) -> None:
        if self._opened is not None:
            self._driver, self._opened = self._opened, None

    def _read_device(self, device: NvmlDevice, now_s: float) -> DeviceReading:
        if self._thread.busy:
            return _unread(device.named, self._hung(now_s))
        if device.broken is None:
            try:
                return self._thread.call(device.read, self._limit_s)
            except NotAnswered:
                self._gave_up_at_s = now_s
                return _unread(device.named, self._hung(now_s))
            except Exception as error:
                device.broken = as_broken(error)
        return _unread(device.named, device.broken.reason, _state(device.broken))

    def _hung(self, now_s: float) -> str:
        waited_s = self._limit_s + now_s - self._gave_up_at_s
        return f"the driver has not answered for {waited_s:.0f} s"

    def _failed(self, now_s: float, state: SnapshotState, reason: str) -> Snapshot:
        seen = sorted(self._seen.values(), key=lambda reading: reading.index)
        return Snapshot(now_s, state, reason, "", tuple(_unread(old, reason) for old in seen))

    def _named(self, nameless: list[DeviceReading], present: set[str]) -> list[DeviceReading]:
        """A device that no longer tells its name is the one that had its index, if that one is missing."""
        before = {old.index: old for old in self._seen.values() if old.uuid not in present}
        return [
            _unread(before.get(reading.index, reading), reading.reason, reading.state) for reading in nameless
        ]

    def _unlisted(self, readings: list[DeviceReading]) -> list[DeviceReading]:
        """Devices seen earlier that the driver no longer counts."""
        present = {reading.uuid for reading in readings}
        gone = [old for uuid, old in self._seen.items() if uuid not in present]
        return [_unread(old, "the driver no longer lists it", "lost") for old in gone]


class _Driver:
    """An init of the library and the devices it gave. Made, used and closed in the patient thread."""

    def __init__(self, nvml: Any, clock: Callable[[], int]) -> None:
        self._nvml = nvml
        version = ask(nvml.nvmlSystemGetDriverVersion)
        self.version = "" if isinstance(version, Missing) else str(version)
        self.devices: list[NvmlDevice] = []
        self.nameless: list[DeviceReading] = []
        self._broken = False  # one of the nameless may be there after another init
        for index in range(_needed(ask(nvml.nvmlDeviceGetCount))):
            nameless = DeviceReading(index, "", f"device {index}", "unknown")
            try:
                device = NvmlDevice.open(nvml, index, clock)
            except Broken as broken:
                self._broken = True
                self.nameless.append(_unread(nameless, broken.reason, _state(broken)))
                continue
            if isinstance(device, Missing):
                self.nameless.append(_unread(nameless, device.reason))
            else:
                self.devices.append(device)

    @classmethod
    def open(cls, nvml: Any, clock: Callable[[], int]) -> _Driver:
        _needed(ask(nvml.nvmlInit))
        try:
            return cls(nvml, clock)
        except Exception:
            _shut_down(nvml)
            raise

    @property
    def broken(self) -> bool:
        """Whether a new init might help."""
        return self._broken or any(device.broken is not None for device in self.devices)

    def close(self) -> None:
        for device in self.devices:
            device.close()
        _shut_down(self._nvml)


def _needed(answer: Any) -> Any:
    if isinstance(answer, Missing):
        raise Broken(None, answer.reason)
    return answer


def _shut_down(nvml: Any) -> None:
    try:
        ask(nvml.nvmlShutdown)
    except Broken:
        pass


def _state(broken: Broken) -> DeviceState:
    return "lost" if broken.code in LOST else "unknown"


def _unread(named: DeviceReading, reason: str, state: DeviceState = "unknown") -> DeviceReading:
    why = Missing(reason)
    return DeviceReading(
        named.index, named.uuid, named.name, state, reason, why, why, why, why, named.mig, why, why, why
    )
