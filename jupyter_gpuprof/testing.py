"""Public fakes: a clock that jumps, an accelerator's events and the state of devices as scripted.

For tests of code that uses jupyter_gpuprof, and for our own: unit tests never sleep.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from jupyter_gpuprof.records.devices import DeviceReading, Snapshot, SnapshotState


@dataclass
class FakeClock:
    """A monotonic clock that only moves when told to.

    Args:
        ns: its reading in nanoseconds.
    """

    ns: int = 0

    def __call__(self) -> int:
        """The reading in nanoseconds."""
        return self.ns

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.ns += round(seconds * 1e9)


@dataclass
class FakeEvent:
    """An event in the stream of a `FakeDevice`; `reached_s` is when the device comes to it."""

    reached_s: float


class FakeDevice:
    """An accelerator with one stream as an event backend: work is queued and takes as long as told.

    The host's time is that of `clock`; the device works on its own, and an event is reached when the
    work before it is done, or at once on an idle device.

    Args:
        clock: the host's clock.
    """

    clock = "device"
    device_kind = "fake"

    def __init__(self, clock: FakeClock) -> None:
        self.host = clock
        self.free_at_s = 0.0
        self.is_capturing = False
        self.calls: deque[str] = deque(maxlen=1000)

    def launch(self, seconds: float) -> None:
        """Queue work; returns at once."""
        self.free_at_s = max(self.free_at_s, self.host.ns * 1e-9) + seconds

    def wait(self) -> None:
        """What ``.item()`` does: the host waits for the device."""
        self.host.ns = max(self.host.ns, round(self.free_at_s * 1e9))

    def record(self) -> FakeEvent:
        """An event behind all queued work."""
        self.calls.append("record")
        return FakeEvent(max(self.free_at_s, self.host.ns * 1e-9))

    def query(self, event: FakeEvent) -> bool:
        """Whether the device has come to it at the host's time."""
        self.calls.append("query")
        return round(event.reached_s * 1e9) <= self.host.ns  # whole nanoseconds, as the host counts

    def elapsed_s(self, earlier: FakeEvent, later: FakeEvent) -> float:
        """Seconds between two events."""
        return later.reached_s - earlier.reached_s

    def capturing(self) -> bool:
        """As scripted."""
        return self.is_capturing

    def synchronize(self, event: FakeEvent) -> None:
        """The host waits for the event."""
        self.host.ns = max(self.host.ns, round(event.reached_s * 1e9))


class FakeDeviceReader:
    """Devices that say what they are told to, for whatever reads snapshots.

    Args:
        clock: when a reading is made.
        devices: what the next readings show; no device gives the state of a machine without one.
    """

    def __init__(self, clock: FakeClock, devices: tuple[DeviceReading, ...] = ()) -> None:
        self.clock = clock
        self.devices = devices
        self.state: SnapshotState | None = None  # instead of what follows from `devices`
        self.reason = "no device was scripted"
        self.reads = 0
        self.closed = False

    def read(self) -> Snapshot:
        """As scripted."""
        self.reads += 1
        state = self.state or ("ok" if self.devices else "no device")
        reason = "" if state == "ok" else self.reason
        return Snapshot(self.clock.ns * 1e-9, state, reason, "", self.devices)

    def close(self) -> None:
        """Only remembered."""
        self.closed = True
