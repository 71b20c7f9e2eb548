"""The ratio of two variants from interleaved rounds, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.stability import RESAMPLES, block_length, resample
from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.records.student import NORMAL_975, student_t


def mean_step(rounds: Sequence[Sequence[float]], workers: int = 0) -> Estimate:
    """The mean of all steps of a variant's rounds, with an interval of about 95 %.

    Args:
        rounds: seconds per block of steps, one sequence a round, in order.
        workers: of the loader, whose bursts set the length of a resampled block.
    """
    means = [_mean(steps) for steps in rounds]
    value = math.exp(float(np.mean(np.log(means))))
    half = _half_width([rounds], [workers])
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def ratio_of(
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
    workers: tuple[int, int] = (0, 0),
    scale: float = 1.0,
) -> Estimate:
    """Time before over time after, with an interval of about 95 %.

    Works on the logarithm of each round's mean. Two things make it doubtful: the steps within a round
    (moving-block bootstrap, normal quantile), and what changes from round to round on a shared machine (the
    spread of the rounds of a variant, pooled, as far as the steps inside do not explain it, with Student's
    quantile for so few). Their half widths are added in quadrature.

    Args:
        before: seconds per block of steps of each round without the change.
        after: the same with it.
        workers: loader workers of each.
        scale: the ratio is multiplied by it (samples per step after over before).
    """
    value = scale * math.exp(_log_mean(before) - _log_mean(after))
    half = _half_width([before, after], workers)
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def _half_width(variants: Sequence[Sequence[Sequence[float]]], workers: Sequence[int]) -> float:
    errors = (_within(rounds, w) for rounds, w in zip(variants, workers, strict=True))
    within = math.hypot(*errors)
    spread, freedom = _between(variants)
    excess = math.sqrt(max(0.0, spread**2 - within**2))  # what the steps inside do not explain
    quantile = student_t(freedom) if freedom else 0.0
    return math.hypot(NORMAL_975 * within, quantile * excess)


def _mean(steps: Sequence[float]) -> float:
    return max(1e-12, float(np.mean(steps)))


def _log_mean(rounds: Sequence[Sequence[float]]) -> float:
    return float(np.mean([math.log(_mean(steps)) for steps in rounds]))


def _within(rounds: Sequence[Sequence[float]], workers: int) -> float:
    """Standard error of the mean of the rounds' log means, from the steps inside them."""
    errors = [_log_error(np.asarray(steps, dtype=float), workers) for steps in rounds]
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)


def _log_error(steps: NDArray[np.float64], workers: int) -> float:
    if len(steps) < 2:
        return 0.0  # the spread between rounds must tell
    drawn = resample(steps[:, None], block_length(workers))
    if len(drawn.draws) < RESAMPLES:
        return 0.0
    sums = drawn.draws[:, 0]
    return float(drawn.widen * sums.std() / max(1e-12, sums.mean()))


def _between(variants: Sequence[Sequence[Sequence[float]]]) -> tuple[float, int]:
    """Standard error from the spread of the rounds of each variant around their own mean, pooled.

    Returns:
        The error, and its degrees of freedom.
    """
    squares, freedom, per_mean = 0.0, 0, 0.0
    for rounds in variants:
        logs = np.log([_mean(steps) for steps in rounds])
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(rounds) - 1
        per_mean += 1 / len(rounds)
    return (math.sqrt(squares / freedom * per_mean) if freedom else 0.0), freedom
