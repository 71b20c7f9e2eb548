"""The rules of a sweep: who may start, who stops, what was losing, what a cap would have done."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.planning.sweep import decide, halving_rungs, is_near, next_comparison
from jupyter_gpuprof.planning.sweeplosing import LEAST_TRIALS, is_losing, losses
from jupyter_gpuprof.planning.sweepreplay import replay_cap
from jupyter_gpuprof.planning.sweepreport import conclude_sweep
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sweep import RunningTrial, SweepReport, SweepTerms, hours
from tests.sweeps.made import BEGAN, sweep, trial

NO = Missing("no")
HOUR = SweepTerms(BEGAN, gpu_hours=1.0)


def running(number: int, step: float = 1, next_step: float = 10, step_s: float = 2.0) -> RunningTrial:
    return RunningTrial(number, step, next_step, step_s)


def test_while_there_is_budget_everybody_runs_and_the_wait_is_told():
    decision = decide(HOUR, spent_s=3000.0, devices=4.0, now_unix_s=BEGAN, running=[running(1)])
    assert decision.starts
    assert decision.stop == ()
    assert decision.wait_s == (3600 - 3000) / 4
    sooner = SweepTerms(BEGAN, 1.0, expires_unix_s=BEGAN + 50)
    assert decide(sooner, spent_s=3000.0, devices=4.0, now_unix_s=BEGAN).wait_s == 50


def test_a_spent_budget_stops_what_is_not_near_and_lets_the_rest_finish():
    near, far = running(7, step=9, next_step=10), running(8, step=8, next_step=10)
    decision = decide(HOUR, spent_s=3601.0, devices=2.0, now_unix_s=BEGAN, running=[near, far])
    assert not decision.starts
    assert decision.stop == (8,)
    assert decision.finishing == ((7, 1.5 * 1 * 2.0),)
    assert "budget of 1 GPU-hours is spent" in decision.why
    assert "trial 7 may come" in decision.why
    assert "trial 8 stops" in decision.why


def test_the_time_to_finish_is_granted_once():
    asked = {"spent_s": 3601.0, "devices": 1.0, "running": [running(7, step=9, next_step=10)]}
    assert decide(HOUR, now_unix_s=BEGAN, finish_by={7: BEGAN + 1}, **asked).stop == ()
    assert decide(HOUR, now_unix_s=BEGAN + 2, finish_by={7: BEGAN + 1}, **asked).stop == (7,)


def test_past_its_expiry_nothing_runs():
    terms = SweepTerms(BEGAN, expires_unix_s=BEGAN - 1)
    decision = decide(terms, spent_s=0.0, devices=1.0, now_unix_s=BEGAN, running=[running(0)])
    assert not decision.starts
    assert decision.stop == (0,)
    assert "expired" in decision.why


def test_no_trial_starts_that_could_come_to_no_result():
    decision = decide(HOUR, spent_s=3000.0, devices=0.0, now_unix_s=BEGAN, least_s=700.0)
    assert not decision.starts
    assert decision.stop == ()
    assert decide(HOUR, spent_s=3000.0, devices=0.0, now_unix_s=BEGAN, least_s=600.0).starts


@pytest.mark.parametrize(
    ("step", "goal", "near"),
    [(9, 10, True), (8.9, 10, False), (10, 10, False), (NO, 10, False), (9, NO, False)],
)
def test_near_is_within_a_tenth(step: object, goal: object, near: bool):
    assert is_near(step, goal) is near  # type: ignore[arg-type]


def test_the_next_comparison_is_a_rung_or_the_usual_end():
    rungs = halving_rungs(1, 3, 1, most=81)
    assert rungs == (3, 9, 27, 81)
    assert next_comparison(3, rungs, []) == 9
    assert next_comparison(3, (), [26, 28, 27]) == 27
    assert isinstance(next_comparison(27, (), [26, 28, 27]), Missing)
    assert isinstance(next_comparison(NO, rungs, [27]), Missing)


def test_losing_needs_enough_others_and_nan_is_the_worst():
    others = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert is_losing(3.5, others, "minimize") is True
    assert is_losing(3.0, others, "minimize") is False
    assert is_losing(3.5, others, "maximize") is False
    assert is_losing(2.5, others, "maximize") is True
    assert is_losing(NO, others, "minimize") is True
    assert is_losing(NO, others, "maximize") is True
    assert is_losing(NO, [NO] * 5, "minimize") is False  # all alike
    assert isinstance(is_losing(9.0, others[: LEAST_TRIALS - 1], "minimize"), Missing)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=3, max_size=12), st.booleans())
def test_losing_time_is_that_of_a_plain_count(values: list[list[float]], most: bool):
    """The same, counted stretch by stretch from the definition."""
    found = losses(
        sweep(*map(trial, range(len(values)), values), direction="maximize" if most else "minimize")
    )
    for number, own in enumerate(values):
        losing_s = judged_s = 0.0
        first = None
        for step, value in enumerate(own):
            if number < LEAST_TRIALS:
                continue
            middle = median(row[step] for row in values[:number])
            stretch_s = 0.0 if step == 3 else 10.0  # it ends with its last report
            judged_s += stretch_s
            if value < middle if most else value > middle:
                losing_s += stretch_s
                first = step if first is None else first
        loss = found[number]
        assert loss.losing_s == pytest.approx(losing_s)
        assert loss.judged_s == pytest.approx(judged_s)
        assert loss.saved_s == pytest.approx(0.0 if first is None else (3 - first) * 10.0)


def test_what_is_reported_later_is_not_known_earlier():
    """All at once: at each report, those of the same moment with a lower number count."""
    together = [trial(n, [float(n)] * 3, began=BEGAN) for n in range(7)]
    assert [loss.losing_s for loss in losses(sweep(*together))] == [0.0] * 5 + [20.0] * 2


def test_a_cap_ends_a_study_where_it_is_met():
    study = sweep(*(trial(n, [9.0, 8.0, 7.0 - n]) for n in range(4)))  # 4 trials of 30 s, one after another
    cap = replay_cap(study, 75 / 3600, BEGAN)
    assert cap.finished == 2
    assert cap.stopped == (2,)
    assert cap.refused == (3,)
    assert cap.spent_s == pytest.approx(75)
    assert cap.saved_s == pytest.approx(45)
    assert cap.at_unix_s == pytest.approx(BEGAN + 75)
    assert (cap.best, cap.best_seen) == (6.0, 4.0)


def test_a_trial_near_its_end_comes_to_it():
    steps = [1.0] * 20
    study = sweep(*(trial(n, steps, pace_s=1.0) for n in range(3)))
    cap = replay_cap(study, 58.5 / 3600, BEGAN)  # the last has reported step 17 of 19
    assert cap.stopped == (2,)
    near = replay_cap(study, 59.5 / 3600, BEGAN)  # step 18
    assert near.stopped == ()
    assert near.spent_s == pytest.approx(60)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.5, 20), st.floats(0.5, 8)), min_size=1, max_size=6),
    st.floats(0.01, 1.2),
)
def test_a_replay_spends_the_cap_and_no_more(shapes: list[tuple[float, float, float]], share: float):
    trials = [
        trial(n, [1.0, 2.0], began=BEGAN + began, pace_s=pace_s, devices=devices)
        for n, (began, pace_s, devices) in enumerate(shapes)
    ]
    total = sum(2 * pace_s * devices for _, pace_s, devices in shapes)
    cap_s = share * total
    cap = replay_cap(sweep(*trials), cap_s / 3600, BEGAN)
    assert cap.spent_s == pytest.approx(min(cap_s, total), rel=1e-6)
    assert cap.spent_s + cap.saved_s == pytest.approx(total)
    # the moment, found another way: the sum of all trials at a fine grid
    if not isinstance(cap.at_unix_s, Missing):
        at = cap.at_unix_s - BEGAN
        held = sum(np.clip(at - began, 0, 2 * pace_s) * devices for began, pace_s, devices in shapes)
        assert held == pytest.approx(cap_s, rel=1e-6)


def test_the_report_says_what_would_have_been_lost():
    bad_start = trial(6, [9.0, 9.0, 0.0])
    study = sweep(*(trial(n, [3.0, 2.0, 1.0]) for n in range(6)), bad_start, terms=HOUR)
    report = conclude_sweep(study, now_unix_s=BEGAN, made_at="2030-01-01", cap_hours=None)
    assert report.best == 6
    assert report.spent_s == 210
    assert report.losing_s == 20
    assert any("lost the best trial, 6, at step 0" in reason for reason in report.reasons)
    assert any("A cap of 1 GPU-hours would have changed nothing" in reason for reason in report.reasons)
    assert SweepReport.from_dict(report.to_dict()) == report


def test_what_cannot_be_judged_is_not_zero():
    few = conclude_sweep(sweep(trial(0, [1.0])), now_unix_s=BEGAN, made_at="")
    assert isinstance(few.losing_s, Missing)
    several = conclude_sweep(
        sweep(
            *(trial(n, [1.0] * 3) for n in range(9)), direction=Missing("the study has several objectives")
        ),
        now_unix_s=BEGAN,
        made_at="",
    )
    assert isinstance(several.losing_s, Missing)
    assert "several objectives" in several.sentence
    empty = conclude_sweep(sweep(), now_unix_s=BEGAN, made_at="", cap_hours=1.0)
    assert empty.spent_s == 0
    assert isinstance(empty.cap, Missing)


@pytest.mark.parametrize(
    ("device_s", "words"),
    [(0, "0"), (3600, "1"), (44280, "12.3"), (44.28, "0.0123"), (0.0435, "0.0000121"), (3.6e6, "1,000")],
)
def test_hours_have_three_figures(device_s: float, words: str):
    assert hours(device_s) == words
