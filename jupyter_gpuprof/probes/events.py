"""Clocks that can be put into the stream of work: when did the device come to this place?

A backend records an event (on an accelerator: into the current stream), tells whether the device has
come to it, and the time between two events that it has come to. On a CPU the event is the host's clock.
Nothing here ever waits, but for `synchronize`, which is called once at the end of a run.
"""

from __future__ import annotations

from typing import Any, Protocol

from jupyter_gpuprof.clock import now_ns


class EventBackend(Protocol):
    """What the recorder needs of a clock."""

    clock: str  # "device" or "host"
    device_kind: str  # as torch names it: "cpu", "cuda", ...

    def record(self) -> Any:
        """Put an event behind all work issued so far."""

    def query(self, event: Any) -> bool:
        """Whether the device has come to the event; never waits."""

    def elapsed_s(self, earlier: Any, later: Any) -> float:
        """Seconds between two events that the device has come to."""

    def capturing(self) -> bool:
        """Whether a graph is being captured: nothing may be recorded or queried then."""

    def synchronize(self, event: Any) -> None:
        """Wait until the device has come to the event."""


class HostClock:
    """The host's monotonic clock: right where the host itself does the work."""

    clock = "host"
    device_kind = "cpu"

    def record(self) -> int:
        """Now, in nanoseconds."""
        return now_ns()

    def query(self, event: int) -> bool:
        """Always true."""
        return True

    def elapsed_s(self, earlier: int, later: int) -> float:
        """Seconds between two readings."""
        return (later - earlier) * 1e-9

    def capturing(self) -> bool:
        """Never."""
        return False

    def synchronize(self, event: int) -> None:
        """Nothing to wait for."""


class TorchEvents:
    """Timing events of one accelerator through torch's generic API (CUDA, ROCm, XPU, MPS, others).

    Args:
        device: a `torch.device` with an index.
    """

    clock = "device"

    def __init__(self, device: Any) -> None:
        import torch

        self.device_kind: str = device.type
        self._device = device
        self._new = lambda: torch.Event(device=device, enable_timing=True)
        module = getattr(torch, device.type, None)
        if hasattr(torch, "accelerator"):
            self._stream = lambda: torch.accelerator.current_stream(device)
        else:  # before torch 2.6
            self._stream = lambda: module.current_stream(device)  # type: ignore[union-attr]
        self._capturing = getattr(module, "is_current_stream_capturing", None)
        self._pool: list[Any] = []

    def record(self) -> Any:
        """An event in the device's current stream."""
        event = self._pool.pop() if self._pool else self._new()
        event.record(self._stream())
        return event

    def query(self, event: Any) -> bool:
        """Whether the device has come to it."""
        return bool(event.query())

    def elapsed_s(self, earlier: Any, later: Any) -> float:
        """Seconds on the device's clock; `earlier` goes back to the pool and must not be used again."""
        seconds: float = earlier.elapsed_time(later) * 1e-3
        self._pool.append(earlier)
        return seconds

    def capturing(self) -> bool:
        """Whether the current stream is being captured into a graph."""
        return self._capturing is not None and bool(self._capturing())

    def synchronize(self, event: Any) -> None:
        """Wait for the device."""
        event.synchronize()


def torch_events(device: Any) -> TorchEvents | None:
    """Events of that device, or None where they do not work.

    Constructing an event proves nothing (torch constructs CPU events that cannot be recorded), so one
    pair is recorded and read. The only wait inside a run, once, in its first step.
    """
    try:
        backend = TorchEvents(device)
        if backend.capturing():
            return None
        first, second = backend.record(), backend.record()
        second.synchronize()
        seconds = backend.elapsed_s(first, second)
    except Exception:
        # Whatever a backend without timing raises (RuntimeError, ValueError, NotImplementedError, ...).
        return None
    return backend if seconds >= 0 else None
