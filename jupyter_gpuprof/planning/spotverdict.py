"""The verdict on spot capacity, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.planning.checkpointinterval import FLAT
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.spot import Range, SpotFigures, SpotLabel, SpotPlan, Today
from jupyter_gpuprof.records.spotwords import percent, percent_range, span, span_range


@dataclass(frozen=True)
class SpotVerdict:
    """The label, why in a sentence, and the numbers behind it."""

    label: SpotLabel
    sentence: str
    reasons: tuple[str, ...]


def judge_spot(
    figures: SpotFigures, plan: SpotPlan, today: Today | Missing, finish: Range | Missing
) -> SpotVerdict:
    """Stable capacity for whatever speaks against spot; else the interval that makes it safe.

    Args:
        figures: what it rests on.
        plan: the way of saving to judge.
        today: the loop with the interval it uses today.
        finish: wall time until the work is done.
    """
    against = _against(figures, plan, finish)
    if against:
        return SpotVerdict(
            "stable capacity", f"Stable capacity: {against[0]}.", (*against[1:], *_reasons(figures, plan))
        )
    if not isinstance(today, Missing) and today.is_flat:
        assert not isinstance(today.interval_s.value, Missing)
        words = (
            f"Spot-ready: the loop saves about every {span(float(today.interval_s.value))}, "
            f"which is within {percent(FLAT)} of the best interval."
        )
        return SpotVerdict("spot-ready", words, _reasons(figures, plan))
    words = f"Spot-ready at an interval of {span(plan.interval_s)}{_instead(today)}."
    return SpotVerdict("spot-ready at interval", words, _reasons(figures, plan))


def _against(figures: SpotFigures, plan: SpotPlan, finish: Range | Missing) -> list[str]:
    """What speaks against spot capacity, the weightiest first."""
    found = []
    if figures.audit == "failed":
        found.append("the resume audit failed, so that an interrupted run does not go on as it was")
    elif figures.audit == "never ran":
        found.append("no resume audit showed that an interrupted run goes on as it was (%gpuprof audit)")
    if figures.is_release:
        found.append("a release run is not to be interrupted")
    if not isinstance(figures.deadline_s, Missing):
        found += _late(float(figures.deadline_s), finish)
    if isinstance(plan.wall_ratio.high, Missing):
        found.append(f"{plan.wall_ratio.high.reason}")
    elif isinstance(plan.cost_ratio, Range):
        high, value = plan.cost_ratio.high, plan.cost_ratio.value
        if not isinstance(high, Missing) and high >= 1:
            certain = not isinstance(value, Missing) and value >= 1
            words = "costs" if certain else "may cost, as far as the interruptions are known,"
            found.append(f"spot {words} {percent_range(plan.cost_ratio)} of on demand")
    return found


def _late(deadline_s: float, finish: Range | Missing) -> list[str]:
    if isinstance(finish, Missing):
        return ["there is a deadline, and how much work is left is not known (--work)"]
    if isinstance(finish.high, Missing):
        return ["the deadline cannot be kept"]
    if finish.high <= deadline_s:
        return []
    return [f"the deadline in {span(deadline_s)} may be missed: it can take {span(float(finish.high))}"]


def _reasons(figures: SpotFigures, plan: SpotPlan) -> tuple[str, ...]:
    interruptions = figures.interruptions
    reasons = [
        f"A checkpoint stops training for {span(figures.blocking_s)}; interruptions are "
        f"{span_range(interruptions.mean_s)} apart, and training runs again {span(figures.restart_s)} "
        "after one.",
        f"The best interval is {span_range(plan.optimum_s)}; from {span(plan.flat_low_s)} to "
        f"{span(plan.flat_high_s)} it costs within {percent(FLAT)} of that.",
        f"At {span(plan.interval_s)} an interruption costs {span(plan.lost_s)} on average, saving "
        f"{percent(plan.overhead_ratio)} of the time; all in all {percent_range(plan.loss_ratio)} is lost.",
    ]
    if isinstance(plan.cost_ratio, Range) and not isinstance(figures.price_ratio, Missing):
        cost, even = percent_range(plan.cost_ratio), percent(1 - figures.price_ratio)
        reasons.append(
            f"At {percent(figures.price_ratio)} of the price, the work costs {cost} of on demand; "
            f"it would cost the same with {even} of the time lost."
        )
    return tuple(reasons)


def _instead(today: Today | Missing) -> str:
    if isinstance(today, Missing) or isinstance(today.interval_s.value, Missing):
        return ""
    return (
        f" instead of today's {span(float(today.interval_s.value))}, "
        f"which costs {percent(today.more_ratio)} more time than the best"
    )
