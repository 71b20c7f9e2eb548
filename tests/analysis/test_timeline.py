"""The ops that took most time, and steps drawn out, of small traces with known spans."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.timeline import (
    LONGEST_NAME,
    MOST_OPS,
    MOST_SPANS,
    RESOLUTION,
    step_timelines,
    top_ops,
)
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.records.ops import Lane, OpSpan, StepTimeline
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.trace import GpuOps, Marks, OpKind, RankTrace
from tests.trace_events import TRACES, copy, fetch, gpu_header, kernel, optimize, step, write

MS = 1_000_000
BEGIN = 1_700_000_000 * 10**9
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"

Op = tuple[float, float, str, OpKind]


def a_trace(
    ops: Sequence[Op],
    step_ms: Sequence[float],
    *,
    loaders: Sequence[tuple[float, float]] = (),
    optimizers: Sequence[tuple[float, float]] = (),
    host_ops: Sequence[tuple[float, float]] = (),
    collectives: Sequence[tuple[float, float]] = (),
    streams: Sequence[int] = (),
    devices: Sequence[int] = (),
    rank: int | None = None,
) -> RankTrace:
    """A trace whose steps begin at 0 and follow each other; times in ms."""
    names: list[str] = []

    def ids(wanted: Sequence[str]) -> np.ndarray:
        names.extend(name for name in dict.fromkeys(wanted) if name not in names)
        return np.array([names.index(name) for name in wanted], dtype=np.int32)

    def spans(pairs: Sequence[tuple[float, float]]) -> np.ndarray:
        return np.array([[BEGIN + round(t * MS) for t in pair] for pair in pairs], dtype=np.int64).reshape(
            -1, 2
        )

    def marks(pairs: Sequence[tuple[float, float]], wanted: Sequence[str]) -> Marks:
        return Marks(spans(pairs), ids(wanted), np.zeros(len(pairs), dtype=np.int32))

    ops = sorted(ops, key=lambda op: op[0])
    edges = np.concatenate(([0], np.cumsum(step_ms))).tolist()
    numbers = range(10, 10 + len(step_ms))
    n = len(ops)
    return RankTrace(
        source="made by hand",
        rank=rank,
        world_size=None,
        device=Device("cpu" if host_ops else "cuda", "a device", 1, Missing("not told"), simulated=False),
        ops=GpuOps(
            span_ns=spans([(op[0], op[1]) for op in ops]),
            kind=np.array([op[3] for op in ops], dtype=np.int8),
            device=np.array(devices or [0] * n, dtype=np.int32),
            stream=np.array(streams or [7] * n, dtype=np.int64),
            name_id=ids([op[2] for op in ops]),
            collective_id=np.full(n, -1, dtype=np.int32),
        ),
        steps=marks(list(pairwise(edges)), [f"ProfilerStep#{number}" for number in numbers]),
        loaders=marks(loaders, ["enumerate(DataLoader)#__next__"] * len(loaders)),
        optimizers=marks(optimizers, ["Optimizer.step#SGD.step"] * len(optimizers)),
        collectives=marks(collectives, ["gloo:all_reduce"] * len(collectives)),
        host_op_ns=spans(host_ops),
        events=n,
        names=tuple(names),
    )


def compute(start: float, end: float, name: str = "gemm") -> Op:
    return (start, end, name, OpKind.COMPUTE)


def drawn(trace: RankTrace) -> tuple[StepTimeline, ...]:
    return step_timelines(trace, breakdown(trace))


def lane(timeline: StepTimeline, kind: str) -> tuple[OpSpan, ...]:
    (spans,) = [lane.spans for lane in timeline.lanes if lane.kind == kind]
    return spans


def window(*edges_ms: float) -> tuple[int, int]:
    start, end = (BEGIN + round(t * MS) for t in edges_ms)
    return start, end


# -- the ops that took most time -------------------------------------------------------------------


def test_ops_by_time_with_kind_count_and_share() -> None:
    trace = a_trace(
        [
            compute(0, 10),
            compute(20, 30),
            (30, 45, NCCL, OpKind.COMMUNICATION),
            (50, 55, "Memcpy HtoD (Pinned -> Device)", OpKind.COPY),
        ],
        [100],
    )
    totals = top_ops(trace, 0, window(0, 100))
    assert [(op.name, op.kind, op.count) for op in totals] == [
        ("gemm", "compute", 2),
        (NCCL, "communication", 1),
        ("Memcpy HtoD (Pinned -> Device)", "copies", 1),
    ]
    assert [op.total_s for op in totals] == pytest.approx([0.020, 0.015, 0.005])
    assert [op.busy_ratio for op in totals] == pytest.approx([0.5, 0.375, 0.125])


def test_ops_are_cut_at_the_window() -> None:
    trace = a_trace([compute(0, 10), compute(20, 30), compute(90, 99)], [100])
    (gemm,) = top_ops(trace, 0, window(5, 25))
    assert gemm.count == 2
    assert gemm.total_s == pytest.approx(0.010)


def test_an_op_on_two_streams_at_once_is_busy_once() -> None:
    trace = a_trace([compute(0, 10), compute(0, 10)], [100], streams=[7, 8])
    (gemm,) = top_ops(trace, 0, window(0, 100))
    assert gemm.total_s == pytest.approx(0.020)
    assert gemm.busy_ratio == 1


def test_another_device_does_not_count() -> None:
    trace = a_trace([compute(0, 10), compute(10, 30, "other")], [100], devices=[0, 1])
    assert [op.name for op in top_ops(trace, 0, window(0, 100))] == ["gemm"]


def test_only_the_longest_are_told_with_their_whole_names() -> None:
    long_name = "void kernel<" + "std::tuple<float>, " * 200 + "int>(T&&)"
    ops = [compute(i, i + 0.1 + i / 1000, f"op {i}") for i in range(30)] + [compute(40, 45, long_name)]
    totals = top_ops(a_trace(ops, [100]), 0, window(0, 100))
    assert len(totals) == MOST_OPS
    assert totals[0].name == long_name
    assert [op.name for op in totals[1:3]] == ["op 29", "op 28"]


def test_nothing_in_the_window_is_no_op() -> None:
    trace = a_trace([compute(0, 10)], [100])
    assert top_ops(trace, 0, window(50, 60)) == ()


def test_of_the_host_only_communication_has_names() -> None:
    trace = a_trace([], [100], host_ops=[(0, 30), (5, 10)], collectives=[(30, 40)])
    (reduced,) = top_ops(trace, None, window(0, 100))
    assert (reduced.name, reduced.kind) == ("gloo:all_reduce", "communication")
    assert reduced.busy_ratio == pytest.approx(0.25)


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300), st.sampled_from("abc")), min_size=1))
def test_no_share_is_above_one(found: list[tuple[int, int, str]]) -> None:
    trace = a_trace([compute(start, start + length, name) for start, length, name in found], [1000])
    totals = top_ops(trace, 0, window(0, 1000))
    assert all(0 <= op.busy_ratio <= 1 for op in totals)
    assert [op.total_s for op in totals] == sorted((op.total_s for op in totals), reverse=True)


# -- steps drawn out -------------------------------------------------------------------------------


def test_the_typical_step_and_the_worst() -> None:
    trace = a_trace([compute(1, 2)], [30, 10, 20, 100, 21], rank=3)
    typical, worst = drawn(trace)
    assert (typical.which, typical.step, worst.which, worst.step) == ("typical", 14, "worst", 13)
    assert typical.rank == worst.rank == 3
    assert (typical.duration_s, worst.duration_s) == pytest.approx((0.021, 0.100))


def test_a_lone_step_is_the_typical_one() -> None:
    (only,) = drawn(a_trace([compute(1, 2)], [10]))
    assert (only.which, only.step, only.rank) == ("typical", 10, 0)


def test_lanes_in_seconds_from_the_beginning_of_the_step() -> None:
    trace = a_trace(
        [
            compute(110, 150),
            (120, 160, NCCL, OpKind.COMMUNICATION),
            (105, 110, "Memcpy HtoD (Pinned -> Device)", OpKind.COPY),
        ],
        [100, 100, 101],
        loaders=[(100, 105)],
        optimizers=[(160, 170)],
    )
    typical = drawn(trace)[0]
    assert typical.step == 11
    assert typical.lanes == (
        Lane("loader", (OpSpan("enumerate(DataLoader)#__next__", 0.0, 0.005),)),
        Lane("host", (OpSpan("Optimizer.step#SGD.step", 0.060, 0.010),)),
        Lane("compute", (OpSpan("gemm", 0.010, 0.040),)),
        Lane("communication", (OpSpan(NCCL, 0.020, 0.040),)),
        Lane("copies", (OpSpan("Memcpy HtoD (Pinned -> Device)", 0.005, 0.005),)),
    )


def test_a_lane_of_any_step_is_in_both_and_one_of_none_in_neither() -> None:
    trace = a_trace([compute(1, 2), (11, 12, "Memset", OpKind.COPY)], [10, 20])
    typical, worst = drawn(trace)
    assert (
        [lane.kind for lane in typical.lanes] == [lane.kind for lane in worst.lanes] == ["compute", "copies"]
    )
    assert lane(typical, "copies") == ()


def test_an_op_over_the_edge_is_cut() -> None:
    (typical, worst) = drawn(a_trace([compute(5, 15)], [10, 20]))
    assert lane(typical, "compute") == (OpSpan("gemm", 0.005, 0.005),)
    assert lane(worst, "compute") == (OpSpan("gemm", 0.0, 0.005),)


def test_short_ops_close_to_each_other_are_one_bar_that_says_how_full_it_is() -> None:
    # A thousandth of the step is 1 ms: ops of 0.5 ms every ms are merged, the long one and the far one not.
    short = [compute(10 + i, 10.5 + i, "last" if i == 3 else "short") for i in range(4)]
    trace = a_trace([*short, compute(14, 20, "long"), compute(50, 50.2, "far")], [1000])
    bars = lane(drawn(trace)[0], "compute")
    assert bars == (
        OpSpan("4 ops (longest: short)", 0.010, 0.0035, pytest.approx(2 / 3.5, abs=1e-3)),
        OpSpan("long", 0.014, 0.006),
        OpSpan("far", 0.050, 0.0002),
    )


def test_the_longest_of_merged_ops_names_them() -> None:
    trace = a_trace([compute(10, 10.1, "a"), compute(10.2, 10.9, "b"), compute(11, 11.2, "c")], [1000])
    (bar,) = lane(drawn(trace)[0], "compute")
    assert bar.name == "3 ops (longest: b)"


def test_merged_ops_of_several_streams_are_not_counted_twice() -> None:
    trace = a_trace([compute(10, 10.5), compute(10, 10.5), compute(10.75, 11)], [1000], streams=[7, 8, 7])
    (bar,) = lane(drawn(trace)[0], "compute")
    assert bar.name == "3 ops (longest: gemm)"
    assert bar.busy_ratio == 0.75


def test_a_bar_of_merged_ops_is_no_longer_than_a_hundredth_of_the_step() -> None:
    trace = a_trace([compute(i / 10, i / 10 + 0.05) for i in range(1000)], [1000])
    bars = lane(drawn(trace)[0], "compute")
    assert max(bar.duration_s for bar in bars) <= 0.010
    assert sum(bar.duration_s * bar.busy_ratio for bar in bars) == pytest.approx(0.050, rel=0.01)


@pytest.mark.parametrize("gap_ms", [0.1, 1.5])
def test_a_lane_has_a_bounded_number_of_bars(gap_ms: float) -> None:
    trace = a_trace([compute(i * (1 + gap_ms), i * (1 + gap_ms) + 1) for i in range(2000)], [6000])
    bars = lane(drawn(trace)[0], "compute")
    assert len(bars) <= MOST_SPANS
    assert sum(bar.duration_s * bar.busy_ratio for bar in bars) == pytest.approx(2.0, rel=0.01)


def test_names_in_a_timeline_are_bounded() -> None:
    (bar,) = lane(drawn(a_trace([compute(1, 5, "x" * 3000)], [10]))[0], "compute")
    assert bar.name == "x" * (LONGEST_NAME - 1) + "…"


def test_on_a_cpu_the_operators_compute() -> None:
    trace = a_trace(
        [], [100], loaders=[(0, 10)], host_ops=[(2, 8), (20, 50), (25, 30)], collectives=[(60, 70)]
    )
    (only,) = drawn(trace)
    assert [lane.kind for lane in only.lanes] == ["loader", "compute", "communication"]
    assert lane(only, "compute") == (OpSpan("host ops", 0.020, 0.030),)
    assert lane(only, "communication") == (OpSpan("gloo:all_reduce", 0.060, 0.010),)


def test_where_steps_are_not_known_the_window_is_drawn() -> None:
    (whole,) = drawn(a_trace([compute(10, 20), compute(40, 110)], []))
    assert (whole.which, whole.duration_s) == ("window", pytest.approx(0.100))
    assert lane(whole, "compute")[0] == OpSpan("gemm", 0.0, 0.010)


def test_fetches_on_other_threads_are_not_drawn(tmp_path: Path) -> None:
    events = [step(0, 0, 1000), fetch(100, 50), fetch(300, 50, tid=7), kernel(400, 100), copy(200, 10)]
    (trace,) = read_traces([write(tmp_path / "t.json", [*events, optimize(600, 50)], **gpu_header())]).ranks
    bars = lane(drawn(trace)[0], "loader")
    assert [(bar.start_s, bar.duration_s) for bar in bars] == [(100e-6, 50e-6)]


@pytest.mark.parametrize(
    ("file", "kinds"),
    [
        ("ddp_a100_rank3.json.gz", ["loader", "host", "compute", "communication", "copies"]),
        ("resnet50_workers0.pt.trace.json.gz", ["loader", "host", "compute", "copies"]),
        ("gloo_cpu_2ranks.tar.gz", ["loader", "host", "compute", "communication"]),
        ("mi250_minitoy.json.gz", ["host", "compute", "copies"]),
    ],
)
def test_the_work_of_real_steps_is_kept(file: str, kinds: list[str]) -> None:
    for trace in read_traces([TRACES / file]).ranks:
        broken_down = breakdown(trace)
        for timeline in step_timelines(trace, broken_down):
            assert [lane.kind for lane in timeline.lanes] == kinds
            for one in timeline.lanes:
                assert len(one.spans) <= MOST_SPANS
                ends = [span.start_s + span.duration_s for span in one.spans]
                assert all(end <= timeline.duration_s * (1 + RESOLUTION) for end in ends)
    if file.startswith("ddp"):
        # Of all the steps' work, the typical and the worst hold what 2 of 6 steps should.
        drawn_s = sum(
            span.duration_s * span.busy_ratio
            for timeline in step_timelines(trace, broken_down)
            for span in lane(timeline, "communication")
        )
        whole_s = broken_down.communication_ratio * broken_down.table.total_s
        assert drawn_s == pytest.approx(whole_s / 3, rel=0.15)
