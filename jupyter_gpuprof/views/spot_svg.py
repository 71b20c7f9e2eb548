"""The cost over the interval between checkpoints as a still picture, with the flat region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.spot import CurvePoint, SpotDecision
from jupyter_gpuprof.records.spotwords import percent, span
from jupyter_gpuprof.views.spot_words import CURVE_TITLE, axis_ticks, curve_marks, drawn_points, mark_words

# In the units of the picture, which are pixels where there is room.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _AXIS = 812, 240, 76, 24, 30, 44
_ROOM = 6.0


class _Frame:
    """Where an interval and a wall ratio stand."""

    def __init__(self, points: Sequence[CurvePoint]) -> None:
        self.first, self.last = points[0].interval_s, points[-1].interval_s
        self.least = min(point.wall_ratio for point in points)
        self.most = max(point.wall_ratio for point in points)

    def x(self, interval_s: float) -> float:
        share = math.log(max(interval_s, 1e-9) / self.first) / math.log(self.last / self.first)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)

    def y(self, wall_ratio: float) -> float:
        share = (wall_ratio - 1) / max(self.most - 1, 1e-9)
        return _TOP + (_HEIGHT - _ROOM) * (1 - min(max(share, 0.0), 1.0))


def spot_svg(decision: SpotDecision) -> str:
    """The picture as SVG without scripts; empty where nothing can be drawn."""
    points = drawn_points(decision)
    if not points:
        return ""
    frame, plan = _Frame(points), decision.plans[0]
    bottom = frame.y(1.0)
    left, right = frame.x(plan.flat_low_s), frame.x(plan.flat_high_s)
    words = f"as good as the best: {span(plan.flat_low_s)} to {span(plan.flat_high_s)}"
    shapes = [
        f"<text x='0' y='14' class='jp-gpuprof-name'>{escape(CURVE_TITLE)}</text>",
        f"<rect x='{left:.5g}' y='{_TOP}' width='{right - left:.5g}' height='{bottom - _TOP:.5g}' "
        f"fill='currentColor' opacity='.08'><title>{escape(words)}</title></rect>",
        f"<text x='{(left + right) / 2:.5g}' y='{_TOP + 14}' text-anchor='middle'>within 1 %</text>",
        *_grid(frame, bottom),
        *_lines(frame, points),
        *_marks(frame, decision),
    ]
    told = "; ".join(mark_words(decision, *mark) for mark in curve_marks(decision))
    return (
        f"<svg class='jp-gpuprof-chart' viewBox='0 0 {_WIDTH} {_TOP + _HEIGHT + _AXIS:g}' role='img' "
        f"aria-label='{escape(CURVE_TITLE)}. {escape(words)}; {escape(told)}'>{''.join(shapes)}</svg>"
    )


def _grid(frame: _Frame, bottom: float) -> list[str]:
    """Lines at round shares of time lost, and the intervals under the picture."""
    shapes = [f"<path class='jp-gpuprof-grid' d='M{_LEFT} {bottom:.5g}H{_WIDTH - _RIGHT}'/>"]
    size = 10.0 ** math.floor(math.log10(max(frame.most - 1, 1e-6) / 2))
    size = next(size * n for n in (5, 2, 1) if (frame.most - 1) / (size * n) >= 2)
    for i in range(1, int((frame.most - 1) / size) + 1):
        y = frame.y(1 + i * size)
        shapes.append(f"<path class='jp-gpuprof-grid' d='M{_LEFT} {y:.5g}H{_WIDTH - _RIGHT}'/>")
        shapes.append(f"<text x='{_LEFT - 8}' y='{y + 4:.5g}' text-anchor='end'>+{percent(i * size)}</text>")
    for tick in axis_ticks(frame.first, frame.last):
        x = frame.x(tick)
        shapes.append(f"<path class='jp-gpuprof-grid' d='M{x:.5g} {bottom:.5g}v4'/>")
        shapes.append(f"<text x='{x:.5g}' y='{bottom + 18:.5g}' text-anchor='middle'>{span(tick)}</text>")
    shapes.append(f"<text x='0' y='{bottom + 18:.5g}'>interval</text>")
    return shapes


def _lines(frame: _Frame, points: Sequence[CurvePoint]) -> list[str]:
    """The curve, and how far the doubt about the interruptions moves it."""

    def path(pairs: Sequence[tuple[float, float]]) -> str:
        return "L".join(f"{frame.x(x):.5g} {frame.y(y):.5g}" for x, y in pairs)

    band = [(p.interval_s, p.low) for p in points] + [(p.interval_s, p.high) for p in reversed(points)]
    line = [(p.interval_s, p.wall_ratio) for p in points]
    return [
        f"<g class='jp-gpuprof-rate'><path d='M{path(band)}Z' fill='currentColor' opacity='.14'>"
        "<title>what the interruptions seen so far allow</title></path>"
        f"<path d='M{path(line)}' fill='none' stroke='currentColor' stroke-width='1.5'/></g>"
    ]


def _marks(frame: _Frame, decision: SpotDecision) -> list[str]:
    """The best interval and Young's as strokes, the one to use as a circle, today's as a diamond."""
    shapes = []
    for mark in curve_marks(decision):
        name, interval_s, ratio = mark
        x, y = frame.x(interval_s), frame.y(ratio)
        title = f"<title>{escape(mark_words(decision, *mark))}</title>"
        if name == "use":
            shapes.append(f"<circle cx='{x:.5g}' cy='{y:.5g}' r='5' fill='currentColor'>{title}</circle>")
        elif name == "today":
            shapes.append(
                f"<path d='M{x:.5g} {y - 7:.5g}l7 7l-7 7l-7 -7z' fill='none' stroke='currentColor' "
                f"stroke-width='1.5'>{title}</path>"
            )
        else:
            dashes = "" if name == "exact" else " stroke-dasharray='2 3'"
            shapes.append(
                f"<path d='M{x:.5g} {frame.y(1):.5g}V{y:.5g}' fill='none' stroke='currentColor'{dashes}>"
                f"{title}</path>"
            )
        if name in ("use", "today"):
            shapes.append(f"<text x='{x:.5g}' y='{y - 12:.5g}' text-anchor='middle'>{name}</text>")
    return shapes
