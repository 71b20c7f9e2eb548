"""How far the timing of some steps can be trusted: warm-up, intervals, drift."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.records.student import NORMAL_975, student_t
from jupyter_gpuprof.records.timing import Part

MIN_WARMUP_STEPS = 5
#: The first fifth is warm-up while its median step is this much slower than that of the rest.
WARMUP_EXCESS = 0.15
#: Resampling works on at most this many rows; neighbours are summed first.
MAX_ROWS = 512
RESAMPLES = 1000


def least_warmup(steps: int, *, workers: int = 0, prefetch: int = 2) -> int:
    """Five steps, or as many as the loader's workers had fetched ahead; at most a quarter of the run."""
    return min(max(MIN_WARMUP_STEPS, workers * prefetch), steps // 4)


def warmup_steps(durations_s: NDArray[np.float64], *, workers: int = 0, prefetch: int = 2) -> int:
    """How many steps at the beginning are warm-up.

    At least five, or as many as the loader's workers had fetched ahead before the first step, but no
    more than a quarter of the run; then, up to three times, the first fifth of what is left while its
    median is 15 % slower than the median of the rest (compilation, autotuning, a cold page cache).

    Args:
        durations_s: step durations without the time between steps, shape (steps,).
        workers: worker processes of the loader.
        prefetch: batches each worker fetches ahead.
    """
    steps = len(durations_s)
    start = least_warmup(steps, workers=workers, prefetch=prefetch)
    for _ in range(3):
        fifth = (steps - start) // 5
        if fifth < 4:
            break
        head, rest = durations_s[start : start + fifth], durations_s[start + fifth :]
        if np.median(head) <= (1 + WARMUP_EXCESS) * np.median(rest):
            break
        start += fifth
    return start


def block_length(workers: int) -> int:
    """Steps per resampling block: at least 8 and a multiple of the number of workers.

    Loaders with w workers deliver in bursts of w, so single steps are far from independent.
    """
    return 8 if workers <= 1 else workers * math.ceil(8 / workers)


@dataclass(frozen=True)
class Resampled:
    """A table's sums and what they might have been: a moving-block bootstrap of its rows.

    Args:
        sums: seconds per part, shape (parts,).
        draws: the same for each resample, shape (resamples, parts).
        widen: by how much an interval from the draws is too narrow for so few blocks.
    """

    sums: NDArray[np.float64]
    draws: NDArray[np.float64]
    widen: float

    def share(self, parts: tuple[Part, ...], of: tuple[Part, ...] | None = None) -> Estimate:
        """Sum over sum, with an interval of about 95 %.

        Args:
            parts: the numerator.
            of: the denominator; all parts by default.
        """
        numerator, denominator = list(parts), list(of if of is not None else Part)
        whole = self.sums[denominator].sum()
        if whole <= 0:
            return Estimate(0.0, 0.0, 0.0)
        value = float(self.sums[numerator].sum() / whole)
        if len(self.draws) < 2:  # one row has no spread to tell
            return Estimate(value, 0.0, 1.0)
        wholes = self.draws[:, denominator].sum(axis=1)
        shares = self.draws[:, numerator].sum(axis=1) / np.where(wholes > 0, wholes, 1.0)
        low, high = np.percentile(shares, (2.5, 97.5))
        return Estimate(
            value,
            float(min(value, max(0.0, value - self.widen * (value - low)))),
            float(max(value, min(1.0, value + self.widen * (high - value)))),
        )


def resample(seconds: NDArray[np.float64], block: int) -> Resampled:
    """A moving-block bootstrap of step rows, repeatable (fixed seed).

    The percentile interval of a bootstrap with few blocks is too narrow; it is widened by
    Student's t over the normal for the number of independent blocks.

    Args:
        seconds: shape (rows, parts).
        block: rows per block.
    """
    coarse = -(-len(seconds) // MAX_ROWS)
    if coarse > 1:
        whole = len(seconds) // coarse * coarse
        seconds = seconds[:whole].reshape(-1, coarse, seconds.shape[1]).sum(axis=1)
    rows = len(seconds)
    sums = seconds.sum(axis=0)
    block = max(1, min(block, rows // 2))
    if rows < 2:
        return Resampled(sums, sums[None, :], 1.0)
    cumulative = np.vstack([np.zeros(seconds.shape[1]), np.cumsum(seconds, axis=0)])
    block_sums = cumulative[block:] - cumulative[:-block]
    per_draw = -(-rows // block)
    starts = np.random.default_rng(0).integers(0, len(block_sums), size=(RESAMPLES, per_draw))
    return Resampled(sums, block_sums[starts].sum(axis=1), student_t(rows / block - 1) / NORMAL_975)


def trimmed_mean(values: NDArray[np.float64], cut: float = 0.1) -> float:
    """The mean without the lowest and highest `cut` of the values."""
    ordered = np.sort(values)
    k = int(len(ordered) * cut)
    return float(ordered[k : len(ordered) - k].mean())
