"""Waits with those who still wait."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.planning.survival import curve_of, waiting_share, waits_of, waits_so_far
from jupyter_gpuprof.probes.jobfiles import read_jobs
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.fleet_words import wait

DATA = Path(__file__).parents[1] / "data" / "fleet"


def test_p90_is_a_wait_that_happened() -> None:
    assert waits_of("", range(1, 11), [True] * 10).p90_s == 9


def test_who_still_waits_is_not_left_out() -> None:
    waits = [*range(10, 90, 10), 90, 100]
    all_of_them = waits_of("", waits, [True] * 8 + [False] * 2)
    assert waiting_share(waits, [True] * 8 + [False] * 2)[1][-1] == pytest.approx(0.2)
    assert isinstance(all_of_them.p90_s, Missing)
    assert (all_of_them.p50_s, all_of_them.pending, all_of_them.longest_s) == (50, 2, 100)
    assert wait(all_of_them.p90_s, all_of_them) == "> 100 s"


def test_the_waits_of_a_real_site() -> None:
    records = read_jobs([DATA / "sacct_output.txt"])
    started = [job for job in records.jobs if not isinstance(job.start_s, Missing)]
    with_gpus = [job for job in started if not isinstance(job.gpus, Missing) and job.gpus]
    assert waits_of("", *waits_so_far(with_gpus, records.until_s)).p90_s == 72_917
    assert (len(with_gpus), len(started)) == (65, 87)
    everyone = [job for job in records.jobs if job.state != "cancelled" or job in started]
    waits, has_started = waits_so_far(everyone, records.until_s)
    assert 1 - waiting_share(waits, has_started)[1][-1] == pytest.approx(0.775, abs=5e-4)
    assert isinstance(waits_of("", waits, has_started).p90_s, Missing)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=30))
def test_it_is_the_product_of_those_who_go_on_waiting(rows: list[tuple[int, bool]]) -> None:
    share, expected = 1.0, []
    for moment in range(21):
        at_risk = sum(wait_s >= moment for wait_s, _ in rows)
        starts = sum(wait_s == moment and started for wait_s, started in rows)
        if starts:
            share *= 1 - starts / at_risk
            expected.append((moment, share))
    times, shares = waiting_share([w for w, _ in rows], [s for _, s in rows])
    assert list(times) == [moment for moment, _ in expected]
    assert shares == pytest.approx([value for _, value in expected])
    if all(started for _, started in rows):
        ordered = sorted(w for w, _ in rows)
        assert waits_of("", *zip(*rows, strict=True)).p90_s == ordered[-(-9 * len(rows) // 10) - 1]


def test_a_job_that_ran_without_a_told_start_tells_no_wait() -> None:
    job = Job("j", "", "", 1, 0.0, NOT_TOLD, NOT_TOLD, 5.0, "completed")
    assert waits_so_far([job], 100.0) == ([], [])


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    curve = curve_of("all", list(np.arange(5000.0)), [True] * 5000)
    assert len(curve.time_s) == 200
    assert (curve.time_s[0], curve.time_s[-1], curve.waiting_ratio[-1]) == (0, 4999, 0)


def test_no_jobs_no_wait() -> None:
    waits = waits_of("", [], [])
    assert isinstance(waits.p50_s, Missing)
    assert wait(waits.p50_s, waits) == "n/a"
