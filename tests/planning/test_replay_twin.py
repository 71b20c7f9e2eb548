"""The replay against its brute-force twin, on random small traces; the twin looks every second."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.planning.replay import replay
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import (
    LINES,
    Checkpoint,
    FleetPolicy,
    PriorityClass,
    Reclaim,
    Spot,
    Team,
)
from tests.planning.fleet_twin import Twin

TEAMS = ("a", "b", "c")


@st.composite
def policies(draw: st.DrawFn) -> FleetPolicy:
    nodes = draw(st.sampled_from([(), (), (4, 4), (2, 2, 4)]))
    gpus = sum(nodes) or draw(st.integers(3, 10))
    left, teams = gpus, []
    for name in TEAMS:
        guarantee = draw(st.integers(0, left))
        left -= guarantee
        teams.append((name, Team(guarantee, draw(st.sampled_from([None, None, 2, 4])))))
    few = st.integers(0, 4).map(float)
    return FleetPolicy(
        "random",
        gpus,
        nodes,
        tuple(teams),
        (("low", PriorityClass(-1)), ("release", PriorityClass(2, draw(st.booleans())))),
        draw(st.sampled_from(LINES)),
        aging_s=draw(st.sampled_from([math.inf, 5.0, 20.0])),
        reclaim=Reclaim(*(draw(few) for _ in range(5))),
        checkpoint=Checkpoint(draw(st.sampled_from([None, 3.0, 7.0])), draw(few), draw(few)),
        spot=Spot(draw(st.sampled_from([0, 0, 0, 2, 4])), draw(st.sampled_from([math.inf, 8.0])), draw(few)),
    )


@st.composite
def traces(draw: st.DrawFn) -> list[Work]:
    """Drawn with equal chances, which crowds the pool more than Hypothesis's own small numbers."""
    chance: Random = draw(st.randoms(use_true_random=True))
    works = [
        Work(
            "j",
            chance.choice(TEAMS),
            chance.choice(["", "low", "release"]),
            float(chance.randint(0, 30)),
            chance.randint(1, chance.choice([2, 4, 8])),
            chance.randint(1, 2),
            float(chance.randint(1, 25)),
            chance.choice([math.inf, float(chance.randint(25, 40)), float(chance.randint(25, 40))]),
        )
        for _ in range(draw(st.integers(1, 16)))
    ]
    return sorted(works, key=lambda work: work.submit_s)


@settings(max_examples=400, deadline=None)
@given(traces(), policies())
def test_the_heap_and_the_seconds_agree(jobs: list[Work], policy: FleetPolicy) -> None:
    played, twin = replay(jobs, policy), Twin(jobs, policy, most_s=3000).run()
    for i, job in enumerate(twin.jobs):
        ended = played.end_s[i]
        assert math.isnan(ended) == (job.state != "done"), i
        if job.state == "done":
            assert (played.start_s[i], ended, played.wait_s[i]) == (job.first, job.end, job.wait), i
        assert played.preempted[i] == job.stopped
    assert sorted(played.claims_s) == sorted(twin.claims)
    assert played.lost_s == twin.lost


@settings(max_examples=100, deadline=None)
@given(traces(), policies())
def test_work_is_conserved_and_equal_seeds_give_equal_answers(jobs: list[Work], policy: FleetPolicy) -> None:
    played = replay(jobs, policy, seed=3)
    assert repr(played) == repr(replay(jobs, policy, seed=3))
    done = sum(
        work.gpus * work.run_s for work, end in zip(jobs, played.end_s, strict=True) if not math.isnan(end)
    )
    if not any(map(math.isnan, played.end_s)):
        assert math.isclose(played.held_s, done + played.lost_s + played.overhead_s)
    assert all(claim <= policy.reclaim.bound_s for claim in played.claims_s)
