"""What follows from a loop measured at several batch sizes: what fits, and where more stops paying.

Memory is taken to be ``base + per_sample * batch``: weights, gradients and optimizer state do not depend
on the batch, activations grow with it. Throughput is judged per doubling of the batch,
``(after / before) ** (1 / log2(batch_after / batch_before)) - 1``, so that any two sizes can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from jupyter_gpuprof.records.batch import BatchPoint, MemoryFit
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: A doubling of the batch that brings less throughput than this does not pay.
LEAST_GAIN_RATIO = 0.10
#: A fit of memory that is off by more than this is not followed beyond what was measured.
WORST_FIT_RATIO = 0.10


def conclude_batch(
    points: Sequence[BatchPoint], capacity_bytes: Number, until_memory: float
) -> tuple[MemoryFit | Missing, Number, Number, str]:
    """What the points say.

    Args:
        points: one per batch size, in any order.
        capacity_bytes: memory of the device.
        until_memory: the share of it that may be filled, above 0 and at most 1.

    Returns:
        The fit of memory; the largest batch that fits into that share; the batch from which on throughput
        does not grow any more; and a sentence with both. A largest batch above all that were measured
        is called extrapolated there.
    """
    points = sorted(points, key=lambda point: point.batch_size)
    fit = fit_memory(points)
    largest, fits = _largest(points, fit, capacity_bytes, until_memory)
    plateau, grows = _plateau(points)
    return fit, largest, plateau, f"{grows}; {fits}."


def fit_memory(points: Iterable[BatchPoint]) -> MemoryFit | Missing:
    """Peak memory against the batch by least squares, over the measured points."""
    measured = [point for point in points if point.outcome == "measured"]
    known = [(point.batch_size, peak) for point in measured if (peak := _peak(point)) is not None]
    if len({batch for batch, _ in known}) < 2:
        if len(measured) > len(known):
            missing = next(point.peak_bytes for point in measured if _peak(point) is None)
            return missing if isinstance(missing, Missing) else Missing("the peak was not measured")
        return Missing("it takes memory measured at two batch sizes")
    batch, peak = np.array(known, dtype=float).T
    centred = batch - batch.mean()
    slope = float(centred @ (peak - peak.mean()) / (centred @ centred))
    base = float(peak.mean() - slope * batch.mean())
    return MemoryFit(base, slope, float(np.max(np.abs(base + slope * batch - peak) / peak)))


def _largest(
    points: Sequence[BatchPoint], fit: MemoryFit | Missing, capacity_bytes: Number, until_memory: float
) -> tuple[Number, str]:
    """The largest batch that fits, and a clause about it."""
    limit = None if isinstance(capacity_bytes, Missing) else capacity_bytes * until_memory
    measured = [point for point in points if point.outcome == "measured"]
    exceeded = [point.batch_size for point in points if point.outcome == "out of memory"]
    too_large = exceeded + [p.batch_size for p in measured if limit and (_peak(p) or 0) > limit]
    ceiling = min(too_large, default=math.inf)
    # That a size ran proves something where memory has a limit, or another size ran out of it.
    proven = max(
        (p.batch_size for p in measured if p.batch_size < ceiling and (exceeded or (limit and _peak(p)))),
        default=0,
    )
    reached = max((point.batch_size for point in measured), default=0)
    fitted = 0.0
    if limit and isinstance(fit, MemoryFit) and fit.per_sample_bytes > 0:
        fitted = min((limit - fit.base_bytes) // fit.per_sample_bytes, ceiling - 1)
        if fit.worst_ratio > WORST_FIT_RATIO:
            fitted = min(fitted, reached)
    largest = int(max(fitted, proven))
    if largest < 1:
        reason = _why_none(measured, capacity_bytes, fit, bool(too_large))
        return Missing(reason), f"the largest batch that fits is not known: {reason}"
    room = ""
    if limit and not isinstance(capacity_bytes, Missing):
        room = f" for {100 * until_memory:.0f} % of {_size_words(capacity_bytes)}"
    ran = [point.batch_size for point in measured]
    if largest in ran:
        more = largest == reached and ceiling == math.inf and fitted <= largest
        basis = "as measured" + (": whether a larger one fits is not known" if more else "")
    elif min(ran) < largest < max(ran):
        basis = "by the fit of memory, between sizes that ran"
    elif largest > max(ran):
        basis = f"by the fit of memory, extrapolated beyond the {max(ran):,} that ran"
    else:
        basis = f"by the fit of memory, extrapolated below the {min(ran):,} that ran"
    oom = f" ({min(exceeded):,} ran out of memory)" if exceeded else ""
    return largest, f"the largest batch{room} is {largest:,}, {basis}{oom}"


def _why_none(
    measured: Sequence[BatchPoint], capacity_bytes: Number, fit: MemoryFit | Missing, too_large: bool
) -> str:
    """Why no batch is known to fit."""
    if not measured:
        return "no batch size could be measured"
    if isinstance(capacity_bytes, Missing):
        return f"the memory of the device is not known ({capacity_bytes.reason})"
    if too_large or isinstance(fit, MemoryFit):
        return "not even the smallest batch leaves that much memory free"
    return fit.reason


def _plateau(points: Sequence[BatchPoint]) -> tuple[Number, str]:
    """The batch from which on throughput does not grow any more, and a clause about it."""
    rates = {point.batch_size: rate for point in points if (rate := _rate(point)) is not None}
    if len(rates) < 2:
        reason = "it takes throughput measured at two batch sizes"
        return Missing(reason), f"Where throughput stops growing is not known: {reason}"
    sizes = list(rates)
    gains = [_gain_per_doubling(rates, before, after) for before, after in pairwise(sizes)]
    # After the last step that certainly pays, the first one that certainly does not.
    growing = max((i for i, gain in enumerate(gains) if gain.low > LEAST_GAIN_RATIO), default=-1)
    flat = next((i for i in range(growing + 1, len(gains)) if gains[i].high < LEAST_GAIN_RATIO), None)
    if flat is not None:
        latest = "" if flat == growing + 1 else " at the latest"
        told = f"{_step_words(sizes, flat)} a doubling brings {_gain_words(gains[flat])}"
        return sizes[flat], f"Throughput stops growing at a batch of {sizes[flat]:,}{latest}: {told}"
    if growing == len(gains) - 1:
        told = f"{_step_words(sizes, growing)} a doubling brings {_gain_words(gains[growing])}"
        return (
            Missing("throughput still grows at the largest batch that ran"),
            f"Throughput still grows at a batch of {sizes[-1]:,}: {told}",
        )
    doubtful = growing + 1
    told = (
        f"{_step_words(sizes, doubtful)} a doubling brings {_gain_words(gains[doubtful])},"
        f" too uncertain against {100 * LEAST_GAIN_RATIO:.0f} %"
    )
    return Missing(f"unclear: {told}"), f"Where throughput stops growing is unclear: {told}"


def _gain_per_doubling(rates: dict[int, Estimate], before: int, after: int) -> Estimate:
    """What a doubling brings between two sizes, with its interval: errors add up as independent ones do."""
    one, other, doublings = rates[before], rates[after], math.log2(after / before)
    change = _log(other.value) - _log(one.value)
    down = math.hypot(_log(other.value) - _log(other.low), _log(one.high) - _log(one.value))
    up = math.hypot(_log(other.high) - _log(other.value), _log(one.value) - _log(one.low))
    value, low, high = (_grown(log / doublings) for log in (change, change - down, change + up))
    return Estimate(value, low, high)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _grown(log: float) -> float:
    return math.expm1(min(log, math.log(10.0)))  # an interval that reaches 0 has no upper end


def _step_words(sizes: Sequence[int], step: int) -> str:
    return f"from {sizes[step]:,} to {sizes[step + 1]:,}"


def _gain_words(gain: Estimate) -> str:
    value, low, high = (f"{round(100 * part)} %" for part in (gain.value, gain.low, gain.high))
    return f"{value} ({low} to {high})"


def _rate(point: BatchPoint) -> Estimate | None:
    rate = point.samples_per_s
    return rate if point.outcome == "measured" and isinstance(rate, Estimate) and rate.value > 0 else None


def _peak(point: BatchPoint) -> float | None:
    peak = point.peak_bytes
    return None if isinstance(peak, Missing) or peak <= 0 else float(peak)


def _size_words(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
