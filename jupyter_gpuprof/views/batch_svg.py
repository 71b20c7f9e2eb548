"""Throughput and memory over the batch size as a still picture.

Two panels on one axis of batch sizes, a doubling always as wide. What ran out of memory is a cross above
the line of the device's memory, and the words under the axis say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint
from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.views.batch_words import (
    axis_top,
    fit_curve,
    fitted_points,
    lost_points,
    point_words,
    rate_words,
    rated_points,
)
from jupyter_gpuprof.views.format import byte_size, known, number, percent

RATE_TITLE = "Samples per second, with 95 % interval"
PEAK_TITLE = "Peak memory, with its fit"
EXTRAPOLATED = " (dashed: extrapolated)"

# In the units of the picture, which are pixels where there is room.
_WIDTH, _LEFT, _RIGHT = 812, 76, 24
_HEIGHT, _TITLE, _BETWEEN, _AXIS = 150, 26, 18, 42
_LEAST_TICK, _LEAST_WORDS = 36, 84
#: How far above the line of the device's memory stands what ran out of it.
_ABOVE = 1.12


@dataclass(frozen=True)
class _Panel:
    """A panel whose values go from 0 at `bottom` to `most` at `top`."""

    top: float
    most: float

    @property
    def bottom(self) -> float:
        return self.top + _HEIGHT

    def y(self, value: float) -> float:
        return self.bottom - _HEIGHT * min(max(value / self.most, 0.0), 1.0)


def batch_svg(curve: BatchCurve) -> str:
    """The picture as SVG without scripts; empty where nothing can be drawn."""
    rates, peaks, lost = rated_points(curve), fitted_points(curve), lost_points(curve)
    if not rates and not peaks:
        return ""
    inner, outer = fit_curve(curve)
    sizes = sorted({p.batch_size for p in (*(p for p, _ in rates), *peaks, *lost)})
    place = _placing(sizes[0], max(sizes[-1], outer[-1][0] if outer else 0))
    shapes: list[str] = []
    top = 0.0
    if rates:
        ends = (max(known(rate.high) or 0.0, rate.value) for _, rate in rates)
        panel = _Panel(top + _TITLE, axis_top(ends, 1.08))
        shapes += _frame(panel, RATE_TITLE, rate_words)
        shapes += _rates(panel, rates, place)
        shapes += _plateau(panel, curve, place)
        top = panel.bottom + _BETWEEN
    capacity = known(curve.device.memory_bytes)
    if peaks:
        tallest = max(*(known(p.peak_bytes) or 0 for p in peaks), *(y for _, y in outer), capacity or 0, 1)
        panel = _Panel(top + _TITLE, axis_top([tallest], 1.2))
        shapes += _frame(panel, PEAK_TITLE + (EXTRAPOLATED if outer else ""), _tick_words)
        shapes += _limits(panel, curve, place, lost)
        shapes += _fit(panel, inner, place, "") + _fit(panel, outer, place, " stroke-dasharray='4 4'")
        shapes += _peaks(panel, peaks, place) + _largest(panel, curve, inner + outer, place)
        shapes += [
            _cross(place(p.batch_size), panel.y((capacity or tallest) * _ABOVE), p)
            for p in lost
            if p.outcome == "out of memory"
        ]
        top = panel.bottom + _BETWEEN
    top -= _BETWEEN
    shapes += _axis(top, curve, sizes, place)
    told = "; ".join(point_words(point) for point in curve.points)
    return (
        f"<svg class='jp-gpuprof-chart' viewBox='0 0 {_WIDTH} {top + _AXIS:g}' role='img' "
        f"aria-label='Throughput and memory over the batch size. {escape(told)}'>{''.join(shapes)}</svg>"
    )


def _placing(first: float, last: float) -> Callable[[float], float]:
    """Where a batch size stands; a single one in the middle."""
    octaves = math.log2(last / first)
    left = _LEFT + 16
    room = _WIDTH - _RIGHT - 64 - left  # words stand to the right of the last mark

    def place(batch: float) -> float:
        share = math.log2(batch / first) / octaves if octaves > 0 else 0.5
        return left + room * share

    return place


def _frame(panel: _Panel, title: str, words: Callable[[float], str]) -> list[str]:
    """The title of a panel and its lines at round values."""
    shapes = [f"<text x='0' y='{panel.top - 10:g}' class='jp-gpuprof-name'>{escape(title)}</text>"]
    for value in _round_values(panel.most, binary=words is _tick_words):
        y = panel.y(value)
        shapes.append(f"<path class='jp-gpuprof-grid' d='M{_LEFT} {y:.5g}H{_WIDTH - _RIGHT}'/>")
        label = escape(words(value)) if value else "0"
        shapes.append(f"<text x='{_LEFT - 8}' y='{y + 4:.5g}' text-anchor='end'>{label}</text>")
    return shapes


def _round_values(most: float, *, binary: bool) -> list[float]:
    """Two to five steps from 0 on at round numbers, those of memory round in binary units."""
    unit = 1024.0 ** max(int(math.log2(most) // 10), 0) if binary and most >= 1 else 1.0
    size = 10.0 ** math.floor(math.log10(most / unit / 2)) * unit
    size = next(size * n for n in (5, 2, 1) if most / (size * n) >= 2)
    return [i * size for i in range(int(most / size) + 1)]


def _rates(
    panel: _Panel, rates: Sequence[tuple[BatchPoint, Estimate]], place: Callable[[float], float]
) -> list[str]:
    """Throughput: circles on a line, each with its interval."""
    line = "L".join(f"{place(p.batch_size):.5g} {panel.y(rate.value):.5g}" for p, rate in rates)
    shapes = [f"<path d='M{line}' fill='none' stroke='currentColor' stroke-width='1.5'/>"]
    for point, rate in rates:
        x, low, high = place(point.batch_size), panel.y(known(rate.low) or 0), panel.y(known(rate.high) or 0)
        shapes.append(
            f"<g><title>{escape(point_words(point))}</title>"
            f"<path d='M{x - 5:.5g} {low:.5g}h10M{x:.5g} {low:.5g}V{high:.5g}M{x - 5:.5g} {high:.5g}h10' "
            "fill='none' stroke='currentColor' stroke-width='1.5'/>"
            f"<circle cx='{x:.5g}' cy='{panel.y(rate.value):.5g}' r='4' fill='currentColor'/></g>"
        )
    return ["<g class='jp-gpuprof-rate'>", *shapes, "</g>"]


def _plateau(panel: _Panel, curve: BatchCurve, place: Callable[[float], float]) -> list[str]:
    """Where throughput stops growing."""
    plateau = known(curve.plateau_batch)
    if plateau is None or plateau not in [point.batch_size for point in curve.points]:
        return []
    x = place(plateau)
    side, shift = ("end", -7) if x > 0.6 * _WIDTH else ("start", 7)
    return [
        f"<path d='M{x:.5g} {panel.top:g}V{panel.bottom:g}' fill='none' stroke='currentColor' "
        "stroke-dasharray='2 3'/>"
        f"<text x='{x + shift:.5g}' y='{panel.bottom - 8:g}' text-anchor='{side}'>stops growing here</text>"
    ]


def _limits(
    panel: _Panel, curve: BatchCurve, place: Callable[[float], float], lost: Iterable[BatchPoint]
) -> list[str]:
    """The memory of the device, the share of it that may be filled, and the batch that fills it."""
    capacity = known(curve.device.memory_bytes)
    if not capacity:
        return []
    crowded = min((place(point.batch_size) for point in lost), default=_WIDTH) < _WIDTH / 2
    x, side = (_WIDTH - _RIGHT, "end") if crowded else (_LEFT + 4, "start")
    top, limit = panel.y(capacity), panel.y(curve.until_memory * capacity)
    words = f"{percent(curve.until_memory, 0)} of it"
    return [
        f"<path d='M{_LEFT} {top:.5g}H{_WIDTH - _RIGHT}' stroke='currentColor' stroke-width='1.5'/>"
        f"<text x='{x}' y='{top - 5:.5g}' text-anchor='{side}'>the device's {byte_size(capacity)}</text>"
        f"<path d='M{_LEFT} {limit:.5g}H{_WIDTH - _RIGHT}' stroke='currentColor' stroke-dasharray='2 3'/>"
        f"<text x='{x}' y='{limit + 14:.5g}' text-anchor='{side}'>{words}</text>"
    ]


def _fit(
    panel: _Panel, line: Sequence[tuple[float, float]], place: Callable[[float], float], dashes: str
) -> list[str]:
    if not line:
        return []
    path = "L".join(f"{place(batch):.5g} {panel.y(peak):.5g}" for batch, peak in line)
    words = "the fit, extrapolated" if dashes else "the fit"
    return [
        f"<path class='jp-gpuprof-peak' d='M{path}' fill='none' stroke='currentColor' stroke-width='1.5'"
        f"{dashes}><title>{words}</title></path>"
    ]


def _largest(
    panel: _Panel,
    curve: BatchCurve,
    line: Sequence[tuple[float, float]],
    place: Callable[[float], float],
) -> list[str]:
    """The largest batch that fits, where the fit is drawn that far: a diamond on it."""
    largest = known(curve.largest_batch)
    if largest is None or not line or not line[0][0] <= largest <= line[-1][0]:
        return []
    x, y = place(largest), panel.y(min(line, key=lambda at: abs(at[0] - largest))[1])
    return [
        f"<path d='M{x:.5g} {y - 6:.5g}l6 6l-6 6l-6 -6z' fill='none' stroke='currentColor' "
        "stroke-width='1.5'/>"
        f"<text x='{x + 9:.5g}' y='{y + 18:.5g}'>{number(largest)} fits</text>"
    ]


def _tick_words(size: float) -> str:
    return byte_size(size).replace(".0 ", " ")


def _peaks(panel: _Panel, peaks: Iterable[BatchPoint], place: Callable[[float], float]) -> list[str]:
    """Peaks: squares."""
    squares = (
        f"<rect x='{place(p.batch_size) - 4:.5g}' y='{panel.y(known(p.peak_bytes) or 0) - 4:.5g}' "
        f"width='8' height='8' fill='currentColor'><title>{escape(point_words(p))}</title></rect>"
        for p in peaks
    )
    return ["<g class='jp-gpuprof-peak'>", *squares, "</g>"]


def _cross(x: float, y: float, point: BatchPoint) -> str:
    return (
        f"<path d='M{x - 5:.5g} {y - 5:.5g}l10 10m0 -10l-10 10' fill='none' stroke='currentColor' "
        f"stroke-width='2'><title>{escape(point_words(point))}</title></path>"
    )


def _axis(top: float, curve: BatchCurve, sizes: Iterable[int], place: Callable[[float], float]) -> list[str]:
    """The batch sizes under the panels, and what became of those without numbers."""
    outcomes = {point.batch_size: point.outcome for point in lost_points(curve)}
    shapes = [f"<text x='0' y='{top + 18:g}'>batch size</text>"]
    last_tick = last_words = -math.inf
    for size in sizes:
        x = place(size)
        if x - last_tick >= _LEAST_TICK or size in outcomes:
            shapes.append(f"<text x='{x:.5g}' y='{top + 18:g}' text-anchor='middle'>{size:,}</text>")
            last_tick = x
        if size in outcomes and x - last_words >= _LEAST_WORDS:
            words = escape(outcomes[size])
            shapes.append(f"<text x='{x:.5g}' y='{top + 34:g}' text-anchor='middle'>{words}</text>")
            last_words = x
    return shapes
