"""Still pictures of a fleet: use over the week, waits as survival curves, and how busy the hours were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.fleetreport import SurvivalCurve
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.views.fleet_words import DAYS, hours
from jupyter_gpuprof.views.format import clean
from jupyter_gpuprof.views.style import part_class

_WIDTH, _LEFT, _TOP, _AXIS = 812, 56, 30, 34
#: Parts of a step whose colours tell curves apart.
CURVE_PARTS = (
    "device_compute",
    "exposed_input",
    "exposed_communication",
    "host_gap",
    "copies",
    "between.validation",
    "between.checkpoint",
)
#: Round waits in seconds.
TICKS = (1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)


def part_colour(key: str) -> str:
    """The colour of a part as a style's value."""
    return f"var(--gp-{key.rpartition('.')[2].replace('_', '-')})"


def week_svg(week: Sequence[Sequence[float]]) -> str:
    """Mean GPUs in use by weekday and hour, darker for more."""
    most = max((value for row in week for value in row), default=0.0) or 1.0
    wide, tall = (_WIDTH - _LEFT) / 24, 22.0
    shapes = [_title(f"GPUs in use by weekday and hour (UTC), at most {most:,.1f}")]
    for day, row in enumerate(week):
        y = _TOP + day * tall
        shapes.append(f"<text x='{_LEFT - 8}' y='{y + 15:g}' text-anchor='end'>{DAYS[day]}</text>")
        shapes += [
            f"<rect class='{part_class('device_compute')}' x='{_LEFT + hour * wide:.5g}' y='{y:g}'"
            f" width='{wide - 1:.5g}' height='{tall - 1:g}' opacity='{0.06 + 0.94 * value / most:.3f}'>"
            f"<title>{DAYS[day]} {hour}:00, {value:,.1f} GPUs</title></rect>"
            for hour, value in enumerate(row)
        ]
    bottom = _TOP + 7 * tall
    shapes += [
        f"<text x='{_LEFT + hour * wide:.5g}' y='{bottom + 16:g}'>{hour}:00</text>"
        for hour in range(0, 24, 6)
    ]
    return _picture(shapes, bottom + _AXIS, "Mean GPUs in use by weekday and hour")


def waits_svg(curves: Sequence[SurvivalCurve]) -> str:
    """The share of jobs that still wait after a time; empty without curves."""
    drawn = [curve for curve in curves if curve.time_s]
    if not drawn:
        return ""
    longest = max(2.0, *(curve.time_s[-1] for curve in drawn))
    tall, bottom = 200.0, _TOP + 200.0

    def x(wait_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 4) * math.log1p(wait_s) / math.log1p(longest)

    shapes = [_title("Jobs that still wait, by the time since they were submitted")]
    for share in (0.0, 0.1, 0.5, 1.0):
        y = bottom - tall * share
        shapes.append(
            f"<path class='jp-gpuprof-grid' d='M{_LEFT} {y:g}H{_WIDTH}'/>"
            f"<text x='{_LEFT - 8}' y='{y + 4:g}' text-anchor='end'>{100 * share:.0f} %</text>"
        )
    shapes += [
        f"<text x='{x(tick):.5g}' y='{bottom + 16:g}' text-anchor='middle'>{escape(span(tick))}</text>"
        for tick in TICKS
        if x(tick) < _WIDTH - 40
    ]
    for curve, part in zip(drawn, CURVE_PARTS, strict=False):
        path = f"M{_LEFT} {_TOP}"
        for wait_s, share in zip(curve.time_s, curve.waiting_ratio, strict=True):
            path += f"H{x(wait_s):.5g}V{bottom - tall * share:.5g}"
        shapes.append(
            f"<path d='{path}' style='fill:none;stroke:{part_colour(part)};stroke-width:1.5'>"
            f"<title>{escape(clean(curve.key))}</title></path>"
        )
    return _picture(shapes, bottom + _AXIS, "Share of jobs that still wait, by time")


def busy_svg(histogram: Sequence[float]) -> str:
    """GPU-hours by how busy they were."""
    most, tall = max(histogram) or 1.0, 140.0
    wide, bottom = (_WIDTH - _LEFT) / len(histogram), _TOP + tall
    shapes = [_title("GPU-hours by the share in which the device worked")]
    for i, value in enumerate(histogram):
        x, height = _LEFT + i * wide, tall * value / most
        shapes.append(
            f"<rect class='{part_class('device_compute')}' x='{x:.5g}' y='{bottom - height:.5g}'"
            f" width='{wide - 4:.5g}' height='{height:.5g}'><title>{10 * i} to {10 * i + 10} %:"
            f" {hours(value)} GPU-hours</title></rect>"
            f"<text x='{x:.5g}' y='{bottom + 16:g}'>{10 * i} %</text>"
        )
    return _picture(shapes, bottom + _AXIS, "GPU-hours by busy share")


def _title(words: str) -> str:
    return f"<text x='0' y='14' class='jp-gpuprof-name'>{escape(words)}</text>"


def _picture(shapes: Sequence[str], height: float, words: str) -> str:
    return (
        f"<svg class='jp-gpuprof-chart' viewBox='0 0 {_WIDTH} {height:g}' role='img'"
        f" aria-label='{escape(words)}'>{''.join(shapes)}</svg>"
    )
