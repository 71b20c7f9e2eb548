"""What a job is worth in devices: from the throughput at some counts to a count and a sentence.

`scalingchain` says how far more devices are worth it, `scalingcause` what the lost time goes to,
`scalinglaws` what the curve looks like, and `scalingverdict` puts it into words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from jupyter_gpuprof.planning.scalingcause import cause_of, with_synthetic
from jupyter_gpuprof.planning.scalingchain import Limits, chain_of, worth_it_count
from jupyter_gpuprof.planning.scalinglaws import Measured, fit_laws, is_usable
from jupyter_gpuprof.planning.scalingverdict import Curve, judge_scaling
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share
from jupyter_gpuprof.records.scaling import CostRow, ScalingFit, ScalingPoint, ScalingVerdict
from jupyter_gpuprof.records.student import student_t

_UNMEASURED = Missing("not measured")

Outcome = Literal["measured", "out of memory", "failed", "skipped", "cancelled"]


@dataclass(frozen=True)
class Conclusion:
    """What follows from the points of a curve; the fields are those of `Scaling`."""

    points: tuple[ScalingPoint, ...]
    fit: ScalingFit
    worth_it_count: Number
    rule: str
    costs: tuple[CostRow, ...]
    verdict: ScalingVerdict


def point(
    count: int,
    repeats: Sequence[float],
    *,
    within: Estimate | None = None,
    exposed_communication: Share = _UNMEASURED,
    exposed_input: Share = _UNMEASURED,
    peak_memory_bytes: Number = _UNMEASURED,
    startup_s: Number | None = None,
    outcome: Outcome = "measured",
    why: str = "",
) -> ScalingPoint:
    """One device count; `conclude_scaling` adds its efficiency.

    The interval is that of the mean of the repeats by Student's t. With a single repeat it is the one
    `within` the run, and without that the value itself.

    Args:
        count: devices (ranks).
        repeats: the throughput of each repeat, samples/s of all ranks together; none where nothing was
            measured (yet).
        within: the throughput of a single repeat with its interval, samples/s.
        exposed_communication: share of the wall time of the ranks.
        exposed_input: the same for waiting for input.
        peak_memory_bytes: the largest of any rank.
        startup_s: from the launch to the first counted step, mean over repeats.
        outcome: other than "measured", something happened in at least one repeat.
        why: what happened.
    """
    started = _UNMEASURED if startup_s is None else startup_s
    if not repeats:
        none = Missing(why or ("not measured yet" if outcome == "measured" else outcome))
        return ScalingPoint(count, none, none, none, none, none, none, none, (), started, outcome, why)
    mean = math.fsum(repeats) / len(repeats)
    low = high = mean
    if len(repeats) > 1:
        half = student_t(len(repeats) - 1) * float(np.std(repeats, ddof=1)) / math.sqrt(len(repeats))
        low, high = max(mean - half, 0.0), mean + half
    elif within is not None:
        low, high = min(within.low, mean), max(within.high, mean)
    return ScalingPoint(
        count,
        mean,
        low,
        high,
        _UNMEASURED,
        exposed_communication,
        exposed_input,
        peak_memory_bytes,
        tuple(float(repeat) for repeat in repeats),
        started,
        outcome,
        why,
    )


def conclude_scaling(
    points: Sequence[ScalingPoint],
    mode: Literal["weak", "strong"],
    *,
    ranks: Literal["devices", "CPU processes"] = "devices",
    least_gain: float = 1.6,
    least_efficiency: float = 0.7,
    price_per_device_hour: float | None = None,
    synthetic: Mapping[int, float] | None = None,
) -> Conclusion:
    """The fits, the worth-it count, the costs and the verdict of a curve.

    Args:
        points: one for each count, in any order, measured or not.
        mode: is the batch per device fixed (weak) or that of all devices together (strong)?
        ranks: what the counts count.
        least_gain: what a doubling must bring at least.
        least_efficiency: what the efficiency must be at least.
        price_per_device_hour: in any currency.
        synthetic: throughput by count without loading data, samples/s, where it is known: what a count
            falls short of it is waiting for input, where that was not measured.
    """
    ordered = tuple(sorted(points, key=lambda p: p.count))
    ordered = with_synthetic(_with_efficiency(ordered), synthetic or {})
    usable = [p for p in ordered if is_usable(p)]
    measured = Measured.of(usable)
    limits = Limits(least_gain, least_efficiency)
    chain = chain_of(measured, limits)
    fit = fit_laws(measured)
    costs = _costs(usable, price_per_device_hour)
    curve = Curve(
        ordered,
        usable,
        chain,
        cause_of(usable[0], usable[len(chain)], ranks) if chain else None,
        mode,
        ranks,
        limits,
        measured.spread,
        price_per_device_hour,
    )
    rule = limits.words(price_per_device_hour is not None)
    verdict = judge_scaling(curve, fit, costs)
    return Conclusion(ordered, fit, worth_it_count(measured, chain), rule, costs, verdict)


def _with_efficiency(points: Sequence[ScalingPoint]) -> tuple[ScalingPoint, ...]:
    """The points with their throughput per device over that of the smallest measured count."""
    first = next((p for p in points if is_usable(p)), None)
    if first is None:
        return tuple(points)
    per_device = _value(first.throughput) / first.count
    return tuple(
        replace(p, efficiency=_value(p.throughput) / p.count / per_device) if is_usable(p) else p
        for p in points
    )


def _costs(usable: Sequence[ScalingPoint], price_per_device_hour: float | None) -> tuple[CostRow, ...]:
    """Time and device hours for the same work, against the smallest measured count."""
    rows = []
    for p in usable:
        time_ratio = _value(usable[0].throughput) / _value(p.throughput)
        row = CostRow(p.count, time_ratio, time_ratio * p.count / usable[0].count)
        if price_per_device_hour is not None:
            money = 1e6 * p.count * price_per_device_hour / 3600 / _value(p.throughput)
            row = replace(row, money_per_million_samples=money)
        rows.append(row)
    return tuple(rows)


def _value(number: Number) -> float:
    assert not isinstance(number, Missing)
    return float(number)
