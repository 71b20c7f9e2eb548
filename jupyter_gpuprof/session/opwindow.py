"""What gpu ops told, for the report: of a stored trace or of a live window."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.analysis.timeline import step_timelines, top_ops
from jupyter_gpuprof.records.ops import OpWindow
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.records.trace import Breakdown, RankTrace


def describe_window(
    traces: Sequence[RankTrace], breakdowns: Sequence[Breakdown], column: int = 0, agreement: str = ""
) -> OpWindow:
    """A summary of the ops of one rank, with the timelines of all.

    Args:
        traces: one per rank.
        breakdowns: theirs, in the same order.
        column: which rank's figures to give.
        agreement: how the window and the events of a live run go together.
    """
    trace, broken_down = traces[column], breakdowns[column]
    table, edges_ns = broken_down.table, broken_down.edges_ns
    exposed: Number = Missing(table.missing[Part.INPUT]) if Part.INPUT in table.missing else (
        table.part_s(Part.INPUT) / table.total_s
    )  # fmt: skip
    return OpWindow(
        rank=trace.rank if len(traces) > 1 else None,
        edges=broken_down.window,
        steps=broken_down.steps,
        wall_s=table.total_s,
        busy_ratio=broken_down.busy_ratio,
        communication_ratio=broken_down.communication_ratio,
        loader_ratio=broken_down.loader_ratio,
        exposed_input_ratio=exposed,
        agreement=agreement,
        top_ops=top_ops(trace, broken_down.device, (int(edges_ns[0]), int(edges_ns[-1]))),
        timelines=tuple(
            timeline for t, b in zip(traces, breakdowns, strict=True) for timeline in step_timelines(t, b)
        ),
    )
