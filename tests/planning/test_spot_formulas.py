"""The formulas against published and numeric values, against a minimiser, and against simulated jobs."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning import checkpointinterval as intervals
from jupyter_gpuprof.planning import interruptions
from jupyter_gpuprof.planning.checkpointinterval import Saving
from jupyter_gpuprof.records.reading import Missing

HOUR = 3600.0


def printed(value: float) -> object:
    """Equal to the printed digits."""
    digits = len(repr(value).partition(".")[2])
    return pytest.approx(value, abs=0.5001 * 10**-digits)


# -- numeric values --------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "cost"), [(0.10, 0.4444), (0.125, 0.45714), (0.2, 0.5), (0.6, 1.0)])
def test_effective_cost(loss: float, cost: float) -> None:
    assert intervals.effective_cost(0.4, loss) == printed(cost)


@pytest.mark.parametrize(("period", "lost"), [(30, 14.3757), (15, 7.3438), (60, 27.5104)])
def test_work_lost(period: float, lost: float) -> None:
    assert intervals.lost_work(period, 120) == printed(lost)


@pytest.mark.parametrize(
    ("d", "m", "interval"), [(5, 1440, 120.0), (5, 360, 60.0), (1, 120, 15.4919), (2, 120, 21.9089)]
)
def test_young(d: float, m: float, interval: float) -> None:
    assert intervals.young(d, m) == printed(interval)


@pytest.mark.parametrize(
    ("d", "m", "r", "first", "higher", "exact"),
    [
        (5, 1440, 10, 115.4159, 116.6898, 116.6901),
        (5, 360, 10, 55.8276, 56.7130, 56.7140),
        (1, 120, 2, 14.6205, 14.8324, 14.8326),
        (2, 120, 5, 20.3607, 20.5959, 20.5964),
        (20, 30, 5, 17.4166, 22.5907, 22.7957),
    ],
)
def test_daly_and_exact(d: float, m: float, r: float, first: float, higher: float, exact: float) -> None:
    assert intervals.daly_first(d, m, r) == printed(first)
    assert intervals.daly(d, m) == printed(higher)
    assert intervals.optimum(d, m) == printed(exact)


def test_daly_of_checkpoints_longer_than_the_time_between_interruptions() -> None:
    assert intervals.daly(60, 30) == 30
    assert intervals.daly(100, 30) == 30


@pytest.mark.parametrize(
    ("interval", "wall", "cost"),
    [
        (5, 1.25119, 0.50047),
        (15.4919, 1.16035, 0.46414),
        (14.8326, 1.16021, 0.46408),
        (30, 1.19890, 0.47956),
        (60, 1.34731, 0.53892),
    ],
)
def test_full_cost(interval: float, wall: float, cost: float) -> None:
    found = Saving(1, 120, 2).wall_ratio(interval)
    assert found == printed(wall)
    assert intervals.effective_cost(0.4, 1 - 1 / found) == pytest.approx(cost, abs=1e-5)  # one was cut off


def test_linearised_overhead_leaves_out_the_restart() -> None:
    assert intervals.first_order_waste(Saving(1, 120, 0), 15.4919) == printed(0.12910)


def test_saxena() -> None:
    assert intervals.saxena(60, 7200, 120) == printed(999.149)
    assert intervals.young(60, 7200) == printed(929.516)  # their lost-time-optimal period


def test_background_and_blocking_to_first_order() -> None:
    background, blocking = Saving(5, 7200, 120, 60), Saving(65, 7200, 120)
    assert intervals.young(5, 7200) == printed(268.328)
    assert intervals.first_order_waste(background, intervals.young(5, 7200)) == printed(0.062268)
    assert intervals.young(65, 7200) == printed(967.471)
    assert intervals.first_order_waste(blocking, intervals.young(65, 7200)) == printed(0.151038)
    assert background.optimum() == pytest.approx(268.328, rel=0.02)
    assert Saving(5, 7200, 120, 600).optimum() == 600  # one save at a time


def test_notice() -> None:
    assert intervals.lost_with_notice(30, 0.9) == pytest.approx(1.5)
    assert intervals.fits_notice(45, 120)
    assert not intervals.fits_notice(45, 30)
    assert not intervals.fits_notice(45, 15)
    assert not intervals.fits_notice(45, 48, margin=5)


@pytest.mark.parametrize(
    ("count", "hours", "mean", "low", "high"),
    [(1, 24, 24.0, 4.308, 947.9), (12, 24, 2.0, 1.145, 3.871)],
)
def test_interruptions_seen(count: int, hours: float, mean: float, low: float, high: float) -> None:
    found = interruptions.observed(count, hours * HOUR)
    values = (found.mean_s.value, found.mean_s.low, found.mean_s.high)
    assert [value / HOUR for value in values] == [printed(mean), printed(low), printed(high)]
    assert not found.is_bound


def test_no_interruption_gives_a_bound_only() -> None:
    found = interruptions.observed(0, 24 * HOUR)
    assert found.is_bound
    assert isinstance(found.mean_s.value, Missing)
    assert isinstance(found.mean_s.high, Missing)
    assert found.mean_s.low / HOUR == printed(8.011)
    assert found.planned_s == found.mean_s.low


def test_published_rates() -> None:
    llama = interruptions.observed(419, 54 * 24 * HOUR)
    assert llama.planned_s / HOUR == printed(3.0931)
    # Young without a restart loses sqrt(2d/M): a tenth at M 0.1^2 / 2.
    d = llama.planned_s * 0.1**2 / 2
    assert d / 60 == printed(0.928)
    assert intervals.first_order_waste(
        Saving(d, llama.planned_s, 0), intervals.young(d, llama.planned_s)
    ) == pytest.approx(0.1)
    assert interruptions.observed(466, 54 * 24 * HOUR).planned_s / HOUR == printed(2.7811)
    for nodes, hours in ((2048, 1.803), (16_384, 0.2254)):  # 6.50 failures in 1000 days of a node
        assert interruptions.given_rate(nodes * 6.50 / 1000 / 24).planned_s / HOUR == printed(hours)


# -- properties ------------------------------------------------------------------------------------

costs = st.floats(1e-7, 3.0)
savings = st.builds(
    lambda d, m, r, behind, in_time: Saving(d * m, m, r * m, behind * m, in_time),
    costs, st.floats(1e-3, 1e7), st.floats(0, 2), st.floats(0, 1), st.sampled_from((0.0, 0.5, 0.9)),
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(savings)
def test_the_optimum_is_a_minimum(saving: Saving) -> None:
    best = saving.optimum()
    least = saving.wall_ratio(best)
    for factor in (0.25, 0.8, 0.99, 1.01, 1.25, 4):
        if best * factor >= saving.behind:
            assert saving.wall_ratio(best * factor) >= least * (1 - 1e-12)
    if best > saving.behind:
        found = minimize_scalar(
            lambda log: min(saving.wall_ratio(math.exp(log)), 1e300),
            bounds=(math.log(best) - 3, math.log(best) + 3),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert math.exp(found.x) == pytest.approx(best, rel=1e-3)


@settings(deadline=None, max_examples=100)
@given(savings)
def test_cost_is_monotone_outside_the_flat_region(saving: Saving) -> None:
    low, high = saving.flat()
    limit = saving.wall_ratio(saving.optimum()) * (1 + intervals.FLAT)
    assert low <= saving.optimum() <= high
    assert saving.wall_ratio(high) == pytest.approx(limit, rel=1e-6)
    shorter = [low * 0.9**i for i in range(20) if low * 0.9**i >= saving.behind]
    left = [saving.wall_ratio(interval) for interval in shorter]
    right = [saving.wall_ratio(high * 1.1**i) for i in range(20)]
    assert left == sorted(left)
    assert right == sorted(right)
    assert right[1] > limit
    if low > max(1.001 * saving.behind, 1.1e-6 * saving.optimum()):
        assert left[0] == pytest.approx(limit, rel=1e-6)


@settings(deadline=None, max_examples=100)
@given(savings, st.sampled_from((1 / HOUR, 60.0, 1e3)))
def test_the_unit_of_time_does_not_matter(saving: Saving, unit: float) -> None:
    other = Saving(
        saving.blocking * unit,
        saving.mean * unit,
        saving.restart * unit,
        saving.behind * unit,
        saving.in_time,
    )
    best = saving.optimum()
    assert other.optimum() == pytest.approx(best * unit, rel=1e-9)
    assert other.wall_ratio(best * unit) == pytest.approx(saving.wall_ratio(best), rel=1e-9)
    assert other.flat() == pytest.approx([end * unit for end in saving.flat()], rel=1e-6)
    assert other.lost(best * unit) == pytest.approx(saving.lost(best) * unit, rel=1e-9)


@settings(deadline=None)
@given(st.floats(-12, 0.8).map(lambda power: 10**power))
@example(0.99e-6)
@example(1.01e-6)
def test_the_exact_optimum_solves_its_equation(ratio: float) -> None:
    # With u = t/M the derivative vanishes where u + ln(1 - u) = -d/M.
    u = intervals.optimum(ratio, 1.0)
    series = -(u**2) / 2 - u**3 / 3 - u**4 / 4 - u**5 / 5 if u < 1e-3 else u + math.log1p(-u)
    assert series == pytest.approx(-ratio, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 400), st.floats(1, 1e7))
def test_the_interval_of_the_rate_is_that_of_chi_squared(count: int, seconds: float) -> None:
    found = interruptions.observed(count, seconds).mean_s
    assert found.low == pytest.approx(2 * seconds / chi2.ppf(0.975, 2 * count + 2))
    assert found.high == pytest.approx(2 * seconds / chi2.ppf(0.025, 2 * count))
    assert found.low < found.value < found.high


@settings(deadline=None)
@given(st.floats(0.5, 1e7), st.floats(1.01, 3))
def test_a_round_interval_stays_in_the_flat_region(best: float, width: float) -> None:
    low, high = best / width, best * width
    assert low <= intervals.round_interval(best, low, high) <= high


def test_a_round_interval_is_one_that_a_person_says() -> None:
    assert intervals.round_interval(3180, 1542, 6513) == HOUR
    assert intervals.round_interval(880, 700, 1100) == 900
    assert intervals.round_interval(1.37 * HOUR, 1.3 * HOUR, 1.45 * HOUR) == 4900


# -- simulated jobs --------------------------------------------------------------------------------


def simulated(saving: Saving, interval: float, checkpoints: int, seed: int = 0) -> float:
    """Wall time over computing of a job that is interrupted at random, step by step."""
    chance = random.Random(seed)
    wall = work = safe = 0.0  # computing done; computing in the last safe checkpoint
    pending: tuple[float, float] | None = None  # when it is safe, and how much is in it
    failure = chance.expovariate(1 / saving.mean)
    while safe < checkpoints * interval:
        compute = wall + interval
        saved = compute + saving.blocking
        if failure < saved:
            if pending is not None and pending[0] <= failure:
                safe = pending[1]
            pending = None
            wall, work = failure, safe
            while True:  # a restart may be interrupted, too
                failure = wall + chance.expovariate(1 / saving.mean)
                if failure > wall + saving.restart:
                    break
                wall = failure
            wall += saving.restart
            continue
        if pending is not None:
            safe = pending[1]
        wall, work = saved, work + interval
        pending = (saved + saving.behind, work)
        if not saving.behind:
            safe, pending = work, None
    return wall / safe


@pytest.mark.parametrize(
    "saving",
    [Saving(1, 120, 2), Saving(5, 100, 20), Saving(1, 120, 2, behind=10), Saving(2, 60, 5, behind=12)],
)
def test_a_simulated_job_takes_as_long(saving: Saving) -> None:
    interval = max(saving.optimum(), saving.behind)
    assert simulated(saving, interval, 40_000) == pytest.approx(saving.wall_ratio(interval), rel=0.01)


def test_a_notice_that_always_helps_leaves_the_pauses() -> None:
    saving = Saving(1, 120, 2, in_time=0.999999)
    assert saving.wall_ratio(1000) == pytest.approx((1 + 1 / 1000) * (1 + 3 / 120), rel=1e-4)
    assert Saving(1, 120, 2, in_time=0.5).mean_lossy == 240
    plain, noticed = Saving(0.001, 1e6, 0), Saving(0.001, 1e6, 0, in_time=0.9)
    assert noticed.lost(1800) == pytest.approx(intervals.lost_with_notice(1800, 0.9), rel=1e-2)
    assert plain.lost(1800) == pytest.approx(900, rel=1e-2)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: interruptions.observed(-1, 3600), "cannot be -1 interruptions"),
        (lambda: interruptions.observed(1, 0), "a time above 0"),
        (lambda: interruptions.given(0), "must be above 0"),
        (lambda: interruptions.given_rate(-0.5), "not -0.5"),
        (lambda: interruptions.given_rate(0), "not 0"),
        (lambda: interruptions.given_rate(float("nan")), "not nan"),
    ],
)
def test_rates_that_cannot_be(ask: object, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        ask()
