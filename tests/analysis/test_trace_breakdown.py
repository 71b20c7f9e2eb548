"""The parts of a step, on real traces with known numbers and on small ones with every case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.intervals import as_spans, union
from jupyter_gpuprof.analysis.trace_breakdown import Activity, breakdown, split
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.records.trace import Breakdown
from tests.trace_events import (
    TRACES,
    Event,
    copy,
    fetch,
    gpu_header,
    host_op,
    kernel,
    launch,
    optimize,
    step,
    two_steps,
    write,
)

#: File, rank, steps, wall in ms, then in %: busy, compute, communication, exposed communication, loader,
#: exposed loader. From the data's own documentation.
TABLE = [
    ("resnet50_workers0.pt.trace.json.gz", 0, 6, 1049.32, 56.03, 54.89, 0, 0, 39.62, 33.89),
    ("resnet50_workers4.pt.trace.json.gz", 0, 6, 838.49, 72.39, 70.06, 0, 0, 1.02, 0.85),
    ("ddp_a100_rank3.json.gz", 0, 6, 465.17, 83.54, 60.48, 35.16, 18.90, 0.09, 0.09),
    ("mi250_minitoy.json.gz", 0, 2, 9.37, 1.59, 1.18, 0, 0, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 0, 1, 14.46, 45.59, None, 40.11, 38.31, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 1, 1, 19.90, 61.91, None, 56.96, 55.55, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 2, 1, 13.02, 33.06, None, 26.83, 24.71, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 3, 1, 19.31, 55.44, None, 50.61, 48.93, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 4, 1, 17.98, 42.84, None, 36.64, 36.43, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 5, 1, 17.80, 40.86, None, 35.12, 34.90, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 6, 1, 13.09, 33.30, None, 27.18, 25.12, None, None),
    ("dlrm_8ranks_kineto.tar.gz", 7, 1, 12.51, 21.26, None, 13.96, 12.63, None, None),
]
DLRM_HOST_GAP = [46.8, 33.4, 57.1, 38.2, 51.3, 53.1, 56.8, 69.5]
POINT = 0.1


def shares(broken_down: Breakdown) -> dict[Part, float]:
    """Each part that is not 0, in % of the wall time."""
    table = broken_down.table
    return {part: 100 * s for part in Part if (s := table.part_s(part) / table.total_s)}


def broken_down(path: Path) -> Breakdown:
    (trace,) = read_traces([path]).ranks
    return breakdown(trace)


def of_events(tmp_path: Path, events: list[Event], **header: object) -> Breakdown:
    return broken_down(write(tmp_path / "trace.json", events, **header))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0].split('.')[0]}-{row[1]}")
def test_real_traces_give_the_known_numbers(row: tuple) -> None:
    file, rank, steps, wall_ms, *expected = row
    found = breakdown(read_traces([TRACES / file]).ranks[rank])
    parts = shares(found)
    measured = (
        found.busy_ratio,
        found.compute_ratio,
        found.communication_ratio,
        parts.get(Part.COMMUNICATION, 0) / 100,
        found.loader_ratio,
        parts.get(Part.INPUT, 0) / 100,
    )
    assert found.window == "ProfilerStep marks"
    assert found.steps == steps
    assert found.table.total_s * 1e3 == pytest.approx(wall_ms, abs=0.01)
    for value, right in zip(measured, expected, strict=True):
        if right is not None:
            assert 100 * value == pytest.approx(right, abs=POINT)
    assert sum(parts.values()) == pytest.approx(100)


def test_ranges_of_the_dlrm_ranks() -> None:
    all_ranks = [breakdown(trace) for trace in read_traces([TRACES / "dlrm_8ranks_kineto.tar.gz"]).ranks]
    for found, host_gap in zip(all_ranks, DLRM_HOST_GAP, strict=True):
        assert 5.8 < 100 * found.compute_ratio < 8.6
        assert 5.4 < 100 * found.loader_ratio < 10.0
        assert 4.6 < shares(found)[Part.INPUT] < 10.0
        assert shares(found)[Part.HOST_GAP] == pytest.approx(host_gap, abs=POINT)


def test_absent_loader_marks_are_missing_not_zero() -> None:
    found = broken_down(TRACES / "mi250_minitoy.json.gz")
    assert isinstance(found.loader_ratio, Missing)
    assert Part.INPUT in found.table.missing


def test_every_part_of_a_hand_made_step(tmp_path: Path) -> None:
    found = of_events(tmp_path, two_steps())
    expected = {Part.COMPUTE: 40, Part.COMMUNICATION: 10, Part.COPIES: 5, Part.INPUT: 20, Part.HOST_GAP: 25}
    assert shares(found) == pytest.approx(expected)
    assert found.table.seconds.sum(axis=1) == pytest.approx([100e-6, 100e-6])
    assert found.communication_ratio == pytest.approx(0.25)
    assert found.loader_ratio == pytest.approx(0.30)
    assert found.busy_ratio == pytest.approx(0.55)
    assert not found.table.missing


times = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted), max_size=8)
activities = st.tuples(times, times, times, times).map(lambda t: Activity(*(union(as_spans(s)) for s in t)))


@given(activities, st.integers(1, 999))
def test_parts_are_a_partition_and_add_up_over_windows(activity: Activity, cut: int) -> None:
    whole = split(activity, np.array([0, 1000]))
    halves = split(activity, np.array([0, cut, 1000]))
    assert (whole >= 0).all()
    assert whole.sum() == pytest.approx(1000e-9)
    assert halves.sum(axis=0) == pytest.approx(whole[0])


def test_steps_by_loader_marks_where_there_are_no_step_marks(tmp_path: Path) -> None:
    events = [fetch(100 * i, 10) for i in range(1, 5)] + [kernel(100 * i + 20, 50) for i in range(1, 5)]
    found = of_events(tmp_path, events)
    assert found.window == "loader marks"
    assert found.steps == 3
    assert shares(found) == pytest.approx({Part.INPUT: 10, Part.COMPUTE: 50, Part.HOST_GAP: 40})


def test_steps_by_optimizer_marks_where_nothing_else_is(tmp_path: Path) -> None:
    events = [optimize(100 * i, 10) for i in range(1, 4)] + [
        optimize(100 * i + 50, 5, "Adam") for i in range(1, 4)
    ]
    found = of_events(tmp_path, [*events, *(kernel(100 * i + 20, 50) for i in range(1, 4))])
    assert found.window == "optimizer marks"
    assert found.steps == 2
    assert Part.INPUT in found.table.missing


@pytest.mark.parametrize("marks", [[], [fetch(105, 1)], [optimize(105, 1)]])
def test_without_steps_the_whole_time_is_judged(tmp_path: Path, marks: list[Event]) -> None:
    found = of_events(tmp_path, [kernel(100, 10), kernel(150, 50), *marks])
    assert found.window == "first to last op"
    assert found.steps == 0
    assert found.table.total_s == pytest.approx(100e-6)
    assert shares(found)[Part.COMPUTE] == pytest.approx(60)
    assert len(found.table.sample_s) == 0
    assert any("steps begin" in note for note in found.notes)


def test_step_marks_written_twice_count_once(tmp_path: Path) -> None:
    found = of_events(tmp_path, [*two_steps(), step(0, 1000, 100), step(1, 1100.2, 99)])
    assert found.steps == 2


def test_streams_of_one_device_are_united(tmp_path: Path) -> None:
    found = of_events(
        tmp_path, [step(0, 0, 100), kernel(0, 50), kernel(25, 50, stream=8), kernel(30, 10, stream=9)]
    )
    assert found.compute_ratio == pytest.approx(0.75)


def test_the_busiest_of_several_devices_is_judged(tmp_path: Path) -> None:
    found = of_events(tmp_path, [step(0, 0, 100), kernel(0, 20), kernel(10, 60, device=1)])
    assert found.device == 1
    assert found.busy_ratio == pytest.approx(0.6)
    assert any("2 devices" in note for note in found.notes)


def test_copies_under_work_are_hidden(tmp_path: Path) -> None:
    found = of_events(tmp_path, [step(0, 0, 100), kernel(0, 50), copy(40, 30)])
    assert shares(found)[Part.COPIES] == pytest.approx(20)
    assert found.copies_ratio == pytest.approx(0.3)


def test_fetches_on_other_threads_are_no_waiting(tmp_path: Path) -> None:
    found = of_events(tmp_path, [step(0, 0, 100), kernel(0, 50), fetch(50, 5), fetch(60, 40, tid=777)])
    assert shares(found)[Part.INPUT] == pytest.approx(5)
    assert any("1 fetches on other threads" in note for note in found.notes)


def test_synchronisation_and_annotations_on_the_device_are_no_ops(tmp_path: Path) -> None:
    sync = {**kernel(50, 50, name="Stream Sync"), "cat": "cuda_sync"}
    drawn = {**kernel(50, 50, name="nccl:all_reduce"), "cat": "gpu_user_annotation"}
    found = of_events(tmp_path, [step(0, 0, 100), kernel(0, 50), sync, drawn])
    assert found.busy_ratio == pytest.approx(0.5)


def test_on_a_cpu_the_host_is_what_computes(tmp_path: Path) -> None:
    gloo = {**host_op(60, 30, "gloo:all_reduce", tid=200), "cat": "user_annotation"}
    events = [
        step(0, 0, 100),
        fetch(0, 20),
        host_op(5, 10, "aten::stack"),  # inside the fetch: not computing
        host_op(20, 50),
        host_op(25, 5, "aten::mm"),
        host_op(70, 1, "c10d::allreduce_"),
        gloo,
    ]
    found = of_events(tmp_path, events)
    expected = {Part.INPUT: 20, Part.COMPUTE: 50, Part.COMMUNICATION: 20, Part.HOST_GAP: 10}
    assert shares(found) == pytest.approx(expected)
    assert found.device is None
    assert set(found.table.missing) == {Part.COPIES}
    assert isinstance(found.copies_ratio, Missing)


@pytest.mark.parametrize(
    "evidence",
    [[launch(30)], [host_op(20, 40, "aten::cudnn_convolution")]],
    ids=["launches", "operators"],
)
def test_a_gpu_job_without_gpu_ops_is_not_idle(tmp_path: Path, evidence: list[Event]) -> None:
    events = [step(0, 0, 100), fetch(0, 40), host_op(40, 50), *evidence]
    with pytest.raises(TraceError, match=r"trace\.json shows no work of the device.* 40\.0% "):
        of_events(tmp_path, events, **gpu_header())


def test_marks_alone_are_not_judged(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="shows no work of the device"):
        of_events(tmp_path, [step(0, 0, 100), fetch(0, 40)])


def test_a_cpu_job_on_a_machine_with_gpus_says_what_was_taken_for_granted(tmp_path: Path) -> None:
    found = of_events(tmp_path, [step(0, 0, 100), host_op(40, 50)], **gpu_header())
    assert any("the CPU is judged" in note for note in found.notes)


def test_clocks_of_host_and_device_that_disagree(tmp_path: Path) -> None:
    found = of_events(tmp_path, [step(0, 0, 100), kernel(5000, 10), kernel(5050, 50)])
    assert found.window == "first to last op"
    assert any("clocks of host and device disagree" in note for note in found.notes)


def test_step_marks_that_overlap_by_a_rounding_are_steps_of_their_own() -> None:
    from jupyter_gpuprof.analysis.trace_breakdown import _successive

    marks = np.array([[i * 1000, (i + 1) * 1000 + 1] for i in range(10)])
    assert len(_successive(marks)) == 10
    nested = np.array([[0, 1000], [100, 200], [1000, 2000], [1000, 2000]])
    assert _successive(nested).tolist() == [[0, 1000], [1000, 2000]]
