"""The report over a fleet: weighting, coverage, pooling, the week; the verdict and the search."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from jupyter_gpuprof.planning.fleetoutcome import outcome_of, play, recorded, verdict_of
from jupyter_gpuprof.planning.fleetreport import busy_of, fleet_report
from jupyter_gpuprof.planning.pooling import pooling_of, series_of
from jupyter_gpuprof.planning.poolsearch import limits_of, search_pool, what_if
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.probes.jobfiles import read_jobs
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, JobRecords
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, Team
from jupyter_gpuprof.records.reading import Estimate, Missing

DATA = Path(__file__).parents[1] / "data" / "fleet"
HOUR, DAY = 3600.0, 86400.0
MONDAY = 4 * DAY  # 1970-01-05; a year later for dates
YEAR = 364 * DAY  # whole weeks


def job(
    name: str, gpus: float, hours: float, *, busy: float | Missing = NOT_TOLD, at: float = 0.0, team: str = ""
) -> Job:
    return Job(name, team, "u", gpus, at, at, at + hours * HOUR, hours * HOUR, "completed", busy_ratio=busy)


def records(*jobs: Job) -> JobRecords:
    return JobRecords(("test",), jobs, len(jobs), until_s=max(float(j.end_s) for j in jobs))  # type: ignore[arg-type]


def test_the_report_of_a_real_site() -> None:
    report = fleet_report(read_jobs([DATA / "sacct_output.txt"]), price=2.0)
    assert report.total.gpu_hours == pytest.approx(933.34, abs=0.005)
    assert report.rows == 122
    assert sum(group.gpu_hours for group in report.by_team) == pytest.approx(933.34, abs=0.005)
    assert sum(group.gpu_hours for group in report.by_size) == pytest.approx(933.34, abs=0.005)
    assert isinstance(report.total.waits.p90_s, Missing)
    assert isinstance(report.money_per_busy_hour, Missing)


def test_ratios_are_weighted_by_gpu_hours() -> None:
    report = fleet_report(records(job("a", 1, 10, busy=0.9), job("b", 8, 100, busy=0.1)), price=2.0)
    assert report.total.busy_ratio == pytest.approx(0.109877, abs=1e-6)
    assert report.money_per_busy_hour == pytest.approx(2 / 0.109877, rel=1e-5)
    assert report.histogram[1] == 800  # type: ignore[index]


def test_what_nobody_saw_is_an_interval() -> None:
    assert busy_of(40, 80, 100) == Estimate(0.5, 0.4, 0.6)
    assert busy_of(40, 95, 100) == pytest.approx(40 / 95)
    assert isinstance(busy_of(0, 0, 100), Missing)


def test_reserved_against_used() -> None:
    report = fleet_report(
        records(job("a", 4, 10, team="a"), job("b", 8, 10, team="b")), reserved={"a": 8, "b": 8}
    )
    assert {group.key: group.used_ratio for group in report.by_team} == {"b": 1.0, "a": 0.5}


def test_the_week_is_in_hours_of_utc() -> None:
    begin = YEAR + YEAR + MONDAY
    week = fleet_report(records(job("a", 8, 2, at=begin + 1.5 * HOUR), job("b", 1, 168, at=begin))).week
    assert not isinstance(week, Missing)
    assert week[0][:5] == pytest.approx((1, 5, 9, 5, 1))
    assert np.sum(week) == pytest.approx(16 + 168)


def test_helios_as_one_pool(tmp_path: Path) -> None:
    with tarfile.open(DATA / "helios_earth.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    report = fleet_report(read_jobs([tmp_path]))
    pooling = report.pooling
    assert not isinstance(pooling, Missing)
    assert pooling.allocated_gpu_hours == pytest.approx(424_772.6, abs=0.05)
    assert pooling.capacity_gpu_hours == 636_864
    assert pooling.pending_gpu_hours == pytest.approx(45_671.6, abs=0.05)
    assert pooling.coverable_gpu_hours == pytest.approx(45_472.7, abs=0.05)
    assert (pooling.gpus, pooling.peak_of_sum, pooling.sum_of_peaks) == (856, 764, 835)
    assert (pooling.demand_p90, pooling.demand_p99, pooling.demand_max) == (787, 858, 933)
    assert pooling.within_ratio == pytest.approx(0.989, abs=5e-4)
    assert pooling.queued_ratio * 44_640 == pytest.approx(39_847)
    assert pooling.covered_ratio * 39_847 == pytest.approx(39_343)  # type: ignore[operator]
    shares = {team: (round(used, 3), round(queued, 3)) for team, used, queued in pooling.by_team}
    assert shares["vc6YE"] == (0.903, 0.547)
    assert shares["vcpDC"] == (0.910, 0.770)
    assert np.mean(report.week) == pytest.approx(424_772.6 / 744, rel=0.02)  # type: ignore[arg-type]


def test_two_partitions_that_take_turns() -> None:
    jobs = [job(str(i), 8, 1, at=i * HOUR, team="ab"[i % 2]) for i in range(10)]
    pooling = pooling_of(series_of(jobs, {"a": 8, "b": 8}, 10 * HOUR))
    assert not isinstance(pooling, Missing)
    assert (pooling.peak_of_sum, pooling.sum_of_peaks) == (8, 16)
    assert pooling.allocated_gpu_hours / pooling.capacity_gpu_hours == pytest.approx(0.5, abs=0.01)


def turns(weeks: int) -> list[Work]:
    """Two teams that take turns by the hour, for some weeks."""
    return [Work(str(i), "ab"[i % 2], "", i * HOUR, 8, 1, HOUR, start_s=i * HOUR) for i in range(weeks * 168)]


def test_a_smaller_pool_without_longer_waits_is_a_result() -> None:
    works = turns(5)
    big = FleetPolicy("big", 16, teams=(("a", Team(8)), ("b", Team(8))), price=2.0)
    before, after = big.reserved(), big.sized(8)
    pairs = [(outcome_of(works, played, p), played) for p in (before, after) for played in [play(works, p)]]
    verdict = verdict_of(works, *pairs)
    assert verdict.label == "result"
    assert verdict.sentence == (
        "a result: a useful GPU-hour costs 50 % less, and p90 queue wait is flat (0 s before, 0 s after)"
    )
    assert verdict.p90_change_s == Estimate(0, 0, 0)
    assert pairs[1][0].used_ratio == pytest.approx(1.0)
    search = search_pool(works, big, limits_of(big, pairs[0][0]))
    assert search.gpus == 8


def test_a_pool_that_is_too_small_is_a_cut() -> None:
    works = [Work(str(i), "", "", i * HOUR, 4 if i % 3 else 8, 1, 1.4 * HOUR) for i in range(5 * 168)]
    policies = [FleetPolicy("p", gpus) for gpus in (16, 8)]
    pairs = [(outcome_of(works, played, p), played) for p in policies for played in [play(works, p)]]
    verdict = verdict_of(works, *pairs)
    assert verdict.label == "cut"
    assert "p90 queue wait is up by" in verdict.sentence
    change = verdict.p90_change_s
    assert isinstance(change, Estimate)
    assert 0 < change.low <= change.value <= change.high
    assert verdict_of(works, pairs[0], pairs[0]).label == "no saving"


def test_few_days_give_no_interval() -> None:
    works = turns(5)[:20]
    policy = FleetPolicy("p", 16)
    played = play(works, policy)
    pair = (outcome_of(works, played, policy), played)
    assert isinstance(verdict_of(works, pair, pair).p90_change_s, Missing)


def test_the_records_as_they_are() -> None:
    works = turns(1)
    outcome = outcome_of(works, recorded(works), FleetPolicy("today", 16, price=1.0))
    assert outcome.waits.p90_s == 0
    assert outcome.used_ratio == pytest.approx(0.5)
    assert outcome.money_per_useful_hour == pytest.approx(2.0)


def test_a_pool_that_never_was_enough_is_said_so() -> None:
    works = [Work(str(i), "", "", 0.0, 8, 1, HOUR) for i in range(10)]
    search = search_pool(works, FleetPolicy("p", 8), {"": 60.0})
    assert isinstance(search.gpus, Missing)
    assert search.tried[0].worst == ""


def test_machines_are_searched_whole() -> None:
    works = turns(1)
    policy = FleetPolicy("p", 32, (8,) * 4)
    assert search_pool(works, policy, {"a": 60.0, "b": 60.0}).gpus == 8


def test_the_grid_holds_only_pools_that_can_run_the_jobs() -> None:
    points = what_if(turns(1)[:48], FleetPolicy("p", 12, teams=(("a", Team(6)), ("b", Team(6)))))
    assert {point.gpus for point in points} == {8, 9, 10, 12, 14}
    assert len(points) == 25
    free = [point for point in points if point.borrow_ratio == 1]
    assert all(point.outcome.waits.p90_s == 0 for point in free)
