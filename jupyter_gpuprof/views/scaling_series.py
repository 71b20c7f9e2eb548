"""What is drawn of a curve: columns of numbers by name, for the still picture and the Bokeh figure."""

from __future__ import annotations

import hashlib

from jupyter_gpuprof.records.scaling import FitCurve, Scaling, ScalingPoint, ScalingProgress
from jupyter_gpuprof.views.format import clean, known
from jupyter_gpuprof.views.scaling_words import outcome_words, point_cells, ranks_noun

#: Names and columns of what is drawn. `fit` ends at the largest measured count, where `beyond` begins.
COLUMNS = {
    "points": ("count", "throughput", "low", "high", "told"),
    "running": ("count", "throughput", "told"),
    "absent": ("count", "throughput", "told"),
    "ideal": ("count", "throughput"),
    "fit": ("count", "throughput"),
    "beyond": ("count", "throughput"),
    "band": ("count", "low", "high"),
}
Series = dict[str, dict[str, list[float | str]]]
_MOST_COUNT = 1e6
#: Samples per second (or speedups) beyond these are no measurement.
_LEAST, _MOST = 1e-9, 1e15


def curve_series(scaling: Scaling, progress: ScalingProgress | None = None) -> Series:
    """Everything that is drawn, each column a list; empty where there is nothing of it."""
    series: Series = {name: {column: [] for column in columns} for name, columns in COLUMNS.items()}
    drawn = [p for p in scaling.points if _positive(p.count, p.throughput, p.low, p.high)]
    for point in drawn:
        values = (point.throughput, max(known(point.low) or 0.0, 0.0), point.high)
        _add(series["points"], float(point.count), *(known(value) for value in values), _told(scaling, point))
    if not drawn:
        return series
    first = drawn[0]
    base, per_device = float(first.count), (known(first.throughput) or 0.0) / first.count
    for point in scaling.points:
        if point not in drawn and point.outcome != "measured" and _positive(point.count):
            told = f"{point.count} {ranks_noun(scaling, point.count)}: {outcome_words(point)}"
            _add(series["absent"], float(point.count), base * per_device, told)
    if progress is not None and progress.running is not None and _positive(*progress.running):
        _add(series["running"], *(float(x) for x in progress.running), f"running: {clean(progress.what)}")
    _add_fit(series, scaling.fit.curve, base * per_device)
    ends = [float(x) for name in ("points", "running", "absent", "beyond") for x in series[name]["count"]]
    for count in {base: None, max(ends): None}:
        _add(series["ideal"], count, count * per_device)
    return series


def curve_key(scaling: Scaling) -> str:
    """A name for this curve that is safe in HTML, CSS and scripts."""
    return "gp" + hashlib.sha256(scaling.scaling_id.encode("utf-8", "replace")).hexdigest()[:12]


def _add_fit(series: Series, curve: object, base_throughput: float) -> None:
    if not isinstance(curve, FitCurve):
        return
    for count, value, low, high in zip(curve.counts, curve.speedup, curve.low, curve.high, strict=False):
        if not _positive(count, value, low, high):
            continue
        if count <= curve.measured_to:
            _add(series["fit"], count, value * base_throughput)
        if count >= curve.measured_to:
            _add(series["beyond"], count, value * base_throughput)
        _add(series["band"], count, low * base_throughput, high * base_throughput)


def _told(scaling: Scaling, point: ScalingPoint) -> str:
    count, throughput, between, efficiency, *_ = point_cells(point)
    noun = ranks_noun(scaling, point.count)
    return f"{count} {noun}: {throughput} samples/s {between}, efficiency {efficiency}".replace(" ,", ",")


def _add(columns: dict[str, list[float | str]], *values: float | str | None) -> None:
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value if value is not None else 0.0)


def _positive(*values: object) -> bool:
    """Can all of them stand on a logarithmic axis? (`low` may be 0, where the interval ends below it.)"""
    first, second, low, high = map(_known, (*values, *(1.0, 0.0, _MOST)[len(values) - 1 :]))
    return 0 < first <= _MOST_COUNT and _LEAST <= second <= _MOST and low >= 0 and second <= high <= _MOST


def _known(value: object) -> float:
    found = known(value)  # type: ignore[arg-type]
    return -1.0 if found is None else found
