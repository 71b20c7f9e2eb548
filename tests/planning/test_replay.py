"""The replay against public figures, the worked examples of the definitions, and its invariants."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.gangless import replay_without_gang
from jupyter_gpuprof.planning.replay import replay
from jupyter_gpuprof.planning.workload import Work, workload
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job
from jupyter_gpuprof.records.fleetpolicy import (
    LINES,
    Checkpoint,
    FleetPolicy,
    Line,
    PriorityClass,
    Reclaim,
    Spot,
    Team,
)
from tests.planning.fleet_twin import Twin, TwinJob

DATA = Path(__file__).parents[1] / "data" / "fleet"


def work(
    team: str, submit: float, gpus: int, run: float, kind: str = "", limit: float = math.inf, nodes: int = 1
) -> Work:
    return Work(f"{team}@{submit}", team, kind, submit, gpus, nodes, run, limit)


def tiresias() -> list[Work]:
    with (DATA / "tiresias_60_job.csv").open() as file:
        rows = [
            Work(r["job_id"], "", "", float(r["submit_time"]), int(r["num_gpu"]), 1, float(r["duration"]))
            for r in csv.DictReader(file)
        ]
    return sorted(rows, key=lambda job: job.submit_s)


@pytest.mark.parametrize(
    ("line", "gpus", "makespan", "mean", "p90", "most"),
    [("fifo", 16, 3335, 22.4, 66, 152), ("skip", 16, 3271, 12.267, 38, 181), ("fifo", 32, 3271, 0, 0, 0)],
)
@pytest.mark.parametrize("guarantee", [0, 16])
def test_tiresias(
    line: Line, gpus: int, makespan: float, mean: float, p90: float, most: float, guarantee: int
) -> None:
    works = tiresias()
    played = replay(works, FleetPolicy("t", gpus, teams=(("", Team(guarantee)),), line=line))
    waits = sorted(played.wait_s)
    assert max(played.end_s) == makespan
    assert statistics.mean(waits) == pytest.approx(mean, abs=1e-3)
    assert (waits[math.ceil(0.9 * 60) - 1], waits[-1]) == (p90, most)
    assert played.held_s == sum(job.gpus * job.run_s for job in works)


def test_kueues_baseline_keeps_its_order_and_its_waits() -> None:
    shape = yaml.safe_load((DATA / "kueue_baseline_generator.yaml").read_text())["cohorts"][0]["queuesSets"][
        0
    ]
    works = []
    for queue in range(shape["count"]):
        for some in shape["workloadsSets"]:
            (kind,) = some["workloads"]
            works += [
                Work(
                    kind["className"], f"q{queue}", kind["className"], i * some["creationIntervalMs"] / 1000,
                    kind["request"], 1, kind["runtimeMs"] / 1000,
                )
                for i in range(1, some["count"] + 1)
            ]  # fmt: skip
    works.sort(key=lambda job: job.submit_s)
    quota = shape["nominalQuota"]
    policy = FleetPolicy(
        "kueue",
        quota * shape["count"],
        teams=tuple((f"q{i}", Team(quota, shape["borrowingLimit"])) for i in range(shape["count"])),
        classes=(
            ("small", PriorityClass(50)), ("medium", PriorityClass(100)), ("large", PriorityClass(200)),
        ),
    )  # fmt: skip
    played = replay(works, policy)
    mean = {
        kind: statistics.mean(
            wait for job, wait in zip(works, played.wait_s, strict=True) if job.job_id == kind
        )
        for kind in ("small", "medium", "large")
    }
    assert mean["large"] < mean["medium"] < mean["small"]
    assert (mean["large"], mean["medium"], mean["small"]) < (16.5, 76.8, 215.5)
    assert all(mean[kind] <= most for kind, most in {"large": 16.5, "medium": 76.8, "small": 215.5}.items())


SHARED = FleetPolicy(
    "shared",
    8,
    teams=(("a", Team(4)), ("b", Team(4))),
    reclaim=Reclaim(cycle_s=1, grace_s=120, teardown_s=5, start_s=10),
)


def test_a_guarantee_is_honoured_within_the_bound() -> None:
    works = [work("b", 0, 8, 10_000), work("a", 100, 4, 50)]
    assert SHARED.reclaim.bound_s == 136
    played = replay(works, SHARED)
    assert played.start_s[1] + SHARED.reclaim.start_s == 236
    assert played.claims_s == [136]
    assert played.preempted == [1, 0]


def test_who_gives_way_keeps_what_it_saved() -> None:
    works = [work("b", 0, 8, 1000), work("a", 100, 4, 50)]
    for checkpoint, kept in (
        (Checkpoint(None), 0),
        (Checkpoint(30), 90),  # of 101 s, to the last checkpoint
        (Checkpoint(30, save_s=40), 101),  # it saves within the grace time
        (Checkpoint(30, save_s=121), 90),  # it cannot
    ):
        played = replay(
            works, FleetPolicy("p", 8, teams=SHARED.teams, reclaim=SHARED.reclaim, checkpoint=checkpoint)
        )
        assert played.lost_s == (101 - kept) * 8
        assert played.end_s[0] == 226 + 50 + 1000 - kept
        assert played.overhead_s == 125 * 8


def test_one_by_one_two_jobs_wait_for_each_other_and_as_gangs_they_do_not() -> None:
    works = [work("", 0, 4, 10), work("", 0, 4, 10)]
    alone = replay_without_gang(works, FleetPolicy("p", 4, gang=False))
    assert all(map(math.isnan, alone.end_s))
    together = replay(works, FleetPolicy("p", 4))
    assert together.end_s == [10, 20]
    assert together.overhead_s == 0


def test_without_gang_gpus_are_held_for_nothing() -> None:
    works = [work("", 0, 3, 10), work("", 1, 4, 5)]
    played = replay_without_gang(works, FleetPolicy("p", 4, gang=False))
    assert played.end_s == [10, 15]
    assert played.overhead_s == 9  # one GPU from 1 to 10


def test_reservations_wait_where_a_pool_of_half_the_size_does_not() -> None:
    works = [work("ab"[i % 2], 3600.0 * i, 8, 3600) for i in range(10)]
    pool = replay(works, FleetPolicy("pool", 8, teams=(("a", Team(4)), ("b", Team(4)))))
    assert max(pool.wait_s) == 0
    assert pool.held_s == 8 * 3600 * 10
    fixed = FleetPolicy("p", 16, teams=(("a", Team(8)), ("b", Team(8)))).reserved()
    assert max(replay(works, fixed).wait_s) == 0


def test_a_small_job_passes_only_where_skipping_is_allowed() -> None:
    works = [work("", 0, 3, 10, limit=10), work("", 1, 4, 10, limit=10), work("", 2, 1, 20, limit=20)]
    starts = {line: replay(works, FleetPolicy("p", 4, line=line)).start_s for line in LINES}
    assert starts == {"fifo": [0, 10, 20], "skip": [0, 22, 2], "backfill": [0, 10, 20]}
    short = [*works[:2], work("", 2, 1, 8, limit=8)]
    assert replay(short, FleetPolicy("p", 4, line="backfill")).start_s == [0, 10, 2]


def test_on_machines_a_job_waits_for_gpus_that_lie_apart() -> None:
    works = [work("", 0, 3, 10), work("", 0, 3, 20), work("", 1, 2, 5)]
    assert replay(works, FleetPolicy("p", 8)).start_s[2] == 1
    assert replay(works, FleetPolicy("p", 8, nodes=(4, 4))).start_s[2] == 10
    assert replay(works, FleetPolicy("p", 8, nodes=(4, 4), line="skip")).start_s == [0, 0, 10]
    spread = [*works[:2], work("", 1, 2, 5, nodes=2)]
    assert replay(spread, FleetPolicy("p", 8, nodes=(4, 4))).start_s[2] == 1


def test_a_higher_class_goes_over_its_own_team_and_not_beyond_the_guarantee() -> None:
    classes = (("release", PriorityClass(10, preemptible=False)),)
    policy = FleetPolicy("p", 8, teams=(("a", Team(4)), ("b", Team(4))), classes=classes)
    works = [
        work("a", 0, 4, 100),
        work("b", 0, 4, 100),
        work("a", 5, 4, 10, "release"),
        work("a", 6, 8, 5, "release"),
    ]
    played = replay(works, policy)
    assert played.start_s[2] == 5
    assert played.preempted == [1, 0, 0, 0]
    assert played.start_s[3] >= 100  # beyond its guarantee nobody gives way


def test_nobody_starves_under_aging() -> None:
    stream = [work("", float(i), 1, 8, "high") for i in range(2000)]
    works = sorted([*stream, work("", 50, 8, 10)], key=lambda job: job.submit_s)
    at = next(i for i, job in enumerate(works) if job.gpus == 8)
    classes = (("high", PriorityClass(3)),)
    for line in ("fifo", "backfill"):
        limited = [
            Work(j.job_id, j.team, j.priority_class, j.submit_s, j.gpus, 1, j.run_s, j.run_s) for j in works
        ]
        aged = replay(limited, FleetPolicy("p", 8, classes=classes, aging_s=60, line=line))
        starved = replay(limited, FleetPolicy("p", 8, classes=classes, line=line))
        assert aged.start_s[at] <= 50 + 3 * 60 + 8 + 1
        assert starved.start_s[at] >= 2000


def test_spot_capacity_is_interrupted_and_costs_what_is_not_saved() -> None:
    works = [work("", 0, 2, 1000) for _ in range(20)]
    spot = Spot(4, between_s=500, notice_s=30)
    lost = {}
    for save in (10.0, 60.0):
        policy = FleetPolicy("p", 0, spot=spot, checkpoint=Checkpoint(100, save, 5))
        played = replay(works, policy)
        assert played.interruptions > 5
        assert not any(map(math.isnan, played.end_s))
        assert played.spot_s == played.held_s == pytest.approx(40_000 + played.lost_s + played.overhead_s)
        lost[save] = played.lost_s
    assert lost[10.0] == 0 < lost[60.0]


def test_what_can_never_be_placed_is_told_and_blocks_nobody() -> None:
    teams = (("a", Team(2, borrow=1)), ("b", Team(2)))
    works = [work("a", 0, 4, 5), work("a", 1, 3, 5), work("b", 1, 1, 5)]
    played = replay(works, FleetPolicy("p", 8, teams=teams, line="fifo"))
    assert math.isnan(played.end_s[0])
    assert played.start_s[1:] == [1, 1]


def test_a_policy_that_promises_more_than_there_is() -> None:
    with pytest.raises(OptionError, match="add up to 9 GPUs, and the pool has 8"):
        FleetPolicy("p", 8, teams=(("a", Team(4)), ("b", Team(5))))


def test_a_resized_policy_keeps_its_proportions() -> None:
    policy = FleetPolicy("p", 16, (8, 8), (("a", Team(8)), ("b", Team(4))))
    assert policy.sized(8).teams == (("a", Team(4)), ("b", Team(2)))
    assert (policy.sized(13).gpus, policy.sized(13).nodes) == (8, (8,))
    assert policy.sized(32).nodes == (8,) * 4


def test_jobs_that_cannot_be_replayed_are_counted() -> None:
    def job(
        name: str, gpus: object, submit: object = 0.0, ran: object = 5.0, state: str = "completed"
    ) -> Job:
        return Job(name, "", "", gpus, submit, NOT_TOLD, NOT_TOLD, ran, state)  # type: ignore[arg-type]

    jobs = [
        job("a", 1), job("b", 0.5), job("c", NOT_TOLD), job("d", 0), job("e", 1, NOT_TOLD),
        job("f", 1, ran=0.0, state="pending"), job("g", 99),
    ]  # fmt: skip
    works, refused = workload(jobs, FleetPolicy("p", 8))
    assert [(one.job_id, one.gpus) for one in works] == [("a", 1), ("b", 1)]
    assert sum(one.count for one in refused) == 5
    assert any("more GPUs than the pool has (8)" in one.reason and one.first == "job g" for one in refused)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_claim_waits_while_borrowed_gpus_would_serve_it(data: st.DataObject) -> None:
    """And never over capacity (the twin asserts it), and no gang half placed."""
    gpus = data.draw(st.integers(2, 8))
    first = data.draw(st.integers(0, gpus))
    teams = {"a": Team(first), "b": Team(gpus - first)}
    policy = FleetPolicy(
        "p", gpus, (), tuple(teams.items()), (("low", PriorityClass(-1)),), data.draw(st.sampled_from(LINES)),
        reclaim=Reclaim(1, 1, data.draw(st.integers(0, 5)), 1, 1),
    )  # fmt: skip
    chance = data.draw(st.randoms(use_true_random=True))
    works = sorted(
        (
            work(
                chance.choice("abc"), float(chance.randint(0, 20)), chance.randint(1, gpus),
                float(chance.randint(1, 20)), chance.choice(["", "low"]), limit=25.0,
            )
            for _ in range(chance.randint(1, 12))
        ),
        key=lambda job: job.submit_s,
    )  # fmt: skip

    def look(twin: Twin) -> None:
        running = [job for job in twin.jobs if job.state == "running"]
        assert all(sum(job.places.values()) == job.work.gpus for job in running)
        lent = sum(max(twin.used(team) - teams.get(team, Team()).guarantee, 0) for team in "abc")
        passed: set[str] = set()
        for job in twin.line():
            if job.work.team in passed:
                continue
            passed.add(job.work.team)
            assert not (is_entitled(twin, job) and twin.free()[0] + lent >= job.work.gpus), job

    def is_entitled(twin: Twin, job: TwinJob) -> bool:
        return twin.used(job.work.team) + job.work.gpus <= twin.team(job).guarantee

    twin = Twin(works, policy).run(look)
    assert all(claim <= policy.reclaim.bound_s for claim in twin.claims)
    assert [job.end for job in twin.jobs] == pytest.approx(replay(works, policy).end_s, nan_ok=True)
