"""Is a job safe on interruptible capacity, how often must it save, and what does it cost there?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning import checkpointinterval as intervals
from jupyter_gpuprof.planning.checkpointinterval import Saving
from jupyter_gpuprof.planning.spotverdict import judge_spot
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spot import CurvePoint, Law, Range, SpotDecision, SpotFigures, SpotPlan, Today

_SECONDS = 3600.0
_CURVE_POINTS = 61
#: The curve is drawn to so many times the ends of the flat region.
_BEYOND = 4.0
#: Work that takes so many times as long is not done at all.
_HOPELESS = 100.0
_NO_PROGRESS = Missing("interrupted so often, hardly any work is ever done")
_NO_PRICE = Missing("no price was given")

#: What determines the cost, by the mean time between interruptions.
SavingOf = Callable[[float], Saving]


def decide_spot(
    figures: SpotFigures,
    *,
    decision_id: str = "",
    run_id: str = "",
    run_name: str = "",
    started_at: str = "",
    notes: tuple[str, ...] = (),
) -> SpotDecision:
    """The intervals, their costs and the verdict.

    Args:
        figures: what was measured and what the person said.
        decision_id, run_id, run_name, started_at, notes: go into the record as they are.

    Raises:
        OptionError: a figure makes no sense.
    """
    check_figures(figures)
    ways = _ways(figures)
    plans = tuple(_plan(name, saving_of, figures) for name, saving_of in ways)
    first, saving_of = plans[0], ways[0][1]
    saving = saving_of(figures.interruptions.planned_s)
    today = _today(figures, saving, first)
    stable, spot = _money(figures, first)
    finish = _finish(figures, saving_of, first)
    verdict = judge_spot(figures, first, today, finish)
    return SpotDecision(
        decision_id=decision_id,
        run_id=run_id,
        run_name=run_name,
        started_at=started_at,
        figures=figures,
        plans=plans,
        laws=_laws(saving),
        curve=_curve(figures, saving_of, first),
        today=today,
        interval_steps=_steps(first.interval_s, figures.step_s),
        break_even_ratio=_known(figures.price_ratio, lambda f: 1 - f),
        break_even_s=_break_even(figures, saving_of),
        stable_money=stable,
        spot_money=spot,
        finish_s=finish,
        label=verdict.label,
        sentence=verdict.sentence,
        reasons=verdict.reasons,
        notes=notes,
    )


def check_figures(figures: SpotFigures) -> None:
    """Refuse what cannot be.

    Raises:
        OptionError: one sentence about the first such figure.
    """
    if not 0 < figures.blocking_s < math.inf:
        raise OptionError("A checkpoint takes some time: its cost must be above 0 s.")
    if not 0 <= figures.restart_s < math.inf:
        raise OptionError("The time to be running again cannot be negative.")
    ratio = figures.price_ratio
    if not isinstance(ratio, Missing) and not 0 < ratio <= 1:
        raise OptionError(
            f"The spot price is a share of the on-demand price, above 0 and up to 1, not {ratio:g}."
        )
    if figures.devices < 1:
        raise OptionError(f"A job has one device or more, not {figures.devices}.")
    above = (
        ("price", figures.price_per_device_hour),
        ("work", figures.work_s),
        ("deadline", figures.deadline_s),
        ("notice", figures.notice_s),
        ("cost of an asynchronous checkpoint", figures.async_blocking_s),
    )
    for name, value in above:
        if not isinstance(value, Missing) and not 0 < value < math.inf:
            raise OptionError(f"The {name} must be above 0, not {value:g}.")


def _ways(figures: SpotFigures) -> list[tuple[str, SavingOf]]:
    """Each way of saving by its name; the first is the one of the verdict."""

    def measured(mean: float) -> Saving:
        return Saving(figures.blocking_s, mean, figures.restart_s)

    ways: list[tuple[str, SavingOf]] = [("saving as measured", measured)]
    stall, durable = figures.async_blocking_s, figures.async_durable_s
    if not isinstance(stall, Missing) and not isinstance(durable, Missing):
        behind = max(0.0, durable - stall)
        ways.append(("saving in the background", lambda mean: Saving(stall, mean, figures.restart_s, behind)))
    in_time = figures.in_time_ratio
    if not isinstance(in_time, Missing) and 0 < in_time < 1:
        caught = float(in_time)
        ways.append(("saving at the notice, too", lambda mean: replace(measured(mean), in_time=caught)))
    return ways


def _plan(name: str, saving_of: SavingOf, figures: SpotFigures) -> SpotPlan:
    interruptions = figures.interruptions
    saving = saving_of(interruptions.planned_s)
    best = saving.optimum()
    flat_low, flat_high = saving.flat()
    interval = intervals.round_interval(best, flat_low, flat_high)

    def wall_ratio(mean: float) -> float:
        ratio = saving_of(mean).wall_ratio(interval)
        return ratio if ratio < _HOPELESS else math.inf

    wall = _over(interruptions.mean_s, wall_ratio, falls=True)
    if interruptions.is_bound:  # at the best, never interrupted
        wall = Range(wall.value, 1 + saving.blocking / interval, wall.high)
    ratio, loss = figures.price_ratio, _each(wall, lambda w: 1 - 1 / w)
    return SpotPlan(
        name=name,  # type: ignore[arg-type]
        optimum_s=_over(interruptions.mean_s, lambda mean: saving_of(mean).optimum()),
        flat_low_s=flat_low,
        flat_high_s=flat_high,
        interval_s=interval,
        lost_s=saving.lost(interval),
        overhead_ratio=saving.blocking / (interval + saving.blocking),
        wall_ratio=wall,
        loss_ratio=loss,
        cost_ratio=_NO_PRICE
        if isinstance(ratio, Missing)
        else _each(loss, lambda share: intervals.effective_cost(float(ratio), share)),
    )


def _over(mean: Range, of: Callable[[float], float], *, falls: bool = False) -> Range:
    """What follows from the mean time between interruptions, with its doubt; `falls` where more is less."""
    value, at_low, at_high = (_known(m, of) for m in (mean.value, mean.low, mean.high))
    return Range(value, at_high, at_low) if falls else Range(value, at_low, at_high)


def _each(what: Range, of: Callable[[float], float]) -> Range:
    return Range(_known(what.value, of), _known(what.low, of), _known(what.high, of))


def _known(number: Number, of: Callable[[float], float]) -> Number:
    if isinstance(number, Missing):
        return number
    found = float(of(float(number)))
    return found if math.isfinite(found) else _NO_PROGRESS


def _laws(saving: Saving) -> tuple[Law, ...]:
    blocking, mean, restart = saving.blocking, saving.mean, saving.restart
    found = (
        ("exact", saving.optimum()),
        ("Young", intervals.young(blocking, mean)),
        ("Daly, first order", intervals.daly_first(blocking, mean, restart)),
        ("Daly, higher order", intervals.daly(blocking, mean)),
        ("Saxena", intervals.saxena(blocking, mean, restart) - blocking),
    )
    rated = [Law(name, interval, saving.wall_ratio(interval)) for name, interval in found if interval > 0]
    return tuple(law for law in rated if math.isfinite(law.wall_ratio))


def _curve(figures: SpotFigures, saving_of: SavingOf, plan: SpotPlan) -> tuple[CurvePoint, ...]:
    first, last = plan.flat_low_s / _BEYOND, plan.flat_high_s * _BEYOND
    if isinstance(figures.today_s, Range) and not isinstance(figures.today_s.value, Missing):
        first, last = min(first, figures.today_s.value / 1.2), max(last, figures.today_s.value * 1.2)
    mean = figures.interruptions.mean_s
    points = []
    for i in range(_CURVE_POINTS):
        interval = first * (last / first) ** (i / (_CURVE_POINTS - 1))
        value = saving_of(figures.interruptions.planned_s).wall_ratio(interval)
        low = 1 + figures.blocking_s / interval
        if not isinstance(mean.high, Missing):
            low = saving_of(float(mean.high)).wall_ratio(interval)
        assert not isinstance(mean.low, Missing)
        high = saving_of(float(mean.low)).wall_ratio(interval)
        if math.isfinite(value):
            points.append(CurvePoint(interval, value, low, min(high, 1e6)))
    return tuple(points)


def _today(figures: SpotFigures, saving: Saving, plan: SpotPlan) -> Today | Missing:
    today = figures.today_s
    if isinstance(today, Missing):
        return today
    if isinstance(today.value, Missing):
        return today.value
    wall = saving.wall_ratio(float(today.value))
    if not math.isfinite(wall):
        return _NO_PROGRESS
    flat = plan.flat_low_s <= today.value <= plan.flat_high_s
    return Today(today, wall, wall / saving.wall_ratio(saving.optimum()) - 1, flat)


def _steps(interval_s: float, step_s: Number) -> Number:
    """The interval in steps, two figures: a rounder number is free."""
    if isinstance(step_s, Missing) or step_s <= 0:
        return Missing("the time of a step is not known")
    steps = max(1.0, interval_s / step_s)
    digits = 10.0 ** max(0, math.floor(math.log10(steps)) - 1)
    return round(round(steps / digits) * digits)


def _break_even(figures: SpotFigures, saving_of: SavingOf) -> Number:
    """The mean time between interruptions at which spot capacity costs what on demand costs."""
    from scipy.optimize import brentq

    ratio = figures.price_ratio
    if isinstance(ratio, Missing):
        return _NO_PRICE
    if ratio == 1:
        return Missing("spot capacity is no cheaper here")

    def dearer(log_mean: float) -> float:
        saving = saving_of(math.exp(log_mean))
        return math.log(float(ratio)) + math.log(min(saving.wall_ratio(saving.optimum()), 1e9))

    scale = math.log(figures.blocking_s + figures.restart_s)
    low, high = scale - math.log(100), scale + math.log(1e15)
    if dearer(low) <= 0 or dearer(high) >= 0:
        return Missing("none was found")
    return math.exp(brentq(dearer, low, high))


def _money(figures: SpotFigures, plan: SpotPlan) -> tuple[Number, Range | Missing]:
    """What the work costs on demand and on spot capacity; an hour of work where none was given."""
    price = figures.price_per_device_hour
    if isinstance(price, Missing):
        return _NO_PRICE, _NO_PRICE
    hours = 1.0 if isinstance(figures.work_s, Missing) else figures.work_s / _SECONDS
    stable = price * figures.devices * hours
    if isinstance(plan.cost_ratio, Missing):
        return stable, Missing("no spot price was given")
    return stable, _each(plan.cost_ratio, lambda ratio: ratio * stable)


def _finish(figures: SpotFigures, saving_of: SavingOf, plan: SpotPlan) -> Range | Missing:
    """Wall time until the work is done: on average, and at most with a probability of 95 %."""
    from scipy.special import pdtrik

    if isinstance(figures.work_s, Missing):
        return Missing("the work was not given")
    work = float(figures.work_s)
    mean = _each(plan.wall_ratio, lambda wall: work * wall)
    if isinstance(mean.high, Missing):
        return mean
    often = figures.interruptions.mean_s.low
    assert not isinstance(often, Missing)
    number = math.ceil(float(pdtrik(0.95, mean.high / often)))
    lost = saving_of(float(often)).lost(plan.interval_s)
    late = work * (1 + figures.blocking_s / plan.interval_s) + number * lost
    return Range(mean.value, mean.low, max(mean.high, late))
