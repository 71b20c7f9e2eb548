"""The decision: plans, doubt, money and the verdict."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning import interruptions
from jupyter_gpuprof.planning.checkpointinterval import optimum
from jupyter_gpuprof.planning.savesseen import interval_seen
from jupyter_gpuprof.planning.spot import decide_spot
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Between, Shares
from jupyter_gpuprof.records.spot import Range, SpotDecision, SpotFigures, Today
from jupyter_gpuprof.records.spotwords import percent, percent_range, span, span_range

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
#: A checkpoint of a minute every two hours, in the units of the formulas' table.
FIGURES = SpotFigures(
    blocking_s=MINUTE,
    restart_s=2 * MINUTE,
    interruptions=interruptions.given(120 * MINUTE),
    price_ratio=0.4,
    audit="passed",
)


def decided(**changes: object) -> SpotDecision:
    return decide_spot(dataclasses.replace(FIGURES, **changes))


def test_the_numbers_are_those_of_the_formulas() -> None:
    decision = decided()
    (plan,) = decision.plans
    assert plan.optimum_s.value == pytest.approx(14.8326 * MINUTE, rel=1e-5)
    assert plan.interval_s == 15 * MINUTE  # a rounder one
    assert plan.flat_low_s < 15 * MINUTE < plan.flat_high_s
    assert plan.wall_ratio.value == pytest.approx(1.1602, abs=1e-4)
    assert plan.cost_ratio.value == pytest.approx(0.46408, abs=1e-4)
    assert plan.cost_ratio.value == pytest.approx(0.4 / (1 - plan.loss_ratio.value))
    assert decision.break_even_ratio == pytest.approx(0.6)
    laws = {law.name: law.interval_s / MINUTE for law in decision.laws}
    assert laws["Young"] == pytest.approx(15.4919, rel=1e-5)
    assert laws["exact"] == pytest.approx(14.8326, rel=1e-5)
    assert laws["Daly, higher order"] == pytest.approx(14.8324, rel=1e-5)
    assert all(law.wall_ratio >= decision.laws[0].wall_ratio for law in decision.laws)


def test_at_the_break_even_spot_costs_the_same() -> None:
    mean = decided().break_even_s
    there = decided(interruptions=interruptions.given(mean * 1.0001))
    best = there.laws[0].wall_ratio
    assert 0.4 * best == pytest.approx(1.0, rel=1e-3)


def test_doubt_about_the_interruptions_is_carried_through() -> None:
    decision = decided(interruptions=interruptions.observed(1, DAY))
    (plan,) = decision.plans
    assert plan.optimum_s.low == pytest.approx(optimum(MINUTE, 4.3075 * HOUR), rel=1e-3)
    assert plan.optimum_s.high == pytest.approx(optimum(MINUTE, 947.95 * HOUR), rel=1e-3)
    assert plan.cost_ratio.low < plan.cost_ratio.value < plan.cost_ratio.high
    # No figure of a sentence pretends to know more than two digits.
    assert "53 min (22 min to 5.6 h)" in decision.reasons[1]


def test_without_an_interruption_there_are_bounds_only() -> None:
    decision = decided(interruptions=interruptions.observed(0, DAY))
    (plan,) = decision.plans
    assert isinstance(plan.wall_ratio.value, Missing)
    assert isinstance(plan.cost_ratio.value, Missing)
    assert plan.cost_ratio.high > plan.cost_ratio.low
    assert isinstance(plan.optimum_s.value, Missing)
    assert plan.optimum_s.low == pytest.approx(optimum(MINUTE, 8.011 * HOUR), rel=1e-3)
    assert "interruptions are more than 8 h apart" in decision.reasons[0]
    assert "at most" in decision.reasons[2]


def test_the_curve_is_lowest_at_the_optimum_and_within_its_doubt() -> None:
    decision = decided(interruptions=interruptions.observed(4, DAY))
    lowest = min(decision.curve, key=lambda point: point.wall_ratio)
    assert lowest.interval_s == pytest.approx(decision.plans[0].optimum_s.value, rel=0.1)
    assert all(point.low <= point.wall_ratio <= point.high for point in decision.curve)


def test_saving_in_the_background_and_at_the_notice_are_plans_of_their_own() -> None:
    decision = decided(async_blocking_s=5.0, async_durable_s=65.0, in_time_ratio=0.9)
    plain, background, noticed = decision.plans
    assert background.wall_ratio.value < plain.wall_ratio.value
    assert background.interval_s < plain.interval_s
    assert noticed.lost_s < plain.lost_s
    assert noticed.wall_ratio.value < plain.wall_ratio.value


def test_money_is_for_the_work_or_for_an_hour() -> None:
    hour = decided(price_per_device_hour=2.0, devices=8)
    assert hour.stable_money == 16.0
    assert hour.spot_money.value == pytest.approx(16 * hour.plans[0].cost_ratio.value)
    job = decided(price_per_device_hour=2.0, work_s=40 * HOUR)
    assert job.stable_money == 80.0
    assert isinstance(decided().stable_money, Missing)


def test_the_end_of_the_work_is_later_than_its_mean() -> None:
    finish = decided(work_s=40 * HOUR).finish_s
    assert finish.value == pytest.approx(40 * HOUR * 1.1602, rel=1e-4)
    # 23.2 interruptions on average, and 31 at most in 95 % of the cases, each costing about 9.9 minutes.
    assert finish.high == pytest.approx(40 * HOUR * 16 / 15 + 31 * 9.8 * MINUTE, rel=0.01)


def test_the_interval_in_steps_has_two_figures() -> None:
    assert decided(step_s=0.31).interval_steps == 2900
    assert isinstance(decided().interval_steps, Missing)


# -- the verdict -----------------------------------------------------------------------------------


def test_spot_ready_where_the_loop_saves_well() -> None:
    decision = decided(today_s=Range.of(14 * MINUTE))
    assert decision.label == "spot-ready"
    assert isinstance(decision.today, Today)
    assert decision.today.is_flat
    assert 0 <= decision.today.more_ratio < 0.01


def test_spot_ready_at_an_interval_where_it_does_not() -> None:
    decision = decided(today_s=Range.of(60 * MINUTE))
    assert decision.label == "spot-ready at interval"
    assert decision.today.more_ratio == pytest.approx(1.34731 / 1.16021 - 1, rel=1e-3)
    assert "15 min instead of today's 1 h" in decision.sentence
    assert decided().label == "spot-ready at interval"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"audit": "never ran"}, "no resume audit"),
        ({"audit": "failed"}, "the resume audit failed"),
        ({"is_release": True}, "release run"),
        ({"work_s": 40 * HOUR, "deadline_s": 45 * HOUR}, "the deadline in 45 h may be missed"),
        ({"deadline_s": 45 * HOUR}, "how much work is left is not known"),
        ({"price_ratio": 0.9}, "spot costs 104 %"),
        ({"interruptions": interruptions.given(2 * MINUTE)}, "spot costs"),
        ({"interruptions": interruptions.given(0.1)}, "hardly any work is ever done"),
        ({"interruptions": interruptions.observed(1, HOUR), "price_ratio": 0.75}, "may cost"),
    ],
)
def test_stable_capacity_and_why(changes: dict[str, object], why: str) -> None:
    decision = decided(**changes)
    assert decision.label == "stable capacity"
    assert why in decision.sentence
    assert decision.plans  # the figures are there all the same


def test_all_that_speaks_against_spot_is_said() -> None:
    decision = decided(audit="failed", is_release=True)
    assert "audit" in decision.sentence
    assert "release run" in " ".join(decision.reasons)


def test_a_deadline_that_can_be_kept_is_none_against_it() -> None:
    assert decided(work_s=40 * HOUR, deadline_s=60 * HOUR).label == "spot-ready at interval"


def test_a_decision_comes_back_as_it_was() -> None:
    for decision in (decided(), decided(interruptions=interruptions.observed(0, DAY), audit="never ran")):
        assert SpotDecision.from_dict(json.loads(json.dumps(decision.to_dict()))) == decision


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"price_ratio": 1.2}, "not 1.2"),
        ({"price_ratio": 0.0}, "not 0"),
        ({"price_ratio": -0.4}, "not -0.4"),
        ({"blocking_s": 0.0}, "above 0 s"),
        ({"blocking_s": float("nan")}, "above 0 s"),
        ({"restart_s": -1.0}, "negative"),
        ({"devices": 0}, "one device or more"),
        ({"price_per_device_hour": 0.0}, "price must be above 0"),
        ({"work_s": -5.0}, "work must be above 0"),
    ],
)
def test_figures_that_cannot_be(changes: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said) as raised:
        decided(**changes)
    assert str(raised.value).count(". ") <= 1


# -- the interval of today -------------------------------------------------------------------------


def run_that_saves(make_run: object, share: float, wall_s: float) -> object:
    zero, left = Estimate(0.0, 0.0, 0.0), 1 - share
    between = Between(zero, Estimate(share, share, share), zero, zero)
    gone = Missing("one device")
    run = make_run()
    return dataclasses.replace(
        run,
        steps=dataclasses.replace(run.steps, total_s=wall_s),
        shares=Shares(Estimate(left, left, left), gone, zero, gone, gone, between),
    )


def make_run() -> object:
    from tests.store.test_runs import make_run as make

    return make("2026-12-01-aaaaaa")


def test_the_interval_follows_from_the_share_of_saving() -> None:
    # Ten saves of 2 s in 200 s: 18 s of other work for each.
    found = interval_seen(run_that_saves(make_run, 0.1, 200.0), 2.0)
    assert found.value == pytest.approx(18.0)
    assert (found.low, found.high) == (pytest.approx(180 / 11), pytest.approx(20.0))


def test_a_run_that_counts_its_saves_needs_no_guess() -> None:
    run = dataclasses.replace(run_that_saves(make_run, 0.1, 200.0), saves=5)  # of 4 s, whatever one takes
    warm = dataclasses.replace(run, steps=dataclasses.replace(run.steps, warmup_s=20.0))
    found = interval_seen(warm, 2.0)
    assert (found.value, found.low, found.high) == (pytest.approx(40.0), pytest.approx(200 / 6), 50.0)
    assert isinstance(interval_seen(dataclasses.replace(run, saves=0), 2.0), Missing)


@pytest.mark.parametrize(("share", "said"), [(0.0, "no save was seen"), (0.011, "only one save")])
def test_few_saves_tell_no_interval(share: float, said: str) -> None:
    found = interval_seen(run_that_saves(make_run, share, 200.0), 2.0)
    assert isinstance(found, Missing)
    assert said in found.reason


def test_words() -> None:
    assert [span(s) for s in (0.0123, 1, 60, 119, 900, 3600, 5400, 86400, 947.9 * 3600)] == [
        "12 ms", "1 s", "1 min", "119 s", "15 min", "1 h", "90 min", "1 d", "39 d",
    ]  # fmt: skip
    assert span_range(Range(Missing("none"), 8 * HOUR, Missing("none"))) == "more than 8 h"
    assert percent(0.04321) == "4.3 %"
    assert percent_range(Range(0.46, 0.41, 0.6)) == "46 % (41 % to 60 %)"
