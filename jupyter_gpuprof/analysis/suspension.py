"""Whether a process may be suspended, and which call of the driver comes next. Both change nothing.

    running -- lock --> locked -- checkpoint --> checkpointed -- restore --> locked -- unlock --> running

After each call the state is read again, and the next step is found from it: what a call returned is not
believed. A lock whose checkpoint failed is taken back. No call is made twice: a driver that failed once
leaves the process in a state that more calls make no better.
"""

from __future__ import annotations

import re

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.suspension import (
    Call,
    Condition,
    Ending,
    Goal,
    ProcessState,
    SuspensionFacts,
)

#: The driver's branch from which CRIU's plugin trusts the calls used here.
OLDEST_DRIVER = 580
#: Host memory that must be left beside the copy of the device's.
HEADROOM = 0.2
_SYSTEM = "Linux x86_64"
_GIB = 1 << 30

Next = Call | Ending


def next_call(goal: Goal, state: ProcessState, made: tuple[Call, ...]) -> Next:
    """The call that comes next, or how it ended.

    Args:
        goal: what is wanted.
        state: of the process now; not "busy".
        made: the calls made so far.
    """
    if state == "gone":
        return "gone"
    if state == "locked":
        if goal == "suspend" and "checkpoint" not in made:
            return "checkpoint"
        return "unlock" if "unlock" not in made else "failed"
    if state == "running":
        return "lock" if goal == "suspend" and not made else "running"
    if state == "checkpointed":
        return "restore" if goal == "restore" and "restore" not in made else "suspended"
    return "failed"


def conditions(facts: SuspensionFacts) -> tuple[Condition, ...]:
    """All that must hold before a process is suspended, each with what was found."""
    devices, children = facts.devices, facts.children
    return (
        Condition(f"the system is {_SYSTEM}", facts.system == _SYSTEM, facts.system),
        _driver(facts.driver),
        Condition(
            "the driver can be asked for the process (pip install jupyter-gpuprof[suspend])",
            not facts.driver_trouble,
            facts.driver_trouble or "it answers",
        ),
        _is("the process belongs to the same user, or root asks", facts.same_user, True),
        Condition(
            "one device is used, and the driver lists the process there",
            not isinstance(devices, Missing) and len(devices) == 1 and facts.used_devices == 1,
            devices.reason if isinstance(devices, Missing)
            else f"the driver lists {len(devices)}, the framework uses {facts.used_devices}",
        ),
        _is("the device is not split into instances (MIG)", facts.mig, False),
        _is("no multi-process server shares it (MPS)", facts.mps, False),
        Condition(
            "the kernel has no child processes",
            children == (),
            children.reason if isinstance(children, Missing)
            else f"process {', '.join(map(str, children))}" if children else "none",
        ),
        _is("torch.distributed is not initialised", facts.distributed, False),
        _none("no unified memory: nothing is loaded that may use it", ", ".join(facts.other_libraries)),
        _none("no profiler of the device was used (CUPTI)", facts.profiling),
        _is("the monitoring library (NVML) is not loaded in the kernel", facts.nvml_loaded, False),
        _memory(facts),
        _is("the next cell can be held back", facts.holds_cells, True),
    )  # fmt: skip


def _driver(version: str | Missing) -> Condition:
    name = f"the driver is {OLDEST_DRIVER} or newer"
    if isinstance(version, Missing):
        return Condition(name, False, version.reason)
    number = re.match(r"\d+", version)
    return Condition(name, number is not None and int(number[0]) >= OLDEST_DRIVER, version or "not told")


def _memory(facts: SuspensionFacts) -> Condition:
    name = f"host memory takes what the device holds, and {HEADROOM * 100:.0f} % more"
    held, free = facts.footprint_bytes, facts.free_host_bytes
    if isinstance(held, Missing) or isinstance(free, Missing):
        why = held.reason if isinstance(held, Missing) else free.reason  # type: ignore[union-attr]
        return Condition(name, False, why)
    found = f"{held / _GIB:.2f} GiB are held, {free / _GIB:.2f} GiB free"
    return Condition(name, held > 0 and free >= held * (1 + HEADROOM), found)


def _is(name: str, found: bool | Missing, wanted: bool) -> Condition:
    if isinstance(found, Missing):
        return Condition(name, False, found.reason)
    return Condition(name, found is wanted, "yes" if found is wanted else "no")


def _none(name: str, found: str) -> Condition:
    return Condition(name, not found, found or "none")
