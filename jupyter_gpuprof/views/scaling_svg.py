"""A curve as a still picture for the report: both axes logarithmic, so that the ideal is a straight line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.scaling import FitCurve, Scaling, ScalingProgress
from jupyter_gpuprof.views.format import shorten
from jupyter_gpuprof.views.scaling_series import Series, curve_series
from jupyter_gpuprof.views.scaling_words import outcome_words, picture_title, ranks_noun
from jupyter_gpuprof.views.style import ROOT_CLASS

# In the units of the picture, which are pixels where there is room.
_WIDTH, _HEIGHT = 812, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 96, 40, 52
_NEAREST_TICKS = 26

#: The looks; the variables are those of the report's style sheet.
CURVE_STYLE = " ".join(
    f".{ROOT_CLASS}.{ROOT_CLASS} .jp-gpuprof-curve {rule}"
    for rule in (
        "{ display: block; width: 100%; min-width: 480px; height: auto; margin: 12px 0 0; }",
        "text { fill: var(--gp-soft); font-size: 12px; }",
        ".jp-gpuprof-name { fill: var(--gp-ink); font-size: 13px; font-weight: 600; }",
        ".jp-gpuprof-grid { stroke: var(--gp-line); fill: none; }",
        ".jp-gpuprof-ideal { stroke: var(--gp-soft); fill: none; stroke-dasharray: 1 4; stroke-width: 1.5;"
        " stroke-linecap: round; }",
        ".jp-gpuprof-fit { stroke: var(--gp-device-compute); fill: none; stroke-width: 1.5; }",
        ".jp-gpuprof-beyond { stroke-dasharray: 6 5; }",
        ".jp-gpuprof-band { fill: var(--gp-device-compute); opacity: .14; }",
        ".jp-gpuprof-whisker { stroke: var(--gp-ink); fill: none; stroke-width: 1.5; }",
        ".jp-gpuprof-dot { fill: var(--gp-ink); }",
        ".jp-gpuprof-running { stroke: var(--gp-ink); fill: none; stroke-width: 1.5;"
        " stroke-dasharray: 3 2; }",
    )
)

Scale = Callable[[float], float]


def curve_svg(scaling: Scaling, progress: ScalingProgress | None = None) -> str:
    """The curve as SVG without scripts; nothing where nothing was measured yet."""
    series = curve_series(scaling, progress)
    counts = _numbers(series, ("count",))
    heights = [y for y in _numbers(series, ("throughput", "low", "high"), leave=("band",)) if y > 0]
    if not counts:
        return ""
    x = _scale(counts, _LEFT, _WIDTH - _RIGHT, 1.12)
    y = _scale(heights, _HEIGHT - _BOTTOM, _TOP, 1.25)
    shapes = [
        f"<text x='0' y='14' class='jp-gpuprof-name'>{escape(picture_title(scaling))}</text>",
        *_axes(scaling, x, y, counts, heights),
        *_lines(scaling, series, x, y),
        *_marks(scaling, series, x, y),
    ]
    told = "; ".join(str(words) for name in ("points", "running", "absent") for words in series[name]["told"])
    return (
        f"<svg class='jp-gpuprof-curve' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='{escape(picture_title(scaling))}. {escape(told)}'>{''.join(shapes)}</svg>"
    )


def _axes(scaling: Scaling, x: Scale, y: Scale, counts: list[float], heights: list[float]) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    shapes = []
    for value in _spaced(_rounds(min(heights), max(heights)), y):
        shapes.append(
            f"<path class='jp-gpuprof-grid' d='M{_LEFT} {y(value):.5g}H{right}'/>"
            f"<text x='{_LEFT - 8}' y='{y(value) + 4:.5g}' text-anchor='end'>{value:,.10g}</text>"
        )
    powers = [2.0**i for i in range(21) if min(counts) <= 2**i <= max(counts)]
    measured = [float(p.count) for p in scaling.points if min(counts) <= p.count <= max(counts)]
    for count in _spaced([*measured, *powers], x):
        shapes.append(
            f"<path class='jp-gpuprof-grid' d='M{x(count):.5g} {bottom}v5'/>"
            f"<text x='{x(count):.5g}' y='{bottom + 19}' text-anchor='middle'>{count:,.0f}</text>"
        )
    middle = (_LEFT + right) / 2
    return [
        f"<path class='jp-gpuprof-grid' d='M{_LEFT} {bottom}H{right}'/>",
        *shapes,
        f"<text x='{middle:g}' y='{_HEIGHT - 8}' text-anchor='middle'>{escape(ranks_noun(scaling))}</text>",
        f"<text x='0' y='32'>samples/s of all {escape(ranks_noun(scaling))} together</text>",
    ]


def _lines(scaling: Scaling, series: Series, x: Scale, y: Scale) -> list[str]:
    """The ideal, the law and its doubt, each named where it ends."""
    drawn, named = [], []
    band = series["band"]
    if band["count"]:
        rows = list(zip(*(map(float, band[name]) for name in ("count", "low", "high")), strict=True))
        there = [f"{x(count):.5g} {y(high):.5g}" for count, _, high in rows]
        back = [f"{x(count):.5g} {y(low):.5g}" for count, low, _ in reversed(rows)]
        drawn.append(f"<path class='jp-gpuprof-band' d='M{'L'.join(there + back)}z'/>")
    curve = scaling.fit.curve
    law = f"{curve.law}'s law" if isinstance(curve, FitCurve) and curve.law == "Amdahl" else "Gunther's law"
    for name, words, classes in (
        ("ideal", "ideal", "jp-gpuprof-ideal"),
        ("fit", "", "jp-gpuprof-fit"),
        ("beyond", law, "jp-gpuprof-fit jp-gpuprof-beyond"),
    ):
        places = [(x(float(n)), y(float(t))) for n, t in zip(*series[name].values(), strict=True)]
        if len(places) < 2:
            continue
        path = "L".join(f"{across:.5g} {down:.5g}" for across, down in places)
        drawn.append(f"<path class='{classes}' d='M{path}'/>")
        if words:
            named.append((*places[-1], words))
    named.sort(key=lambda name: name[1])
    lowest = 0.0
    for across, down, words in named:
        lowest = max(down + 4, lowest)
        drawn.append(f"<text x='{across + 8:.5g}' y='{lowest:.5g}'>{words}</text>")
        lowest += 15
    return drawn


def _marks(scaling: Scaling, series: Series, x: Scale, y: Scale) -> list[str]:
    """Points with their intervals and efficiencies, and those that are not there."""
    shapes = []
    efficiencies = {float(p.count): p.efficiency for p in scaling.points}
    for count, throughput, low, high, told in zip(*series["points"].values(), strict=True):
        across, down = x(float(count)), y(float(throughput))
        top, bottom = y(float(high)), y(float(low))
        ends = "".join(f"M{across - 5:.5g} {end:.5g}h10" for end in (top, bottom))
        whisker = f"M{across:.5g} {top:.5g}V{bottom:.5g}{ends}"
        efficiency = efficiencies.get(float(count), Missing(""))
        words = "" if isinstance(efficiency, Missing) else f"{100 * efficiency:.0f} %"
        shapes.append(
            (f"<path class='jp-gpuprof-whisker' d='{whisker}'/>" if low != high else "")
            + f"<circle class='jp-gpuprof-dot' cx='{across:.5g}' cy='{down:.5g}' r='4.5'>"
            f"<title>{escape(str(told))}</title></circle>"
            f"<text x='{across + 9:.5g}' y='{down + 16:.5g}'>{words}</text>"
        )
    for count, throughput, told in zip(*series["running"].values(), strict=True):
        across, down = x(float(count)), y(float(throughput))
        shapes.append(
            f"<circle class='jp-gpuprof-running' cx='{across:.5g}' cy='{down:.5g}' r='6'>"
            f"<title>{escape(str(told))}</title></circle>"
            f"<text x='{across + 10:.5g}' y='{down + 4:.5g}'>running</text>"
        )
    told_of = {float(p.count): outcome_words(p) for p in scaling.points}
    for count in series["absent"]["count"]:
        across, down = x(float(count)), _HEIGHT - _BOTTOM - 10
        words = shorten(told_of.get(float(count), ""), 28)
        shapes.append(
            f"<path class='jp-gpuprof-whisker' d='M{across - 4:.5g} {down - 4}l8 8m0 -8l-8 8'/>"
            f"<text x='{across:.5g}' y='{down - 10}' text-anchor='middle'>{escape(words)}</text>"
        )
    return shapes


def _scale(values: list[float], at_least: float, at_most: float, room: float) -> Scale:
    """Logarithms of the values onto a stretch of the picture, with some room at both ends.

    What lies below, as the lower end of an interval may, stands at the edge.
    """
    least, most = min(values) / room, max(values) * room
    low, high = math.log(least), math.log(most)
    return lambda value: at_least + (at_most - at_least) * (math.log(max(value, least)) - low) / (high - low)


def _numbers(series: Series, columns: Iterable[str], leave: Iterable[str] = ()) -> list[float]:
    return [
        float(value)
        for name, kept in series.items()
        if name not in leave
        for column in columns
        for value in kept.get(column, ())
    ]


def _rounds(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two numbers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**d for d in decades for m in (1, 2, 5) if low / 1.25 <= m * 10.0**d <= high * 1.25]


def _spaced(values: Iterable[float], scale: Scale) -> list[float]:
    """Those of the values, the first ones first, that stand far enough from each other."""
    kept: list[float] = []
    for value in values:
        if all(abs(scale(value) - scale(other)) >= _NEAREST_TICKS for other in kept):
            kept.append(value)
    return kept
