"""A curve in words: the label, the sentence to send on, the reasons and the doubts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.planning.scalingcause import Cause
from jupyter_gpuprof.planning.scalingchain import Limits, Link
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share
from jupyter_gpuprof.records.scaling import (
    AmdahlFit,
    CostRow,
    FitCurve,
    ScalingFit,
    ScalingLabel,
    ScalingPoint,
    ScalingVerdict,
    UslFit,
)

#: Waiting for input above this share is worth mending before more devices are asked for.
_STARVED = 0.1
#: An efficiency above this is more than measuring alone explains.
_SUPERLINEAR = 1.02
#: From this efficiency on there is no loss to explain.
_LOSSLESS = 0.95
#: A law that is further off than this at some count is called wrong.
_MISFIT = 0.1


@dataclass(frozen=True)
class Curve:
    """What the words are made from.

    Args:
        points: all of them, with efficiency, ascending.
        usable: those where something was processed.
        chain: the counts that are worth it, and the first that is not.
        cause: what the last of the chain lacks in efficiency goes to.
        spread: is a spread known at every count?
        price: of a device hour.
    """

    points: Sequence[ScalingPoint]
    usable: Sequence[ScalingPoint]
    chain: Sequence[Link]
    cause: Cause | None
    mode: Literal["weak", "strong"]
    ranks: Literal["devices", "CPU processes"]
    limits: Limits
    spread: bool
    price: float | None

    def of(self, count: int) -> str:
        """A count with its noun: "1 device", "8 devices"."""
        one = "device" if self.ranks == "devices" else "CPU process"
        return f"{count} {one if count == 1 else self.ranks}"


def judge_scaling(curve: Curve, fit: ScalingFit, costs: Sequence[CostRow]) -> ScalingVerdict:
    """The verdict on a curve."""
    return ScalingVerdict(
        _label(curve),
        _sentence(curve),
        tuple(_reasons(curve, fit, costs)),
        (*_doubts(curve), *_misfit(curve, fit.curve)),
    )


def _label(curve: Curve) -> ScalingLabel:
    if not curve.chain or curve.chain[-1].passes == "open":
        return "unclear"
    if curve.chain[-1].passes == "yes" or curve.cause is None:
        return "scales"
    return curve.cause.label


def _sentence(curve: Curve) -> str:
    if not curve.usable:
        return "nothing was measured at any count"
    if not curve.chain:
        return f"only {curve.of(curve.usable[0].count)} measured, which says nothing about scaling"
    link = curve.chain[-1]
    ratio = _ratio(link.gain.value)
    brings = f"{curve.of(link.count)} bring {ratio} over {link.before} at {_times(link)} the cost"
    if link.passes == "yes":
        beyond = [
            p for p in curve.points if p.count > link.count and p.outcome not in ("measured", "skipped")
        ]
        return (
            f"still improving at {link.count}: {curve.of(link.count)} bring {ratio} over {link.before}, "
            f"with an efficiency of {link.efficiency.value:.2f}"
            + "".join(f"; {curve.of(p.count)}: {p.outcome}" for p in beyond)
        )
    if link.passes == "open":
        return (
            f"unclear whether {curve.of(link.count)} are worth it: the last doubling brings "
            f"{_between(link.doubling)} against {curve.limits.gain:g}x, the efficiency is "
            f"{_between(link.efficiency, '')} against {curve.limits.efficiency:g}; repeat more often"
        )
    slow = link.doubling.value < curve.limits.gain
    stops = f"stops improving at {link.before}" if slow else f"not worth more than {link.before}"
    low = "" if slow else f", with an efficiency of {link.efficiency.value:.2f}"
    why = _why(curve)
    if not why:
        return f"{stops}: {brings}{low}"
    return f"{_label(curve)}: {stops} ({brings}{low}); {why}"


def _why(curve: Curve) -> str:
    """What the lost time goes to, nothing where that is not known."""
    cause = curve.cause
    if cause is None or cause.label == "not worth more":
        return ""
    if cause.label == "input-bound":
        words = _growth("waiting for input", cause.before, cause.now, "exposed_input")
    elif cause.inferred:
        words = f"not for want of input, which explains {_percent(cause.input_ratio)} of the lost time"
    else:
        words = _growth(
            "communication that no computation hides", cause.before, cause.now, "exposed_communication"
        )
    if cause.mixed:
        other = "input" if cause.label == "communication-bound" else "communication"
        words += f"; mixed, since {other} counts as well"
    return words


def _growth(what: str, before: ScalingPoint, now: ScalingPoint, name: str) -> str:
    share, was = getattr(now, name), getattr(before, name)
    if isinstance(was, Missing):
        return f"{what} takes {_percent(share)} of the time at {now.count}"
    grown = f"from {_percent(was)} of the time at {before.count} to {_percent(share)} at {now.count}"
    return f"{what} grows {grown}"


def _reasons(curve: Curve, fit: ScalingFit, costs: Sequence[CostRow]) -> Iterator[str]:
    for link in curve.chain:
        yield (
            f"{curve.of(link.count)}: {_between(link.gain)} over {link.before}, "
            f"efficiency {_between(link.efficiency, '')}"
        )
    if curve.cause is not None and curve.chain[-1].efficiency.value < _LOSSLESS:
        yield _loss(curve.cause)
    if curve.chain:
        yield _extra(curve, costs)
    if isinstance(fit.amdahl, AmdahlFit):
        yield _amdahl(fit.amdahl.serial)
    if isinstance(fit.usl, UslFit):
        peak = fit.usl.peak_count
        yield (
            f"by Gunther's law throughput peaks at about {peak.value:.0f} [{peak.low:.0f}, {peak.high:.0f}] "
            f"{curve.ranks}"
        )
    if curve.price is not None and costs:
        yield _cheapest(curve, costs)
    if curve.mode == "strong" and len(curve.usable) > 1:
        most = curve.usable[-1].count
        yield (
            f"strong scaling: each of {most} {curve.ranks} gets 1/{most} of the batch, and small "
            "batches fill a device less"
        )


def _loss(cause: Cause) -> str:
    """How the lost time divides."""
    parts = [("waiting for input", cause.input_ratio), ("communication", cause.communication_ratio)]
    # A share that fell a little from the smaller count on explains nothing, and not less than that.
    known = [
        f"{what} explains {_percent(max(0.0, ratio.value))}"
        for what, ratio in parts
        if isinstance(ratio, Estimate)
    ]
    unknown = [f"{what} is not known ({ratio.reason})" for what, ratio in parts if isinstance(ratio, Missing)]
    if cause.inferred:
        known[1:] = [f"communication and all else the remaining {_percent(cause.communication_ratio)}"]
    return f"of the time lost at {cause.now.count}, {', '.join(known + unknown)}"


def _extra(curve: Curve, costs: Sequence[CostRow]) -> str:
    """What a device costs of those that the last link of the chain adds."""
    link = curve.chain[-1]
    at = {p.count: _value(p.throughput) for p in curve.usable}
    first = curve.usable[0]
    each = (at[link.count] - at[link.before]) / (link.count - link.before)
    part = _percent(each / (_value(first.throughput) / first.count))
    one = "device" if curve.ranks == "devices" else "CPU process"
    of = "what the first one does" if first.count == 1 else f"what one of the first {first.count} does"
    words = f"each {one} beyond {link.before} adds {each:,.{_digits(each)}f} samples/s, {part} of {of}"
    if curve.price is None:
        return words
    if each <= 0:
        return f"{words}: its {curve.price:g} per hour buy nothing"
    first_money = costs[0].money_per_million_samples
    return (
        f"{words}: a million samples cost {_money(1e6 * curve.price / 3600 / each)} on it instead of "
        f"{_money(first_money)}"
    )


def _amdahl(serial: Estimate) -> str:
    about = f"{_percent(serial)} [{_points(serial.low)}, {_points(serial.high)}]"
    words = f"by Amdahl's law {about} of the work is serial"
    return words if serial.value < 1e-3 else f"{words}: never more than {1 / serial.value:.3g}x, however many"


def _cheapest(curve: Curve, costs: Sequence[CostRow]) -> str:
    result = min(costs, key=lambda row: row.cost_ratio)
    time = min(costs, key=lambda row: row.cost_ratio * row.time_ratio)
    return (
        f"cheapest result: {curve.of(result.count)}, {_money(result.money_per_million_samples)} per million "
        f"samples; cheapest time: {curve.of(time.count)}, {_money(time.money_per_million_samples)}"
    )


def _doubts(curve: Curve) -> Iterator[str]:
    if curve.ranks == "CPU processes":
        yield (
            "These are CPU processes, not devices: they share the cores of one machine, so the curve says "
            "nothing about devices."
        )
    for p in curve.points:
        if p.outcome != "measured":
            told = f": {p.why}" if p.why else ""
            yield f"{curve.of(p.count)}: {p.outcome}{told}."
        elif p.repeats and p not in curve.usable:
            yield f"{curve.of(p.count)}: nothing was processed."
    if not curve.usable:
        return
    first = curve.usable[0]
    if first.count != 1:
        yield f"{curve.of(1)} was not measured: efficiency is against {first.count}."
    if not curve.spread:
        yield "Some counts were measured once: no interval says how far their numbers can be trusted."
    starved = first.exposed_input
    if isinstance(starved, Estimate) and starved.low > _STARVED:
        yield (
            f"{curve.of(first.count)} already waits for input for {_percent(starved)} of the time: "
            "mend that first."
        )
    if any(_surely_superlinear(p, first) for p in curve.usable[1:]):
        yield (
            f"More than n times the throughput on n {curve.ranks}: something slows {curve.of(first.count)} "
            "that more of them do not have, such as a small cache or too little memory."
        )
    if curve.cause is not None and curve.cause.inferred and curve.cause.label == "communication-bound":
        yield "Communication was not measured: it is what is lost and not explained by waiting for input."
    if curve.mode == "weak" and len(curve.usable) > 1:
        most = curve.usable[-1].count // first.count
        yield (
            f"Weak scaling: the batch of all {curve.ranks} together grows, to {most} times that of "
            f"{first.count}; whether training learns as much per sample was not measured."
        )


def _misfit(curve: Curve, law: FitCurve | Missing) -> Iterator[str]:
    """Where the law is far from what was measured."""
    if isinstance(law, Missing):
        return
    speedup = dict(zip(law.counts, law.speedup, strict=True))
    first = _value(curve.usable[0].throughput)
    off = [(speedup[p.count] * first / _value(p.throughput) - 1, p.count) for p in curve.usable]
    most, count = max(off, key=lambda one: abs(one[0]))
    if abs(most) > _MISFIT:
        name = "Amdahl's" if law.law == "Amdahl" else "Gunther's"
        yield (
            f"{name} law does not describe this curve: at {count} it gives {_percent(abs(most))} "
            f"{'more' if most > 0 else 'less'} than was measured."
        )


def _surely_superlinear(p: ScalingPoint, first: ScalingPoint) -> bool:
    if isinstance(p.low, Missing) or isinstance(first.high, Missing) or first.high <= 0:
        return False
    return p.low / p.count > _SUPERLINEAR * first.high / first.count


def _times(link: Link) -> str:
    times = link.count / link.before
    return "twice" if times == 2 else f"{times:.3g} times"


def _ratio(value: float) -> str:
    """``1.1x``; two decimals near one and below, where they matter."""
    return f"{value:.2f}x" if value < 1.05 else f"{value:.1f}x"


def _between(estimate: Estimate, unit: str = "x") -> str:
    words = f"{estimate.value:.2f}{unit}"
    if estimate.high - estimate.low < 0.005:
        return words
    high = f"{estimate.high:.2f}" if estimate.high < 100 else "over 100"
    return f"{words} [{estimate.low:.2f}, {high}]"


def _percent(share: Share | float) -> str:
    if isinstance(share, Missing):
        return "an unknown part"
    return f"{_points(share.value if isinstance(share, Estimate) else share)} %"


def _points(share: float) -> str:
    """In percent without the sign, with a decimal where it is small."""
    return f"{100 * share:.0f}" if abs(share) >= 0.0995 or abs(share) < 5e-4 else f"{100 * share:.1f}"


def _digits(value: float) -> int:
    """Decimals for about three figures."""
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


def _money(amount: Number) -> str:
    return "an unknown price" if isinstance(amount, Missing) else f"{amount:,.{_digits(amount)}f}"


def _value(number: Number) -> float:
    assert not isinstance(number, Missing)
    return float(number)
