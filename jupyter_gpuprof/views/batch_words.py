"""What the report over batch sizes says, the same in text, HTML and figures."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint, MemoryFit
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.views.format import (
    NOT_AVAILABLE,
    byte_size,
    clean,
    known,
    number,
    percent,
    seconds,
    sentence,
    why,
)
from jupyter_gpuprof.views.sentences import device_words

#: The heads of the table, in the order of `point_cells`.
POINT_HEADS = ("batch", "samples/s", "95 % interval", "step", "peak memory", "outcome")

#: The fit is drawn at most to this many times the largest batch that was tried.
_FARTHEST = 4
_CURVE_POINTS = 33


def point_cells(point: BatchPoint, curve: BatchCurve) -> tuple[str, ...]:
    """One batch size in the table, under `POINT_HEADS`."""
    rate = point.samples_per_s
    ends = f"{rate_words(rate.low)} to {rate_words(rate.high)}" if isinstance(rate, Estimate) else ""
    peak, capacity = known(point.peak_bytes), known(curve.device.memory_bytes)
    share = f" ({percent(peak / capacity, 0)})" if peak is not None and capacity else ""
    return (
        number(point.batch_size),
        rate_words(rate),
        ends,
        seconds(point.step_s),
        byte_size(peak) + share,
        point.outcome,
    )


def point_words(point: BatchPoint) -> str:
    """One batch size in words, for who points at it: ``128: 2,650 samples/s, 12.1 ms, 3.4 GiB``."""
    if point.outcome != "measured":
        return f"{point.batch_size:,}: {point.outcome}"
    numbers = [
        f"{rate_words(point.samples_per_s)} samples/s",
        f"{seconds(point.step_s)} per step",
        f"{byte_size(point.peak_bytes)} at most",
    ]
    return f"{point.batch_size:,}: " + ", ".join(words for words in numbers if NOT_AVAILABLE not in words)


def rate_words(rate: Estimate | Number) -> str:
    """Samples per second, three figures or all before the point."""
    value = known(rate)
    if value is None:
        return NOT_AVAILABLE
    return f"{value:.3g}" if abs(value) < 100 else number(round(value))


def curve_facts(curve: BatchCurve) -> list[tuple[str, str]]:
    """What follows from the curve, each under its name."""
    return [
        ("Memory", memory_words(curve)),
        ("Largest batch", largest_words(curve)),
        ("Plateau", plateau_words(curve)),
        ("Device", device_words(curve.device)),
    ]


def memory_words(curve: BatchCurve) -> str:
    """``1.2 GiB + 11.0 MiB per sample, the worst size off by 2 %``."""
    fit = curve.memory
    if isinstance(fit, Missing):
        return f"no fit: {why(fit)}"
    sign = "-" if fit.per_sample_bytes < 0 else "+"
    slope = byte_size(abs(fit.per_sample_bytes))
    words = f"{byte_size(fit.base_bytes)} {sign} {slope} per sample"
    sizes = len({point.batch_size for point in fitted_points(curve)})
    if sizes == 2:
        return f"{words}, a line through two sizes"
    return f"{words}, the worst of {sizes} sizes off by {percent(fit.worst_ratio)}"


def largest_words(curve: BatchCurve) -> str:
    """The largest batch that fits, extrapolated or not."""
    largest = curve.largest_batch
    if isinstance(largest, Missing):
        return f"not known: {why(largest)}"
    words = number(largest)
    if known(curve.device.memory_bytes) is not None:
        words += f" in {percent(curve.until_memory, 0)} of {byte_size(curve.device.memory_bytes)}"
    ran = [point.batch_size for point in curve.points if point.outcome == "measured"]
    if largest in ran:
        return f"{words}, measured"
    if ran and min(ran) < largest < max(ran):
        return f"{words}, by the fit between measured sizes"
    return f"{words}, EXTRAPOLATED by the fit" + (f": at most {max(ran):,} was measured" if ran else "")


def plateau_words(curve: BatchCurve) -> str:
    """From which batch on throughput does not grow any more."""
    plateau = curve.plateau_batch
    if isinstance(plateau, Missing):
        return f"not found: {why(plateau)}"
    return f"throughput does not grow beyond {number(plateau)}"


def failure_words(curve: BatchCurve) -> list[str]:
    """What happened at each batch size that gave no numbers."""
    return [
        f"{point.batch_size:,}: {point.outcome}. {sentence(point.why)}".rstrip(". ") + "."
        for point in curve.points
        if point.outcome != "measured" and clean(point.why) not in ("", point.outcome)
    ]


def rated_points(curve: BatchCurve) -> list[tuple[BatchPoint, Estimate]]:
    """The points with a throughput that can be drawn, and it."""
    return [
        (point, point.samples_per_s)
        for point in _drawable(curve)
        if isinstance(point.samples_per_s, Estimate) and (known(point.samples_per_s) or 0) > 0
    ]


def fitted_points(curve: BatchCurve) -> list[BatchPoint]:
    """The points with a peak that can be drawn: those behind the fit."""
    return [
        point
        for point in _drawable(curve)
        if point.outcome == "measured" and (known(point.peak_bytes) or 0) > 0
    ]


def lost_points(curve: BatchCurve) -> list[BatchPoint]:
    """The points that ran out of memory or failed."""
    return [point for point in _drawable(curve) if point.outcome != "measured"]


def axis_top(values: Iterable[float], room: float) -> float:
    """Where an axis ends that begins at 0: `room` times the largest value, whatever was measured."""
    return min(max(room * max(values), 1e-9), 1e18)


def fit_curve(curve: BatchCurve) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The fit to draw, as (batch, bytes): within what was measured, and beyond it."""
    fit, sizes = curve.memory, [point.batch_size for point in fitted_points(curve)]
    if not isinstance(fit, MemoryFit) or len(set(sizes)) < 2:
        return [], []
    if known(fit.base_bytes) is None or known(fit.per_sample_bytes) is None:
        return [], []
    first, last = min(sizes), max(sizes)
    end = min(known(curve.largest_batch) or last, _FARTHEST * max(p.batch_size for p in _drawable(curve)))
    beyond = _along(fit, last, end) if end > last else []
    return _along(fit, first, last), beyond


def _along(fit: MemoryFit, first: float, last: float) -> list[tuple[float, float]]:
    """Evenly spaced in the logarithm, as the axis is."""
    steps = (i / (_CURVE_POINTS - 1) for i in range(_CURVE_POINTS))
    batches = (first * (last / first) ** step for step in steps)
    line = [(batch, fit.base_bytes + fit.per_sample_bytes * batch) for batch in batches]
    return line if all(known(peak) is not None for _, peak in line) else []


def _drawable(curve: BatchCurve) -> list[BatchPoint]:
    """The points that have a place on a logarithmic axis, smallest first."""
    return sorted((p for p in curve.points if p.batch_size > 0), key=lambda p: p.batch_size)
