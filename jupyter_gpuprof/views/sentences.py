"""What a report says in words, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Device, Loader, Remedy, Run
from jupyter_gpuprof.views.format import (
    byte_size,
    clean,
    counted,
    known,
    number,
    percent,
    ratio,
    seconds,
    why,
)


def strength_words(run: Run) -> str:
    """How well the label is supported, nothing where it claims nothing."""
    return "" if run.verdict.strength == "none" else f"{run.verdict.strength} evidence"


def device_words(device: Device) -> str:
    """What the run trained on, a simulated device said first."""
    words = clean(device.name) or "unnamed device"
    if clean(device.kind).lower() != words.lower():
        words += f" ({clean(device.kind)})"
    if device.count > 1:
        words = f"{device.count} x {words}"
    if known(device.memory_bytes) is not None:
        words += f", {byte_size(device.memory_bytes)}" + (" each" if device.count > 1 else "")
    return f"SIMULATED device, not real hardware: {words}" if device.simulated else words


def clock_words(run: Run) -> str:
    """Whose clock measured the steps."""
    clock = "timed on the device" if run.clock == "device" else "timed on the host clock"
    return clock if run.source == "live" else f"{clock}, read from a stored {clean(run.source)}"


def steps_words(run: Run) -> str:
    """How many steps of which kind."""
    steps = run.steps
    updates = steps.optimizer_steps
    seen = f"{steps.counted:,} counted, {steps.warmup:,} warm-up, {steps.failed:,} failed"
    if isinstance(updates, Missing):
        return f"{seen}; optimizer steps not counted"
    return f"{seen}; {counted(int(updates), 'optimizer step')}"


def step_time_words(run: Run) -> str:
    """How long a step took, and all of them."""
    steps = run.steps
    typical, mean = _duration(steps.typical_s), _duration(steps.mean_s)
    return (
        f"typical {typical}, mean {mean}; {seconds(steps.total_s)} in all, "
        f"after {seconds(steps.warmup_s)} of warm-up"
    )


def memory_words(run: Run) -> str | None:
    """The peaks of the framework's allocator, None if neither is known."""
    peaks = {"allocated": run.memory.peak_allocated_bytes, "reserved": run.memory.peak_reserved_bytes}
    told = [f"{byte_size(peak)} {name}" for name, peak in peaks.items() if known(peak) is not None]
    if not told:
        return None
    words = "peak " + ", ".join(told)
    capacity, reserved = known(run.device.memory_bytes), known(peaks["reserved"])
    if capacity and reserved is not None:
        words += f" ({percent(reserved / capacity, 0)} of the device)"
    return words


def memory_reason(run: Run) -> str:
    """Why there is no peak, empty if there is one."""
    peak = run.memory.peak_allocated_bytes
    return why(peak) if isinstance(peak, Missing) else ""


def overhead_words(run: Run) -> str:
    """What measuring cost."""
    per_step, share = run.overhead.per_step_s, run.overhead.ratio
    if isinstance(per_step, Missing) and isinstance(share, Missing):
        return f"not measured: {why(per_step)}"
    return f"{seconds(per_step)} per step, {percent(share)} of the time of the steps"


def loader_words(loader: Loader) -> str:
    """One source of batches on one line."""
    size = f" of {number(loader.batch_size)}" if known(loader.batch_size) is not None else ""
    workers = known(loader.num_workers)
    staffed = f", {counted(int(workers), 'worker')}" if workers is not None else ""
    return (
        f"{clean(loader.name)} ({clean(loader.role)}): {counted(loader.fetches, 'batch')}{size}{staffed}; "
        f"waited {seconds(loader.wait_s)}, {seconds(loader.exposed_s)} of it exposed"
    )


def prediction(run: Run, remedy: Remedy, arrow: str = "->") -> str:
    """What the remedy should bring: ``12.1 ms -> 4.8 ms (2.5x)``, or why that is unknown."""
    if isinstance(remedy.predicted_step_s, Missing):
        return f"not predicted: {why(remedy.predicted_step_s)}"
    now, then = known(run.steps.mean_s), known(remedy.predicted_step_s)
    if now is None or not then:
        return f"{arrow} {seconds(then)} per step"
    return f"{seconds(now)} {arrow} {seconds(then)} ({ratio(now / then)})"


def _duration(reading: Number) -> str:
    return f"n/a ({why(reading)})" if isinstance(reading, Missing) else seconds(reading)
