"""A kernel whose device memory lies on the host, by the driver's checkpoint: what must hold, what came of it.

Experimental: the driver leaves a process in no good state when a checkpoint or its return fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Missing, Number

#: What is wanted of a process.
Goal = Literal["suspend", "restore"]

#: What the driver says of a process; "busy" while it is between two of these, "gone" without a process.
ProcessState = Literal["running", "locked", "checkpointed", "failed", "busy", "gone"]

#: What can be asked of the driver.
Call = Literal["lock", "checkpoint", "restore", "unlock"]

#: How it can end. "unknown": it was given up, and may still be going on.
Ending = Literal["refused", "suspended", "running", "failed", "gone", "unknown"]


@dataclass(frozen=True)
class SuspensionFacts:
    """All that decides whether a process may be suspended. What is missing is in the way.

    Args:
        system: operating system and processor, as "Linux x86_64".
        driver: version of the NVIDIA driver.
        driver_trouble: why the driver cannot be asked for the state of the process; empty where it can.
        same_user: the process belongs to who asks, or root asks.
        devices: of which the driver lists the process, by UUID.
        used_devices: how many devices the framework in the process uses.
        mig: one of them is split into instances.
        mps: a multi-process server shares them.
        footprint_bytes: what the process has of them.
        free_host_bytes: what the host, or the container's limit, leaves.
        children: its live descendants.
        nvml_loaded: the driver's monitoring library is loaded in it.
        distributed: torch.distributed is initialised in it.
        other_libraries: loaded ones that may use unified memory or devices in a way of their own.
        profiling: what profiles the device in it, or did; empty for nothing.
        holds_cells: its next cell can be held back.
    """

    system: str
    driver: str | Missing
    driver_trouble: str
    same_user: bool | Missing
    devices: tuple[str, ...] | Missing
    used_devices: int
    mig: bool | Missing
    mps: bool | Missing
    footprint_bytes: Number
    free_host_bytes: Number
    children: tuple[int, ...] | Missing
    nvml_loaded: bool | Missing
    distributed: bool | Missing
    other_libraries: tuple[str, ...]
    profiling: str
    holds_cells: bool


@dataclass(frozen=True)
class Condition:
    """One thing that must hold before a process is suspended.

    Args:
        name: what must hold, in words.
        holds: whether it does; what is not known does not.
        found: what was found.
    """

    name: str
    holds: bool
    found: str


@dataclass(frozen=True)
class SuspendReport:
    """One suspension, or one return from it.

    Args:
        goal: what was wanted.
        ending: how it ended; "suspended" after a restore: it did not come back, and may be tried again.
        sentence: what happened.
        conditions: all that must hold, for a suspension.
        devices: by UUID.
        footprint_bytes: of device memory.
        took_s: how long it took.
    """

    goal: Goal
    ending: Ending
    sentence: str
    conditions: tuple[Condition, ...] = ()
    devices: tuple[str, ...] = ()
    footprint_bytes: Number = Missing("not known")
    took_s: float = 0.0
