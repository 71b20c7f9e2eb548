"""Where the time of a rank's steps went, from its trace.

Per step, with ``|x|`` the length and ``\\`` the difference of sets of time:

    compute        |compute ops|
    communication  |communication ops \\ compute ops|
    copies         |copies \\ (compute or communication ops)|
    input          |loader marks \\ any op|
    host gap       the rest: the device is idle and no batch is awaited

so that the parts are disjoint and sum to the step. In a trace of CPU activity the operators of the host
are the compute ops, except those inside fetching a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.intervals import Spans, difference, empty, length_per_window, total, union
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.records.trace import Breakdown, Marks, OpKind, RankTrace, Window

_NO_LOADER = "the trace has no loader marks; time spent waiting for data, if any, is in the host gap"
_NO_DEVICE = "the trace holds CPU activity alone"
_CUT_OFF = "the file is cut off, so the device may have worked in that time"


@dataclass(frozen=True)
class Activity:
    """When what happened on one device, as disjoint spans in nanoseconds, shape (n, 2) each."""

    compute: Spans
    communication: Spans
    copies: Spans
    loader: Spans

    @property
    def busy(self) -> Spans:
        """When anything ran on the device."""
        return union(np.concatenate((self.compute, self.communication, self.copies)))


def breakdown(trace: RankTrace) -> Breakdown:
    """Break the steps of a trace down into their parts.

    In a trace that is cut off any op may be missing. Then compute, communication and copies are the least
    that they can be; the rest stays in the columns of input and host gap, but these are missing.

    Raises:
        TraceError: there is nothing to judge: no gpu ops in the trace of a GPU job, or no stretch of time.
    """
    on_cpu = trace.device.kind == "cpu" and len(trace.host_op_ns)
    if not len(trace.ops) and not on_cpu:
        raise TraceError(_no_ops(trace))
    device = None if on_cpu else _busiest_device(trace)
    activity = activity_of(trace, device)
    window, edges_ns, notes = _steps(trace, activity.busy)
    in_steps = window != "first to last op"
    seconds = split(activity, edges_ns)
    wall_ns = int(edges_ns[-1] - edges_ns[0])

    def ratio(spans: Spans) -> float:
        return int(length_per_window(spans, edges_ns).sum()) / wall_ns

    return Breakdown(
        table=StepTable(
            seconds=seconds,
            steps_per_row=1,
            missing=_missing(trace, device),
            sample_s=seconds.sum(axis=1) if in_steps else np.empty(0),
        ),
        window=window,
        edges_ns=edges_ns,
        steps=len(seconds) if in_steps else 0,
        device=device,
        busy_ratio=ratio(activity.busy),
        compute_ratio=ratio(activity.compute),
        communication_ratio=ratio(activity.communication),
        copies_ratio=Missing(_NO_DEVICE) if device is None else ratio(activity.copies),
        loader_ratio=ratio(activity.loader) if len(trace.loaders) else Missing(_NO_LOADER),
        notes=(*trace.notes, *notes, *_notes(trace, device)),
    )


def split(activity: Activity, edges_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds per step and part, disjoint and summing to the step.

    Args:
        activity: what happened on the device.
        edges_ns: where the steps begin and the last one ends, shape (steps + 1,).

    Returns:
        Shape (steps, parts), columns as in `Part`.
    """
    work = union(np.concatenate((activity.compute, activity.communication)))
    parts = {
        Part.COMPUTE: activity.compute,
        Part.COMMUNICATION: difference(activity.communication, activity.compute),
        Part.COPIES: difference(activity.copies, work),
        Part.INPUT: difference(activity.loader, activity.busy),
    }
    table = np.zeros((len(edges_ns) - 1, len(Part)), dtype=np.int64)
    for part, spans in parts.items():
        table[:, part] = length_per_window(spans, edges_ns)
    table[:, Part.HOST_GAP] = np.diff(edges_ns) - table.sum(axis=1)
    return table.astype(np.float64) * 1e-9


def activity_of(trace: RankTrace, device: int | None) -> Activity:
    """What happened on one device of a trace; on the host where `device` is None."""
    loader = union(_on_training_thread(trace, trace.loaders))
    if device is None:
        return Activity(
            compute=difference(union(trace.host_op_ns), loader),
            communication=difference(union(trace.collectives.span_ns), loader),
            copies=empty(),
            loader=loader,
        )
    ops, here = trace.ops, trace.ops.device == device
    compute, communication, copies = (union(ops.span_ns[here & (ops.kind == kind)]) for kind in OpKind)
    return Activity(compute, communication, copies, loader)


def step_numbers(trace: RankTrace, rows: int) -> tuple[int, ...]:
    """The number of each of the first `rows` steps: N of ``ProfilerStep#N``, else counted from 0."""
    names = [trace.names[name_id] for name_id in trace.steps.name_id[:rows]]
    numbers = [name.rpartition("#")[2] for name in names]
    all_told = len(numbers) == rows and all(number.isdecimal() for number in numbers)
    return tuple(map(int, numbers)) if all_told else tuple(range(rows))


def _missing(trace: RankTrace, device: int | None) -> dict[Part, str]:
    missing = {}
    if device is None:
        missing[Part.COPIES] = _NO_DEVICE
    if not len(trace.loaders):
        missing[Part.INPUT] = _NO_LOADER
    if not trace.complete:
        missing |= {Part.INPUT: _CUT_OFF, Part.HOST_GAP: _CUT_OFF}
    return missing


def _notes(trace: RankTrace, device: int | None) -> list[str]:
    notes = []
    off_thread = len(trace.loaders) - len(_on_training_thread(trace, trace.loaders))
    if off_thread:
        notes.append(f"{off_thread} fetches on other threads are not counted as waiting.")
    if trace.device.count > 1:
        notes.append(f"{trace.device.count} devices in one trace; device {device}, the busiest, is judged.")
    return notes


def _steps(trace: RankTrace, busy: Spans) -> tuple[Window, NDArray[np.int64], list[str]]:
    """What the steps are taken from, their edges and notes."""
    notes: list[str] = []
    for window, edges_ns in _edges_by_marks(trace):
        left_out = 0
        if not trace.complete and len(busy):
            kept = edges_ns[edges_ns <= busy[-1, 1]]
            left_out, edges_ns = len(edges_ns) - len(kept), kept
        if len(edges_ns) < 2 or edges_ns[0] == edges_ns[-1]:
            continue
        if len(busy) and not length_per_window(busy, edges_ns[[0, -1]]).any():
            notes.append(f"No op lies within the {window}: the clocks of host and device disagree.")
            continue
        if left_out:
            notes.append(f"{left_out} steps after the last op that could be read are left out.")
        return window, edges_ns, notes
    if not len(busy):
        raise TraceError(f"{trace.source} has neither ops nor two marks of steps: there is nothing to judge.")
    notes.append(
        "The trace does not tell where steps begin: the time from the first op to the last is judged."
    )
    return "first to last op", busy[[0, -1], [0, 1]], notes


def _edges_by_marks(trace: RankTrace) -> list[tuple[Window, NDArray[np.int64]]]:
    """The edges of the steps by each kind of mark, the best kind first."""
    steps = _successive(_on_training_thread(trace, trace.steps))
    loaders = _successive(_on_training_thread(trace, trace.loaders))
    optimizers = _successive(_of_first_name(trace.optimizers))
    return [
        ("ProfilerStep marks", np.append(steps[:, 0], steps[-1:, 1])),
        ("loader marks", loaders[:, 0]),
        ("optimizer marks", optimizers[:, 1]),
    ]


def _successive(spans: Spans) -> Spans:
    """Marks by start, without those inside an earlier one (nested or written twice).

    One that only overlaps with the end of the one before is a step of its own: rounded times overlap.
    """
    if not len(spans):
        return spans
    reached = np.maximum.accumulate(spans[:, 1])
    kept: Spans = spans[np.concatenate(([True], spans[1:, 1] > reached[:-1]))]
    return kept


def _of_first_name(marks: Marks) -> Spans:
    """Of several optimizers, the marks of the one that steps first."""
    return _where(marks, marks.name_id == marks.name_id[0]) if len(marks) else marks.span_ns


def _on_training_thread(trace: RankTrace, marks: Marks) -> Spans:
    """The marks of the thread that trains: the one of the step marks, else of the optimizer's, else any."""
    for known in (trace.steps, trace.optimizers):
        if len(known):
            threads = np.bincount(known.thread_id)
            return _where(marks, marks.thread_id == int(threads.argmax()))
    return marks.span_ns


def _where(marks: Marks, chosen: NDArray[np.bool_]) -> Spans:
    spans: Spans = marks.span_ns[chosen]
    return spans


def _busiest_device(trace: RankTrace) -> int:
    devices: set[int] = set(trace.ops.device.tolist())
    if len(devices) == 1:
        return devices.pop()
    return max(devices, key=lambda d: total(union(trace.ops.span_ns[trace.ops.device == d])))


def _no_ops(trace: RankTrace) -> str:
    """Why there is no breakdown, with what the host's marks tell."""
    message = f"{trace.source} shows no work of the device"
    if not trace.complete:
        return f"{message}: the file is cut off."
    steps, loader = _successive(trace.steps.span_ns), union(trace.loaders.span_ns)
    if len(steps) and len(loader):
        edges_ns = steps[[0, -1], [0, 1]]
        share = int(length_per_window(loader, edges_ns)[0]) / max(int(np.ptp(edges_ns)), 1)
        message += f", only that fetching batches took {share:.1%} of the host's time"
    return f"{message}: CPU activities alone were recorded, or another profiler held the device."
