"""The trials of a sweep over GPU-hours as a still picture."""

from __future__ import annotations

import math
from html import escape

from jupyter_gpuprof.records.sweep import SweepReport
from jupyter_gpuprof.views.sweep_words import FIGURE_TITLE, bars

# In the units of the picture, which are pixels where there is room.
_WIDTH, _LEFT, _TOP, _AXIS, _TALLEST = 812, 48, 26, 40, 14.0
_MOST_HEIGHT = 420.0


def sweep_svg(report: SweepReport) -> str:
    """One bar for each trial, its losing part pale, a cross where it was stopped; "" without trials."""
    columns = bars(report)
    total = float(max(columns["to"], default=0.0))  # type: ignore[arg-type,type-var]
    if not total:
        return ""
    count = len(columns["to"])
    tall = min(_TALLEST, _MOST_HEIGHT / count)
    room = _WIDTH - _LEFT - 24
    bottom = _TOP + tall * count

    def x(gpu_hours: object) -> float:
        return _LEFT + room * float(gpu_hours) / total  # type: ignore[arg-type]

    shapes = [f"<text x='0' y='14' class='jp-gpuprof-name'>{escape(FIGURE_TITLE)}</text>"]
    for tick in _ticks(total):
        shapes.append(f"<path class='jp-gpuprof-grid' d='M{x(tick):.5g} {_TOP}V{bottom + 4:.5g}'/>")
        shapes.append(f"<text x='{x(tick):.5g}' y='{bottom + 18:.5g}' text-anchor='middle'>{tick:g}</text>")
    shapes.append(f"<text x='0' y='{bottom + 34:.5g}'>GPU-hours of the study, trials as they began</text>")
    for i in range(count):
        y = _TOP + i * tall
        begin, losing, end = (x(columns[name][i]) for name in ("from", "losing", "to"))
        title = f"<title>{escape(str(columns['told'][i]))}</title>"
        shapes.append(
            f"<g class='jp-gpuprof-rate'>{title}"
            f"<rect x='{begin:.6g}' y='{y + 1:.5g}' width='{max(losing - begin, 0.5):.5g}' "
            f"height='{max(tall - 2, 1):.5g}' fill='currentColor'/>"
            f"<rect x='{losing:.6g}' y='{y + 1:.5g}' width='{end - losing:.5g}' "
            f"height='{max(tall - 2, 1):.5g}' fill='currentColor' opacity='.3'/></g>"
        )
        if columns["mark"][i] == "stopped":
            size = min(tall / 2 - 1, 4)
            middle = y + tall / 2
            shapes.append(
                f"<path d='M{end + 2:.5g} {middle - size:.5g}l{2 * size:.5g} {2 * size:.5g}m0 -{2 * size:.5g}"
                f"l-{2 * size:.5g} {2 * size:.5g}' stroke='currentColor' fill='none' stroke-width='1.5'>"
                f"{title}</path>"
            )
    told = "; ".join(str(words) for words in columns["told"][:50])
    return (
        f"<svg class='jp-gpuprof-chart' viewBox='0 0 {_WIDTH} {bottom + _AXIS:.5g}' role='img' "
        f"aria-label='{escape(FIGURE_TITLE)}. {escape(told)}'>{''.join(shapes)}</svg>"
    )


def _ticks(total: float) -> list[float]:
    """Two to seven round figures from 0 on."""
    size = 10.0 ** math.floor(math.log10(total))
    step = next(size * n for n in (1, 0.5, 0.2, 0.1) if total / (size * n) >= 2)
    return [round(i * step, 12) for i in range(int(total / step + 1e-9) + 1)]
