"""Steps drawn out as a still picture for the report.

The height of a bar is the share of its time in which it worked, so that the area of a lane is its work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from jupyter_gpuprof.records.ops import OpSpan, StepTimeline
from jupyter_gpuprof.views.format import seconds
from jupyter_gpuprof.views.op_words import bar_words, lane_name, step_words
from jupyter_gpuprof.views.style import KIND_PARTS, part_class

#: How to read the picture.
READ_AS = (
    "A low bar is a run of short ops with gaps between them:"
    " its height is the share of the time in which one ran."
)

# In the units of the picture, which are pixels where there is room.
_WIDTH, _LEFT, _RIGHT = 812, 104, 4
_LANE, _BAR, _TITLE, _AXIS, _GAP = 20, 14, 24, 28, 10
_PLOT = _WIDTH - _LEFT - _RIGHT
#: Bars with a title of their own, the longest ones; the others are drawn as one shape per lane.
_MOST_TITLED = 700
_NARROWEST = 0.6
#: The typical step has a scale of its own where it would be a sliver on that of the worst.
_OWN_SCALE = 8
_UNITS = ((10.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))


def timeline_svg(timelines: Sequence[StepTimeline]) -> str:
    """Steps under each other on one scale, a row per lane, as SVG without scripts.

    Its colours are those of the report's style sheet.
    """
    scales = _scales(timelines)
    shortest_titled_s = _shortest_titled(timelines)
    shapes: list[str] = []
    top = 0.0
    several = len({timeline.rank for timeline in timelines}) > 1
    for _, of_rank in groupby(timelines, key=lambda timeline: timeline.rank):
        steps = list(of_rank)
        for i, timeline in enumerate(steps):
            title = step_words(timeline, len(steps) == 1, several)
            shapes.append(f"<text x='0' y='{top + 16:g}' class='jp-gpuprof-name'>{escape(title)}</text>")
            top += _TITLE
            scale_s = scales[timeline.which]
            with_axis = i == len(steps) - 1 or scales[steps[i + 1].which] != scale_s
            shapes += _lanes(timeline, top, scale_s, shortest_titled_s, with_axis)
            top += _LANE * len(timeline.lanes) + (_AXIS if with_axis else _GAP)
    told = "; ".join(
        f"{step_words(timeline, False, several)}: "
        + ", ".join(f"{lane_name(lane.kind)} {seconds(_busy_s(lane.spans))}" for lane in timeline.lanes)
        for timeline in timelines
    )
    return (
        f"<svg class='jp-gpuprof-timeline' viewBox='0 0 {_WIDTH} {top:g}' role='img' "
        f"aria-label='Timeline of steps. {escape(told)}'>{''.join(shapes)}</svg>"
    )


def _scales(timelines: Iterable[StepTimeline]) -> dict[str, float]:
    """How many seconds are as wide as the picture, for each of "typical", "worst" and "window"."""
    longest: dict[str, float] = {}
    for timeline in timelines:
        longest[timeline.which] = max(longest.get(timeline.which, 0.0), _positive(timeline.duration_s))
    known = [duration_s for duration_s in longest.values() if duration_s]
    if known and max(known) <= _OWN_SCALE * min(known):
        longest = dict.fromkeys(longest, max(known))
    return {which: duration_s or 1.0 for which, duration_s in longest.items()}


def _lanes(
    timeline: StepTimeline, top: float, scale_s: float, shortest_titled_s: float, with_axis: bool
) -> list[str]:
    """The rows of one step, with the time axis below."""
    bottom = top + _LANE * len(timeline.lanes)
    width = _PLOT * _positive(timeline.duration_s) / scale_s
    shapes = []
    for row, lane in enumerate(timeline.lanes):
        y = top + row * _LANE + (_LANE - _BAR) / 2
        shapes.append(
            f"<text x='{_LEFT - 10}' y='{y + 11:g}' text-anchor='end'>{escape(lane_name(lane.kind))}</text>"
            f"<rect class='jp-gpuprof-lane' x='{_LEFT}' y='{y:g}' width='{width:.5g}' height='{_BAR}'/>"
        )
    for at_s, label in _ticks(scale_s):
        x = _LEFT + _PLOT * at_s / scale_s
        shapes.append(f"<path class='jp-gpuprof-grid' d='M{x:.5g} {top:g}V{bottom + 4 * with_axis:g}'/>")
        if with_axis:
            anchor = "end" if x > _WIDTH - 20 else "middle"
            shapes.append(f"<text x='{x:.5g}' y='{bottom + 17:g}' text-anchor='{anchor}'>{label}</text>")
    for row, lane in enumerate(timeline.lanes):
        y = top + row * _LANE + (_LANE + _BAR) / 2
        part = KIND_PARTS.get(lane.kind)
        shapes.append(f"<g class='{part_class(part) if part else ''}'>")
        shapes.append(_bars(lane.spans, y, _PLOT / scale_s, shortest_titled_s))
        shapes.append("</g>")
    return shapes


def _bars(spans: Iterable[OpSpan], bottom: float, per_s: float, shortest_titled_s: float) -> str:
    """The bars of a lane; those too short to be pointed at are one shape."""
    bars, specks = [], []
    for span in spans:
        length = _positive(span.duration_s) * per_s
        x = _LEFT + _positive(span.start_s) * per_s
        if x > _WIDTH:
            continue
        width = min(max(length - 0.4 if length > 2 else length, _NARROWEST), _PLOT)
        height = max(_BAR * min(_positive(span.busy_ratio), 1.0), 1.5)
        if span.duration_s >= shortest_titled_s:
            bars.append(
                f"<rect x='{x:.5g}' y='{bottom - height:.4g}' width='{width:.4g}' height='{height:.3g}'>"
                f"<title>{escape(bar_words(span))}</title></rect>"
            )
        else:
            specks.append(f"M{x:.5g} {bottom:g}v-{height:.3g}h{width:.3g}v{height:.3g}z")
    return f"<path d='{''.join(specks)}'/>{''.join(bars)}" if specks else "".join(bars)


def _shortest_titled(timelines: Iterable[StepTimeline]) -> float:
    """How long a bar must be to have a title of its own."""
    durations = sorted(
        (span.duration_s for timeline in timelines for lane in timeline.lanes for span in lane.spans),
        reverse=True,
    )
    return durations[_MOST_TITLED - 1] if len(durations) > _MOST_TITLED else 0.0


def _ticks(scale_s: float) -> list[tuple[float, str]]:
    """Where the time axis has marks, 3 to 8 of them at round numbers, and what they say."""
    _, per_s, unit = next(row for row in _UNITS if scale_s >= row[0])
    whole = scale_s * per_s
    size = 10.0 ** math.floor(math.log10(whole / 3))
    size = next(size * n for n in (5, 2, 1) if whole / (size * n) >= 3)
    marks = [i * size for i in range(int(whole / size * (1 + 1e-9)) + 1)]
    return [(mark / per_s, f"{mark:g} {unit}" if mark else "0") for mark in marks]


def _busy_s(spans: Iterable[OpSpan]) -> float:
    return sum(span.duration_s * span.busy_ratio for span in spans)


def _positive(value: float) -> float:
    return value if 0 < value < math.inf else 0.0
