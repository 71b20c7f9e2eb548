"""What a decision on spot capacity says, the same in text, HTML and figures."""

from __future__ import annotations

import math

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spot import CurvePoint, Range, SpotDecision, SpotPlan, Today
from jupyter_gpuprof.records.spotwords import percent, percent_range, span, span_range
from jupyter_gpuprof.views.format import known, number, why

#: The heads of the table of plans, in the order of `plan_cells`.
PLAN_HEADS = ("saving", "interval", "as good", "per interruption", "time lost", "of on demand")

CURVE_TITLE = "Wall time over computing, by the interval between checkpoints"
#: The curve is drawn up to so many times the lowest share of time lost.
_TALLEST = 3.0
#: Round intervals in seconds.
_TICKS = tuple(
    float(n * unit)
    for unit, counts in ((1, (1, 5, 15)), (60, (1, 5, 15)), (3600, (1, 4, 12)), (86400, (1, 4, 14, 60, 365)))
    for n in counts
)


def label_words(decision: SpotDecision) -> str:
    """The verdict as a title, with its interval."""
    ending = f" {span(decision.plans[0].interval_s)}" if decision.label == "spot-ready at interval" else ""
    return f"{decision.label[:1].upper()}{decision.label[1:]}{ending}"


def axis_ticks(first_s: float, last_s: float) -> list[float]:
    """Round intervals between the two."""
    return [tick for tick in _TICKS if first_s <= tick <= last_s]


def plan_cells(plan: SpotPlan) -> tuple[str, ...]:
    """One way of saving in the table, under `PLAN_HEADS`."""
    cost = "n/a" if isinstance(plan.cost_ratio, Missing) else percent_range(plan.cost_ratio)
    return (
        plan.name,
        span(plan.interval_s),
        f"{span(plan.flat_low_s)} to {span(plan.flat_high_s)}",
        span(plan.lost_s),
        percent_range(plan.loss_ratio),
        cost,
    )


def spot_facts(decision: SpotDecision) -> list[tuple[str, str]]:
    """What the decision rests on and what follows, each under its name."""
    figures = decision.figures
    facts = [
        ("Checkpoint", f"stops training for {span(figures.blocking_s)}"),
        ("Interruptions", interruption_words(decision)),
        ("Restart", f"{span(figures.restart_s)} until training runs again"),
        ("Interval", interval_words(decision)),
        ("Today", today_words(decision)),
        ("Break-even", break_even_words(decision)),
        ("Money", money_words(decision)),
        ("Done after", finish_words(decision)),
        ("Notice", notice_words(decision)),
        ("Formulas", law_words(decision)),
        ("Audit", f"the resume audit {figures.audit}"),
    ]
    return [(name, words) for name, words in facts if words]


def interruption_words(decision: SpotDecision) -> str:
    """How often, and how that is known."""
    interruptions = decision.figures.interruptions
    words = f"{span_range(interruptions.mean_s)} apart"
    count, over = known(interruptions.count), known(interruptions.observed_s)
    if count is None or over is None:
        return f"{words}, as given"
    if interruptions.is_bound:
        return f"none in {span(over)}: {span_range(interruptions.mean_s)} apart; planned with that bound"
    return f"{words}: {number(count)} in {span(over)}"


def interval_words(decision: SpotDecision) -> str:
    """The interval to use, in time and steps."""
    plan, steps = decision.plans[0], known(decision.interval_steps)
    words = f"{span(plan.interval_s)}, the best is {span_range(plan.optimum_s)}"
    return words if steps is None else f"{words}; {number(steps)} steps"


def today_words(decision: SpotDecision) -> str:
    """What the loop does now."""
    today = decision.today
    if not isinstance(today, Today):
        return "" if today.reason == "not given" else f"not known: {why(today)}"
    good = "as good as the best" if today.is_flat else f"{percent(today.more_ratio)} more time than the best"
    return f"every {span_range(today.interval_s)}: {good}"


def break_even_words(decision: SpotDecision) -> str:
    """Where spot capacity is no cheaper any more."""
    ratio, mean = known(decision.break_even_ratio), known(decision.break_even_s)
    if ratio is None:
        return ""
    words = f"{percent(ratio)} of the time lost"
    return words if mean is None else f"{words}, an interruption every {span(mean)}"


def money_words(decision: SpotDecision) -> str:
    """What the work costs here and there."""
    stable, spot = known(decision.stable_money), decision.spot_money
    if stable is None or isinstance(spot, Missing):
        return ""
    work = known(decision.figures.work_s)
    what = "an hour of computing" if work is None else f"{span(work)} of computing"
    return f"{_money(stable)} on demand, {money_range(spot)} on spot capacity, for {what}"


def money_range(spot: Range) -> str:
    """An amount with its doubt, three figures."""
    value, low, high = known(spot.value), known(spot.low), known(spot.high)
    if value is None:
        return "not bounded" if high is None else f"at most {_money(high)}"
    if low == value == high:
        return _money(value)
    ends = (_money(end) if end is not None else "no bound" for end in (low, high))
    return f"{_money(value)} ({' to '.join(ends)})"


def finish_words(decision: SpotDecision) -> str:
    """How long the work takes."""
    finish = decision.finish_s
    if isinstance(finish, Missing):
        return ""
    mean, most = known(finish.value), known(finish.high)
    if most is None:
        return "no time can be told"
    late = f"{span(most)} at most in 19 of 20 cases"
    return late if mean is None else f"{span(mean)} on average, {late}"


def notice_words(decision: SpotDecision) -> str:
    """Whether a save at the notice can be counted on."""
    notice, ratio = known(decision.figures.notice_s), decision.figures.in_time_ratio
    if notice is None:
        return ""
    if isinstance(ratio, Missing):
        return f"{span(notice)}: {why(ratio)}"
    return f"{span(notice)}: an emergency save is done in time in about {percent(ratio)} of the cases"


def law_words(decision: SpotDecision) -> str:
    """What the formulas of the literature say."""
    return ", ".join(f"{law.name} {span(law.interval_s)}" for law in decision.laws)


def drawn_points(decision: SpotDecision) -> list[CurvePoint]:
    """The part of the curve worth drawing; today's interval belongs to it, if it is not too dear."""
    points = [p for p in decision.curve if p.interval_s > 0 and math.isfinite(p.wall_ratio)]
    if len(points) < 2:
        return []
    least = min(point.wall_ratio for point in points)
    top = 1 + _TALLEST * (least - 1) + 0.01
    if isinstance(decision.today, Today):
        top = max(top, min(1.01 * decision.today.wall_ratio, 1 + 3 * _TALLEST * (least - 1)))
    kept = [point for point in points if point.wall_ratio <= top]
    return kept if len(kept) > 1 else points


def curve_marks(decision: SpotDecision) -> list[tuple[str, float, float]]:
    """What is marked on the curve: its name, the interval and the wall time over computing."""
    marks = [
        (law.name, law.interval_s, law.wall_ratio) for law in decision.laws if law.name in ("exact", "Young")
    ]
    plan = decision.plans[0]
    ratio = known(plan.wall_ratio.value) or known(plan.wall_ratio.high)
    if ratio is not None:
        marks.append(("use", plan.interval_s, ratio))
    today = decision.today
    if isinstance(today, Today) and known(today.interval_s.value) is not None:
        marks.append(("today", known(today.interval_s.value) or 0.0, today.wall_ratio))
    return marks


def mark_words(decision: SpotDecision, name: str, interval_s: float, wall_ratio: float) -> str:
    """One mark in words: ``use 15 min: 4.1 % of the time lost, 42 % of on demand``."""
    words = f"{name} {span(interval_s)}: {percent(1 - 1 / wall_ratio)} of the time lost"
    ratio = known(decision.figures.price_ratio)
    return words if ratio is None else f"{words}, {percent(ratio * wall_ratio)} of on demand"


def _money(amount: Number) -> str:
    value = known(amount) or 0.0
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
