"""What the device did, op by op: the ops that took most time, and two steps drawn out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.intervals import Spans, total, union
from jupyter_gpuprof.analysis.trace_breakdown import activity_of, step_numbers
from jupyter_gpuprof.records.ops import Lane, OpSpan, OpTotal, StepTimeline
from jupyter_gpuprof.records.trace import Breakdown, Marks, OpKind, RankTrace

#: How many ops are told by name.
MOST_OPS = 10
#: Bars that a lane may have.
MOST_SPANS = 300
#: Ops shorter than this share of the step, and closer to each other, become one bar.
RESOLUTION = 1e-3
#: Such a bar is no longer than so many times that, so that quiet stretches stay in sight.
LONGEST_MERGED = 10
#: Characters of a name in a timeline; C++ names run into thousands.
LONGEST_NAME = 120

_KINDS = {OpKind.COMPUTE: "compute", OpKind.COMMUNICATION: "communication", OpKind.COPY: "copies"}
#: How the operators of the host are called, whose names a trace without gpu ops has no room for.
_HOST_OPS = "host ops"


@dataclass(frozen=True)
class _Row:
    """Everything of one kind, sorted by start; `name_id` points into `names`."""

    kind: str
    span_ns: Spans
    name_id: NDArray[np.int32]
    names: tuple[str, ...]


def top_ops(trace: RankTrace, device: int | None, window_ns: tuple[int, int]) -> tuple[OpTotal, ...]:
    """The ops that took most time, longest first.

    Ops are cut at the edges of the window. An op's share of the busy time counts once what several of its
    runs did at the same time, so that it is never above 1; those of different ops may overlap.

    Args:
        trace: one rank's trace.
        device: whose ops; None for communication of the host.
        window_ns: where to look, start and end.
    """
    rows = _rows_of_device(trace, device) if device is not None else _rows_of_host(trace)
    cut = [(row, *_cut(row, *window_ns)) for row in rows]
    busy_ns = total(union(np.concatenate([span_ns for _, span_ns, _ in cut])))
    totals = []
    for row, span_ns, name_id in cut:
        if row.names == (_HOST_OPS,):
            continue
        counts = np.bincount(name_id, minlength=len(row.names))
        total_ns = np.bincount(name_id, span_ns[:, 1] - span_ns[:, 0], minlength=len(row.names))
        for name in np.argsort(-total_ns, kind="stable")[: min(MOST_OPS, np.count_nonzero(counts))].tolist():
            alone_ns = total(union(span_ns[name_id == name]))
            share = alone_ns / busy_ns if busy_ns else 0.0
            totals.append(
                OpTotal(row.names[name], row.kind, int(counts[name]), float(total_ns[name]) * 1e-9, share)
            )
    return tuple(sorted(totals, key=lambda op: (-op.total_s, op.name))[:MOST_OPS])


def step_timelines(trace: RankTrace, breakdown: Breakdown) -> tuple[StepTimeline, ...]:
    """The typical step, whose duration is the median, and the worst, which is the longest.

    A lone step is the typical one. Where the steps are not known, the whole window is drawn.
    """
    edges_ns = breakdown.edges_ns
    by_duration = np.argsort(np.diff(edges_ns), kind="stable").tolist()
    typical, worst = by_duration[(len(by_duration) - 1) // 2], by_duration[-1]
    chosen = {"typical": typical, "worst": worst} if typical != worst else {"typical": typical}
    if not breakdown.steps:
        chosen = {"window": 0}
    numbers = step_numbers(trace, len(by_duration))
    rows = _rows(trace, breakdown)
    return tuple(
        StepTimeline(
            which=which,
            rank=trace.rank or 0,
            step=numbers[step],
            duration_s=int(edges_ns[step + 1] - edges_ns[step]) * 1e-9,
            lanes=tuple(
                Lane(row.kind, _bars(row, int(edges_ns[step]), int(edges_ns[step + 1]))) for row in rows
            ),
        )
        for which, step in chosen.items()
    )


def _rows(trace: RankTrace, breakdown: Breakdown) -> list[_Row]:
    """The lanes of a rank from top to bottom, without those of which there is nothing in any step."""
    loaders, optimizers = trace.loaders, trace.optimizers
    fetched = activity_of(trace, None).loader  # on the training thread; each begins with one of the marks
    first = np.searchsorted(loaders.span_ns[:, 0], fetched[:, 0])
    rows = [
        _Row("loader", fetched, loaders.name_id[first], trace.names),
        _Row("host", optimizers.span_ns, optimizers.name_id, trace.names),
        *(_rows_of_host(trace) if breakdown.device is None else _rows_of_device(trace, breakdown.device)),
    ]
    edges_ns = breakdown.edges_ns
    return [row for row in rows if len(_cut(row, int(edges_ns[0]), int(edges_ns[-1]))[0])]


def _rows_of_device(trace: RankTrace, device: int) -> list[_Row]:
    ops, rows = trace.ops, []
    for kind, name in _KINDS.items():
        chosen = (ops.device == device) & (ops.kind == kind)
        rows.append(_Row(name, ops.span_ns[chosen], ops.name_id[chosen], trace.names))
    return rows


def _rows_of_host(trace: RankTrace) -> list[_Row]:
    work = activity_of(trace, None)
    collectives: Marks = trace.collectives
    return [
        _Row("compute", work.compute, np.zeros(len(work.compute), dtype=np.int32), (_HOST_OPS,)),
        _Row("communication", collectives.span_ns, collectives.name_id, trace.names),
    ]


def _cut(row: _Row, start_ns: int, end_ns: int) -> tuple[Spans, NDArray[np.int32]]:
    """What of a row lies in a window, cut at its edges."""
    inside = (row.span_ns[:, 0] < end_ns) & (row.span_ns[:, 1] > start_ns)
    return np.clip(row.span_ns[inside], start_ns, end_ns), row.name_id[inside]


def _bars(row: _Row, start_ns: int, end_ns: int) -> tuple[OpSpan, ...]:
    """A row's bars in one step."""
    span_ns, name_id = _cut(row, start_ns, end_ns)
    if not len(span_ns):
        return ()
    span_ns = span_ns - start_ns
    resolution_ns = RESOLUTION * (end_ns - start_ns)
    first = _first_of_bars(span_ns, resolution_ns)
    while len(first) > MOST_SPANS:
        resolution_ns *= 2
        first = _first_of_bars(span_ns, resolution_ns)
    count = np.diff(np.append(first, len(span_ns)))
    bar = np.repeat(np.arange(len(first)), count)
    longest = np.lexsort((span_ns[:, 0] - span_ns[:, 1], bar))[first]
    begin_ns, finish_ns = span_ns[first, 0], np.maximum.reduceat(span_ns[:, 1], first)
    length_ns = finish_ns - begin_ns
    busy_ratio = np.where(length_ns > 0, _covered_ns(span_ns, bar, first) / np.maximum(length_ns, 1), 1.0)
    return tuple(
        OpSpan(
            name=_bar_name(row.names[name_id[longest[i]]], int(count[i])),
            start_s=round(int(begin_ns[i]) * 1e-9, 9),
            duration_s=round(int(length_ns[i]) * 1e-9, 9),
            busy_ratio=round(float(busy_ratio[i]), 3),
        )
        for i in range(len(first))
    )


def _first_of_bars(span_ns: Spans, resolution_ns: float) -> NDArray[np.intp]:
    """The position of the first op of each bar."""
    short = span_ns[:, 1] - span_ns[:, 0] < resolution_ns
    near = span_ns[1:, 0] - span_ns[:-1, 1] < resolution_ns
    stretch = span_ns[:, 0] // (LONGEST_MERGED * resolution_ns)
    joined = short[1:] & short[:-1] & near & (stretch[1:] == stretch[:-1])
    return np.flatnonzero(np.concatenate(([True], ~joined)))


def _covered_ns(span_ns: Spans, bar: NDArray[np.intp], first: NDArray[np.intp]) -> NDArray[np.int64]:
    """How much of each bar its ops cover together; ops of several streams may overlap."""
    apart = bar * (int(span_ns.max()) + 1)  # bars in a row, so that none reaches into the next
    start, end = span_ns[:, 0] + apart, span_ns[:, 1] + apart
    reached = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
    covered: NDArray[np.int64] = np.add.reduceat(np.maximum(end - np.maximum(start, reached), 0), first)
    return covered


def _bar_name(name: str, count: int) -> str:
    short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return short if count == 1 else f"{count} ops (longest: {short})"
