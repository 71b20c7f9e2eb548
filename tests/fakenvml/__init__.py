"""A pretend NVML: our own libnvidia-ml.so.1, answering what a test says, read by the real pynvml.

    fake = FakeNvml(tmp_path, [Gpu(used_bytes=2 * GIB, processes={4711: GIB})])
    subprocess.run(..., env={**os.environ, **fake.env})         # a server, a command
    with fake.in_process():                                     # this very process
        ...
        fake.set(0, utilisation=100)                            # seen by the next call
        fake.fail(15, index=0)                                  # the device is lost
        fake.heal()

What a line of the state file means is said in fakenvml.c.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .build import library, why_not

__all__ = ["GARBAGE", "GIB", "MIB", "FakeNvml", "Gpu", "why_not"]

MIB = 1024**2
GIB = 1024**3
#: What the driver gives as the utilisation of a zombie.
GARBAGE = 2**32 - 1


@dataclass
class Gpu:
    """What one device answers; an empty uuid becomes one made of its index."""

    uuid: str = ""
    name: str = "Fake H200"
    total_bytes: int = 140 * GIB
    used_bytes: int = 0
    reserved_bytes: int = 600 * MIB
    utilisation: int = 0  # per cent
    mig: bool = False
    metrics: dict[int, float] | None = None  # GPM counters by number; None: the device has none
    processes: dict[int, int | None] = field(default_factory=dict)  # bytes by pid
    samples: list[tuple[int, int, int]] = field(default_factory=list)  # pid, time in us, per cent

    def lines(self, index: int) -> list[str]:
        """The device in the state file."""
        self.uuid = self.uuid or f"GPU-{index:08x}-0000-4000-8000-{index:012x}"
        return [
            f"device {self.uuid} {self.name}",
            f"memory {self.total_bytes} {self.used_bytes} {self.reserved_bytes}",
            f"utilisation {self.utilisation} 0",
            f"mig {int(self.mig)}",
            f"gpm {int(self.metrics is not None)}",
            *(f"metric {number} {value}" for number, value in (self.metrics or {}).items()),
            *(f"process {pid} {'none' if used is None else used}" for pid, used in self.processes.items()),
            *(f"sample {pid} {stamp} {percent}" for pid, stamp, percent in self.samples),
        ]


class FakeNvml:
    """The library and its state file.

    Args:
        folder: where the state file goes.
        devices: the devices at first.
        without: functions that the library does not have, as an older driver.
    """

    def __init__(self, folder: Path, devices: Sequence[Gpu] = (), *, without: tuple[str, ...] = ()) -> None:
        self.library = library(without)
        self.state = Path(folder) / "fakenvml.state"
        self.devices = list(devices)
        self.epoch = 0
        self.now_ms = -1
        self._rules: list[str] = []
        self.write()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment from its start on."""
        path = os.pathsep.join(filter(None, [str(self.library.parent), os.environ.get("LD_LIBRARY_PATH")]))
        return {"LD_LIBRARY_PATH": path, "FAKENVML_STATE": str(self.state)}

    @contextmanager
    def in_process(self) -> Iterator[ctypes.CDLL]:
        """The library as this process's pynvml; a loader path set now would come too late."""
        import pynvml

        before = pynvml.nvmlLib, os.environ.get("FAKENVML_STATE")
        pynvml._nvmlGetFunctionPointer_cache.clear()
        os.environ["FAKENVML_STATE"] = str(self.state)
        pynvml.nvmlLib = ctypes.CDLL(str(self.library))
        pynvml.nvmlLib.fakenvml_reset()  # it stays loaded from one test to the next
        try:
            yield pynvml.nvmlLib
        finally:
            pynvml.nvmlLib = before[0]
            pynvml._nvmlGetFunctionPointer_cache.clear()
            os.environ.pop("FAKENVML_STATE", None)
            if before[1] is not None:
                os.environ["FAKENVML_STATE"] = before[1]

    def set(self, index: int, **values: Any) -> None:
        """Give a device other answers."""
        for name, value in values.items():
            assert hasattr(self.devices[index], name), name
            setattr(self.devices[index], name, value)
        self.write()

    def fail(self, code: int, function: str = "*", index: int | str = "*") -> None:
        """Let calls fail with an error code from now on; "*" is all but nvmlShutdown."""
        self._rules.append(f"error {function} {index} {code}")
        self.write()

    def hang(self, seconds: float, function: str = "*", index: int | str = "*") -> None:
        """Let calls return only after so long, or when `heal` is called."""
        self._rules.append(f"hang {function} {index} {seconds}")
        self.write()

    def heal(self) -> None:
        """No call fails or hangs any more."""
        self._rules.clear()
        self.write()

    def forget_handles(self) -> None:
        """All handles go bad (999) until the next init, as when a container loses its devices for a while."""
        self.epoch += 1
        self.write()

    def write(self) -> None:
        """Bring the state file up to date, whole or not at all."""
        lines = ["driver 580.65.06", f"epoch {self.epoch}", f"now_ms {self.now_ms}", *self._rules]
        for index, device in enumerate(self.devices):
            lines += device.lines(index)
        fresh = self.state.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        os.replace(fresh, self.state)
