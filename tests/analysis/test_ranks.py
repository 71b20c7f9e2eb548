"""Ranks side by side: transfer against skew, the late rank, the starved rank, clocks that differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jupyter_gpuprof.analysis.collectives import match_collectives
from jupyter_gpuprof.analysis.ranks import compare, job_table, ranks_of_one_job
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.records.trace import RankComparison, TraceSet
from tests.trace_events import TRACES, Event, fetch, kernel, rank_header, step, write

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"


def compared(found: TraceSet) -> RankComparison:
    ranks = ranks_of_one_job(found).ranks
    return compare(ranks, [breakdown(trace) for trace in ranks])


def rank_events(late_us: float = 0, fetch_us: float = 5, steps: int = 4, shift_us: float = 0) -> list[Event]:
    """Steps of 1 ms with an all-reduce that ends at 900 us and moves its data in 50 us."""
    events = []
    for number in range(steps):
        t = 1_000_000 + 1000 * number + shift_us
        enter = 600 + late_us
        events += [
            step(number, t, 1000),
            fetch(t, fetch_us),
            kernel(t + fetch_us, enter - fetch_us),
            kernel(t + enter, 900 - enter, ALL_REDUCE, stream=20),
        ]
    return events


def job(folder: Path, *ranks: list[Event]) -> TraceSet:
    files = [
        write(folder / f"r{i}.json", events, **rank_header(i, len(ranks))) for i, events in enumerate(ranks)
    ]
    return read_traces(files)


def test_the_late_rank_of_the_dlrm_set() -> None:
    found = compared(read_traces([TRACES / "dlrm_8ranks_kineto.tar.gz"]))
    first = found.collectives
    assert found.late_rank == 7
    assert found.starved_rank is None
    assert len(found.collectives) == 8
    assert first.names[0] == "SendRecv"
    assert first.last[0] == 7
    assert first.late_ns[0] == pytest.approx(7_624_000, abs=1000)
    assert first.span_ns[0, 7, 0] - first.span_ns[0, 1, 0] == pytest.approx(7_624_000, abs=1000)
    assert np.ptp(first.span_ns[0, :, 1]) < 5000
    assert all(row.clock_ahead_s == 0 for row in found.rows)
    assert [row.rank for row in found.rows] == list(range(8))
    assert not found.notes
    assert "Rank 7 is late" in found.sentences[0]
    assert "7.6 ms after the first" in found.sentences[0]
    for row in found.rows:
        assert row.exposed_skew_ratio <= row.exposed_communication_ratio + 1e-9
        assert row.skew_s >= 0
    # Nearly all of what looks like communication is waiting for rank 7.
    assert found.rows[1].exposed_skew_ratio == pytest.approx(0.545, abs=0.01)


def test_the_dlrm_job_is_idle_for_the_host_first_and_communicates_second() -> None:
    ranks = ranks_of_one_job(read_traces([TRACES / "dlrm_8ranks_kineto.tar.gz"])).ranks
    table = job_table(ranks, [breakdown(trace) for trace in ranks])
    shares = table.seconds.sum(axis=0) / table.total_s
    order = np.argsort(-shares)
    assert [Part(i) for i in order[:2]] == [Part.HOST_GAP, Part.COMMUNICATION]
    assert shares[Part.HOST_GAP] > 0.2
    assert shares[Part.COMMUNICATION] > 0.15
    walls_ms = [14.455, 19.901, 13.017, 19.313, 17.979, 17.797, 13.091, 12.509]
    assert table.total_s == pytest.approx(np.mean(walls_ms) * 1e-3)


def test_gloo_ranks_of_which_one_sleeps() -> None:
    found = compared(read_traces([TRACES / "gloo_cpu_2ranks.tar.gz"]))
    waiting, sleeping = found.rows
    assert found.late_rank == 1
    assert waiting.exposed_communication_ratio > 0.8
    assert waiting.exposed_skew_ratio > 0.8
    assert waiting.skew_s / waiting.steps == pytest.approx(0.05, abs=0.01)
    assert sleeping.host_gap_ratio > 0.8
    assert sleeping.skew_s < 0.01
    assert "gloo:all_reduce" in found.sentences[0]


def test_transfer_and_skew(tmp_path: Path) -> None:
    found = compared(job(tmp_path, rank_events(), rank_events(late_us=250), rank_events(late_us=50)))
    collectives = found.collectives
    assert collectives.names == ("AllReduce",) * 4
    assert collectives.transfer_ns.tolist() == [50_000] * 4
    assert collectives.skew_ns[0].tolist() == [250_000, 0, 200_000]
    assert collectives.last.tolist() == [1] * 4
    assert collectives.late_ns.tolist() == [250_000] * 4
    assert found.late_rank == 1
    assert [row.transfer_s for row in found.rows] == pytest.approx([200e-6] * 3)
    assert [row.skew_s for row in found.rows] == pytest.approx([1e-3, 0, 0.8e-3])
    assert [row.exposed_skew_ratio for row in found.rows] == pytest.approx([0.25, 0, 0.2])
    assert [row.caused_wait_s for row in found.rows] == pytest.approx([0, 1.8e-3, 0])
    (sentence,) = found.sentences
    assert sentence.startswith("Rank 1 is late: the others wait 0.2 ms per step for it, most in AllReduce,")


def test_ranks_that_enter_together_have_no_late_one(tmp_path: Path) -> None:
    found = compared(job(tmp_path, rank_events(), rank_events(late_us=2), rank_events(late_us=1)))
    assert found.late_rank is None
    assert found.starved_rank is None
    assert not found.sentences


def test_a_starved_rank_and_the_others_that_wait_for_it(tmp_path: Path) -> None:
    found = compared(job(tmp_path, rank_events(), rank_events(), rank_events(late_us=250, fetch_us=300)))
    assert (found.starved_rank, found.late_rank) == (2, 2)
    assert found.input_spread_s == pytest.approx(295e-6)
    assert found.sentences[0].startswith(
        "Rank 2 is starved: it waits 0.3 ms per step for its data, the others 0.0"
    )
    assert found.sentences[1].startswith("Rank 2 is late")


def test_clocks_that_differ_are_aligned(tmp_path: Path) -> None:
    together = compared(job(tmp_path, rank_events(), rank_events(late_us=250), rank_events()))
    apart = compared(job(tmp_path, rank_events(), rank_events(late_us=250, shift_us=30_000), rank_events()))
    assert apart.late_rank == together.late_rank == 1
    assert [row.clock_ahead_s for row in apart.rows] == pytest.approx([0, 0.03, 0])
    assert (apart.collectives.skew_ns == together.collectives.skew_ns).all()
    assert [row.exposed_skew_ratio for row in apart.rows] == pytest.approx(
        [row.exposed_skew_ratio for row in together.rows]
    )
    assert "30.0 ms apart" in apart.notes[0]


def test_a_rank_that_recorded_more(tmp_path: Path) -> None:
    longer = rank_events(late_us=250, steps=6)
    ranks = job(tmp_path, [e for e in rank_events(steps=6) if e["ts"] >= 1_002_000], longer).ranks
    match = match_collectives(ranks)
    assert len(match.collectives) == 4
    assert match.collectives.late_ns.tolist() == [250_000] * 4
    assert "2 communication ops have no counterpart" in match.notes[0]


def test_point_to_point_is_not_compared(tmp_path: Path) -> None:
    send = kernel(1_000_000, 5, "ncclDevKernel_SendRecv()", stream=21)
    receive = kernel(1_003_990, 5, "ncclDevKernel_SendRecv()", stream=21)
    match = match_collectives(job(tmp_path, [*rank_events(), send], [*rank_events(), receive]).ranks)
    assert match.collectives.names == ("AllReduce",) * 4
    assert "2 communication ops have no counterpart" in match.notes[0]


def test_without_collectives_skew_is_missing(tmp_path: Path) -> None:
    alone = [step(0, 0, 100), kernel(10, 50)]
    for found in (compared(job(tmp_path, alone)), compared(job(tmp_path, alone, alone))):
        assert found.late_rank is None
        assert all(isinstance(row.skew_s, Missing) for row in found.rows)
        assert isinstance(found.input_spread_s, Missing)


def test_steps_of_the_job_are_matched_by_number(tmp_path: Path) -> None:
    early = [
        e for number in (1, 2) for e in (step(number, 100 * number, 100), kernel(100 * number, 20 * number))
    ]
    late = [e for number in (2, 3) for e in (step(number, 100 * number, 100), kernel(100 * number, 40))]
    ranks = job(tmp_path, early, late).ranks
    table = job_table(ranks, [breakdown(trace) for trace in ranks])
    assert len(table.seconds) == 1
    assert table.seconds[0, Part.COMPUTE] == pytest.approx(40e-6)
    assert Part.INPUT in table.missing


# -- which traces belong together ------------------------------------------------------------------


def test_ranks_of_different_jobs(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", rank_events(), **rank_header(0, 8))
    other = write(tmp_path / "other.json", rank_events(), **rank_header(1, 16))
    with pytest.raises(
        TraceError, match=r"different jobs: one\.json is one of 8 ranks, other\.json one of 16"
    ):
        ranks_of_one_job(read_traces([one, other]))


def test_ranks_of_different_recordings(tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    with pytest.raises(TraceError, match=r"r0\.json ends 3600 s before r1\.json begins"):
        ranks_of_one_job(job(tmp_path, rank_events(), rank_events(shift_us=hour_us)))


def test_two_traces_of_a_rank(tmp_path: Path) -> None:
    found = job(tmp_path, rank_events(), rank_events())
    again = write(tmp_path / "again.json", rank_events(shift_us=100), **rank_header(1, 2))
    ranks = ranks_of_one_job(TraceSet((*found.ranks, *read_traces([again]).ranks)))
    assert [trace.source for trace in ranks.ranks] == ["r0.json", "again.json"]
    assert ranks.notes == ("Left out: r1.json; again.json is a later trace of rank 1.",)


def test_missing_ranks(tmp_path: Path) -> None:
    files = [write(tmp_path / f"r{i}.json", rank_events(), **rank_header(i, 4)) for i in (0, 2)]
    ranks = ranks_of_one_job(read_traces(files))
    assert [trace.rank for trace in ranks.ranks] == [0, 2]
    assert "Of 4 ranks these are missing: 1, 3." in ranks.notes[0]


def test_one_rank_of_many_is_judged_alone() -> None:
    assert not ranks_of_one_job(read_traces([TRACES / "ddp_a100_rank3.json.gz"])).notes


def test_ranks_that_do_not_tell_are_numbered_by_name(tmp_path: Path) -> None:
    files = [write(tmp_path / name, rank_events()) for name in ("b.json", "a.json")]
    ranks = ranks_of_one_job(read_traces(files))
    assert [(trace.rank, trace.source) for trace in ranks.ranks] == [(0, "a.json"), (1, "b.json")]
    assert "numbered by file name" in ranks.notes[0]
