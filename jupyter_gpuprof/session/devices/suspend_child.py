"""A fresh process that suspends a kernel or brings it back: the driver asks for another process than its own.

Told as one line of JSON on standard input, answers with one on standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.suspension import conditions
from jupyter_gpuprof.probes import suspendable
from jupyter_gpuprof.probes.cudacheckpoint import CudaProcess, DriverRefused
from jupyter_gpuprof.probes.nvml import DeviceReader, NvmlReader
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.suspension import Ending, SuspendReport, SuspensionFacts
from jupyter_gpuprof.session.devices.suspending import CheckpointDriver, drive

#: Printed before the first change.
BEGUN = "begun"
_GIB = 1 << 30
_SUSPEND_WORDS: dict[Ending, str] = {
    "refused": "Nothing was done",
    "running": "It was not suspended, and goes on as before",
    "failed": "The driver failed: the kernel must be restarted",
    "gone": "The kernel is gone",
    "unknown": "How far it came is not known; the next cell waits until the device memory is back",
}
_RESTORE_WORDS: dict[Ending, str] = {
    "refused": "The driver does not answer",
    "suspended": "Its device memory could not be brought back, and stays on the host",
    "failed": "The driver failed: the kernel must be restarted",
    "gone": "The kernel is gone",
    "unknown": "Whether its device memory is back is not known",
}


def suspend(
    told: dict[str, Any],
    driver_of: Callable[[int], CheckpointDriver] = CudaProcess,
    reader: DeviceReader | None = None,
    begins: Callable[[], None] = lambda: None,
) -> SuspendReport:
    """Suspend the kernel if everything holds that must; the report lists what does and what does not.

    Args:
        told: ``pid``, ``own`` (`suspendable.own_facts`) and ``holds_cells``.
        driver_of: the driver's view of a process.
        reader: of the devices.
        begins: called before the first change.
    """
    begun_s, pid, own = clock.now_s(), int(told["pid"]), dict(told["own"])
    outside = suspendable.outside_facts(pid, _snapshot(reader), frozenset({os.getpid()}))
    variables = own.pop("mps_variables")
    driver, trouble = _driver(driver_of, pid)
    facts = SuspensionFacts(
        **outside, **own,
        mps=True if variables else suspendable.mps_runs(),
        driver_trouble=trouble,
        holds_cells=bool(told["holds_cells"]),
    )  # fmt: skip
    checked = conditions(facts)
    devices = () if isinstance(facts.devices, Missing) else facts.devices
    failing = [one for one in checked if not one.holds]
    if failing or driver is None:
        words = f"{_SUSPEND_WORDS['refused']}: {len(failing)} of {len(checked)} conditions do not hold"
        words += "." if facts.used_devices else ", and no accelerator is in use here."
        return SuspendReport("suspend", "refused", words, checked, devices, facts.footprint_bytes)
    begins()
    done = drive(driver, "suspend")
    held = facts.footprint_bytes
    words = _SUSPEND_WORDS.get(done.ending, "")
    if done.ending == "suspended" and not isinstance(held, Missing):
        words = f"{held / _GIB:.2f} GiB of {devices[0]} are on the host until the next cell"
    words += f" ({done.trouble})." if done.trouble else "."
    return SuspendReport("suspend", done.ending, words, checked, devices, held, clock.now_s() - begun_s)


def restore(
    told: dict[str, Any],
    driver_of: Callable[[int], CheckpointDriver] = CudaProcess,
    reader: DeviceReader | None = None,
) -> SuspendReport:
    """Bring the kernel's device memory back if there is room for it; without, the driver fails for good.

    Args:
        told: ``pid``, ``devices`` and ``footprint_bytes`` of the suspension's report.
        driver_of: the driver's view of a process.
        reader: of the devices.
    """
    begun_s, pid, devices = clock.now_s(), int(told["pid"]), tuple(told["devices"])
    held = told["footprint_bytes"]
    try:
        driver = driver_of(pid)
        state = driver.state()
        if state == "checkpointed" and (why := _no_room(reader, devices, held)):
            return SuspendReport("restore", "suspended", why, (), devices, held)
        done = drive(driver, "restore")
        ending, trouble = done.ending, done.trouble
    except DriverRefused as error:
        ending, trouble = "refused", str(error)
    took_s = clock.now_s() - begun_s
    words = _RESTORE_WORDS.get(ending, f"{held / _GIB:.2f} GiB came back to {devices[0]} in {took_s:.1f} s")
    words += f" ({trouble})." if trouble else "."
    return SuspendReport("restore", ending, words, (), devices, held, took_s)


def main() -> None:
    """Do what standard input says; a line before the answer tells that something is about to change."""
    told = json.load(sys.stdin)
    if told["goal"] == "suspend":
        report = suspend(told, begins=lambda: print(BEGUN, flush=True))
    else:
        report = restore(told)
    print(json.dumps(encode(report)), flush=True)


def _driver(driver_of: Callable[[int], CheckpointDriver], pid: int) -> tuple[CheckpointDriver | None, str]:
    try:
        driver = driver_of(pid)
        state = driver.state()
    except DriverRefused as error:
        return None, str(error)
    return driver, "" if state == "running" else f"its state is {state}"


def _no_room(reader: DeviceReader | None, devices: tuple[str, ...], held: int) -> str:
    if not devices:
        return "On which device it was is not known."
    free = suspendable.room(_snapshot(reader), devices[0])
    if isinstance(free, Missing):
        return f"How much of {devices[0]} is free is not known: {free.reason}."
    if free < held:
        return f"{held / _GIB:.2f} GiB are needed of {devices[0]}, and {free / _GIB:.2f} GiB are free."
    return ""


def _snapshot(reader: DeviceReader | None) -> Any:
    own = reader or NvmlReader()
    try:
        return own.read()
    finally:
        if reader is None:
            own.close()


if __name__ == "__main__":
    main()
