"""A pretend accelerator named "sim", with asynchronous streams, timed events and memory statistics.

A process can hold one such device and cannot let go of it again, so tests use it through ``run``, which
calls a function in a fresh process. What is simulated and what is not is said in simdevice.cpp.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .build import why_not

#: The environment variable with the memory of each device in bytes.
CAPACITY = "SIMDEVICE_CAPACITY"

__all__ = [
    "calls_while_capturing",
    "is_capturing",
    "load",
    "run",
    "set_capacity",
    "set_capturing",
    "set_copy_ms",
    "spin",
    "why_not",
]


@functools.cache
def load() -> ModuleType:
    """Build the device if need be, register it in this process as "sim", and return ``torch.sim``."""
    from . import device  # importing it is what registers it

    return device


def spin(ms: float) -> None:
    """Queue a fake kernel of that length on the current stream; returns at once."""
    load().spin(ms)


def set_copy_ms(ms: float) -> None:
    """Let each host-to-device copy from now on keep its stream busy that long."""
    load().set_copy_ms(ms)


def set_capacity(bytes_: int) -> None:
    """The memory of each device (1 GiB at first); an allocation beyond it raises torch.OutOfMemoryError.

    It holds for processes that are started from here on, too.
    """
    os.environ[CAPACITY] = str(bytes_)
    load().set_capacity(bytes_)


def set_capturing(on: bool) -> None:
    """Pretend that every stream is being captured into a graph: queries and waits raise, as on CUDA."""
    load().set_capturing(on)


def is_capturing() -> bool:
    """What torch.Stream.is_capturing() says of every stream."""
    return load().is_current_stream_capturing()


def calls_while_capturing() -> int:
    """How many event records, queries and waits were tried during capture so far."""
    return load().calls_while_capturing()


def run(function: Callable[..., Any], *args: Any, timeout_s: float = 300) -> Any:
    """Call a top-level function of a test file in a fresh process that has the device.

    Arguments and result travel as JSON. The first call of all may have to build the device.
    """
    command = [sys.executable, "-m", __name__, function.__module__, function.__name__, json.dumps(args)]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # another installed backend would take the only slot
        "OMP_NUM_THREADS": "1",  # arithmetic must not crowd out the stream workers on a small machine
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{function.__name__} failed on the sim device:\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])
