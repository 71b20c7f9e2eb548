"""The laws of Amdahl and Gunther, fitted to throughput over device counts.

Both are fitted to the ratio of throughputs, so that the unit does not matter:

* Amdahl (1967): ``1/S = s + (1 - s)/n`` is linear in the serial fraction s: plain least squares.
* Gunther's universal scalability law: ``n/S - 1 = a (n-1) + b n (n-1)``: non-negative least squares,
  with its peak at ``sqrt((1 - a)/b)``. Four single measurements give any peak one likes, so it is
  claimed only with repeats, where b > 0 whichever count is left out and whatever the repeats allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.scaling import AmdahlFit, FitCurve, ScalingFit, ScalingPoint, UslFit

_DRAWS = 2000
#: Non-negative least squares is solved once per draw: so many are enough for an interval.
_USL_DRAWS = 400
_Z95 = 1.959964
#: The curve is drawn to this many times the largest measured count.
_BEYOND = 2.0
#: Below this, coherency is what rounding leaves of zero.
_NOTHING = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """The counts where something was processed, in order, and what their throughput might have been.

    Args:
        counts: shape (counts,), ascending.
        throughput: samples/s, shape (counts,).
        draws: the same as the spread allows it, shape (draws, counts).
        repeats: of the count with the fewest.
        spread: is a spread known at every count?
    """

    counts: Array
    throughput: Array
    draws: Array
    repeats: int
    spread: bool

    @staticmethod
    def of(points: Sequence[ScalingPoint]) -> Measured:
        """The points that were measured; repeatable (fixed seed)."""
        usable = sorted((p for p in points if is_usable(p)), key=lambda p: p.count)
        means = np.array([_number(p.throughput) for p in usable])
        generator = np.random.default_rng(0)
        columns = [
            mean * np.exp(np.clip(_relative_doubt(p) * _noise(generator, len(p.repeats)), -20, 20))
            for p, mean in zip(usable, means, strict=True)
        ]
        draws = np.stack(columns, axis=1) if columns else np.empty((_DRAWS, 0))
        return Measured(
            np.array([float(p.count) for p in usable]),
            means,
            draws,
            min((len(p.repeats) for p in usable), default=0),
            all(len(p.repeats) > 1 or _relative_doubt(p) > 0 for p in usable),
        )

    def without(self, index: int) -> Measured:
        """The same with one count left out."""
        keep = np.arange(len(self.counts)) != index
        return Measured(
            self.counts[keep], self.throughput[keep], self.draws[:, keep], self.repeats, self.spread
        )


def is_usable(point: ScalingPoint) -> bool:
    """Was a throughput measured that is more than nothing?"""
    value = point.throughput
    return not isinstance(value, Missing) and math.isfinite(value) and value > 0


def fit_laws(measured: Measured) -> ScalingFit:
    """Amdahl's law always, Gunther's where it can be told, and the curve of the better one."""
    if len(measured.counts) < 2:
        reason = Missing("a law needs two measured counts or more")
        return ScalingFit(reason, reason, reason)
    base = measured.counts[0]
    share = _serial_share(measured)
    amdahl = AmdahlFit(
        Estimate(*(float(_serial_fraction(s, base)) for s in (share.value, share.low, share.high)))
    )
    found = _usl(measured)
    grid = np.union1d(np.geomspace(base, _BEYOND * measured.counts[-1], 33), measured.counts)
    if isinstance(found, Missing):
        curves = [_amdahl_speedup(s, grid / base) for s in (share.value, share.high, share.low)]
        return ScalingFit(amdahl, found, _curve("Amdahl", grid, curves, measured))
    usl, draws = found
    spread = np.percentile([_usl_speedup(a, b, grid) for a, b in draws], (2.5, 97.5), axis=0)
    value = _usl_speedup(usl.contention, usl.coherency, grid)
    curves = [value, np.minimum(value, spread[0]), np.maximum(value, spread[1])]
    return ScalingFit(amdahl, usl, _curve("USL", grid, curves, measured))


def interval(value: float, draws: Array) -> Estimate:
    """A value with what 95 % of its draws say."""
    low, high = np.percentile(draws, (2.5, 97.5))
    return Estimate(value, float(min(value, low)), float(max(value, high)))


def _serial_share(measured: Measured) -> Estimate:
    """The share of the time at the smallest count that more devices do not shorten.

    From the spread where it is known at each count, else from leaving out one count after the other.
    """
    value = float(_fit_amdahl(measured.counts, measured.throughput))
    if measured.spread:
        return interval(value, _fit_amdahl(measured.counts, measured.draws))
    if len(measured.counts) < 3:
        return Estimate(value, 0.0, 1.0)
    others = [measured.without(i) for i in range(1, len(measured.counts))]
    fits = [value, *(float(_fit_amdahl(other.counts, other.throughput)) for other in others)]
    return Estimate(value, min(fits), max(fits))


def _fit_amdahl(counts: Array, throughput: Array) -> Array:
    """Least squares over ``T(base)/T(n) = s + (1 - s)/m`` with ``m = n/base``; throughput: (..., counts)."""
    parallel = counts[0] / counts[1:]
    time = throughput[..., :1] / throughput[..., 1:]
    x = 1 - parallel
    share: Array = np.clip(((time - parallel) * x).sum(axis=-1) / (x * x).sum(), 0.0, 1.0)
    return share


def _serial_fraction(share: float, base: float) -> float:
    """The serial fraction of one device's time from the serial share at `base` devices."""
    return share / base / (1 - share + share / base)


def _amdahl_speedup(share: float, times: Array) -> Array:
    speedup: Array = 1 / (share + (1 - share) / times)
    return speedup


def _usl(measured: Measured) -> tuple[UslFit, list[tuple[float, float]]] | Missing:
    """Gunther's law and its coefficients for some of the draws, or why there is none."""
    if measured.counts[0] != 1:
        return Missing("a count of 1 was not measured")
    if measured.repeats < 2:
        return Missing("a peak needs repeats: single measurements give any peak")
    if len(measured.counts) < 4:
        return Missing("a peak needs four measured counts or more")
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        return Missing('scipy is not installed: pip install "jupyter-gpuprof[scale]"')
    a, b = _fit_usl(measured.counts, measured.throughput)
    others = [measured.without(i) for i in range(1, len(measured.counts))]
    if b <= _NOTHING or any(_fit_usl(o.counts, o.throughput)[1] <= _NOTHING for o in others):
        return Missing("no peak can be told: it comes and goes with single counts")
    draws = [_fit_usl(measured.counts, row) for row in measured.draws[:_USL_DRAWS]]
    if np.mean([drawn <= _NOTHING for _, drawn in draws]) > 0.025:
        return Missing("no peak can be told: the spread of the repeats leaves room for none at all")
    bent = [(x, y) for x, y in draws if y > _NOTHING]
    peaks = np.array([_peak(*pair) for pair in bent])
    return UslFit(a, b, interval(_peak(a, b), peaks)), bent


def _fit_usl(counts: Array, throughput: Array) -> tuple[float, float]:
    from scipy.optimize import nnls

    n = counts[1:]
    excess = n * throughput[0] / throughput[1:] - 1
    (a, b), _ = nnls(np.stack([n - 1, n * (n - 1)], axis=1), excess)
    return float(a), float(b)


def _usl_speedup(a: float, b: float, n: Array) -> Array:
    speedup: Array = n / (1 + a * (n - 1) + b * n * (n - 1))
    return speedup


def _peak(a: float, b: float) -> float:
    return math.sqrt(max(1 - a, 0.0) / b)


def _curve(law: str, grid: Array, curves: Sequence[Array], measured: Measured) -> FitCurve:
    value, low, high = (tuple(float(x) for x in curve) for curve in curves)
    return FitCurve(
        "USL" if law == "USL" else "Amdahl",
        tuple(float(n) for n in grid),
        value,
        low,
        high,
        float(measured.counts[-1]),
    )


def _noise(generator: np.random.Generator, repeats: int) -> Array:
    """Student's t for the mean of some repeats; the normal for what a single one says of itself."""
    if repeats > 1:
        return generator.standard_t(repeats - 1, _DRAWS)
    return generator.standard_normal(_DRAWS)


def _relative_doubt(point: ScalingPoint) -> float:
    """The standard error of the throughput over the throughput; 0 where it is unknown."""
    mean = _number(point.throughput)
    if len(point.repeats) > 1:
        return float(np.std(point.repeats, ddof=1)) / math.sqrt(len(point.repeats)) / mean
    if isinstance(point.low, Missing) or isinstance(point.high, Missing):
        return 0.0
    return max(point.high - point.low, 0.0) / 2 / _Z95 / mean


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)
