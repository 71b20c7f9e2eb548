"""How far more devices are worth it: an unbroken chain of counts that bring enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jupyter_gpuprof.planning.scalinglaws import Array, Measured, interval
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: A threshold counts as reached in spite of rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Limits:
    """What a count must bring to be worth it."""

    gain: float  # of the last doubling
    efficiency: float

    def words(self, priced: bool) -> str:
        """The rule in words."""
        words = (
            f"the last doubling brings at least {self.gain:g}x and the efficiency is at least "
            f"{self.efficiency:g}, without a gap from the smallest count on"
        )
        if priced:
            words += (
                "; cheapest result: the least money for the same work; cheapest time: the least time x money"
            )
        return words


@dataclass(frozen=True)
class Link:
    """A count against the one before it.

    Args:
        count: devices.
        before: the next smaller measured count.
        gain: throughput over that of `before`.
        doubling: throughput over that of half as many devices, which is interpolated on logarithms where
            it was not measured.
        efficiency: throughput per device over that of the smallest count.
        passes: is it worth it? "open" where the intervals allow both.
    """

    count: int
    before: int
    gain: Estimate
    doubling: Estimate
    efficiency: Estimate
    passes: Literal["yes", "no", "open"]


def chain_of(measured: Measured, limits: Limits) -> list[Link]:
    """The counts above the smallest one up to and with the first that is not surely worth it."""
    chain: list[Link] = []
    for i in range(1, len(measured.counts)):
        chain.append(_link(measured, i, limits))
        if chain[-1].passes != "yes":
            break
    return chain


def worth_it_count(measured: Measured, chain: Sequence[Link]) -> Number:
    """The largest count of the chain that is worth it."""
    if len(measured.counts) < 2:
        return Missing("fewer than two counts were measured")
    if chain[-1].passes == "open":
        return Missing(f"the intervals do not tell whether {chain[-1].count} is worth it")
    return chain[-1].count if chain[-1].passes == "yes" else chain[-1].before


def _link(measured: Measured, i: int, limits: Limits) -> Link:
    counts, now, draws = measured.counts, measured.throughput, measured.draws

    def estimate(of: object) -> Estimate:
        assert callable(of)
        return interval(float(of(now)), of(draws))

    gain = estimate(lambda t: t[..., i] / t[..., i - 1])
    doubling = estimate(lambda t: _doubling(counts, t, i))
    efficiency = estimate(lambda t: t[..., i] / t[..., 0] * counts[0] / counts[i])
    least = limits.gain - _ROUNDING, limits.efficiency - _ROUNDING
    passes: Literal["yes", "no", "open"] = "open"
    if doubling.low >= least[0] and efficiency.low >= least[1]:
        passes = "yes"
    elif doubling.high < least[0] or efficiency.high < least[1]:
        passes = "no"
    return Link(int(counts[i]), int(counts[i - 1]), gain, doubling, efficiency, passes)


def _doubling(counts: Array, throughput: Array, i: int) -> Array:
    """Throughput at ``counts[i]`` over that at half of it, on a line through logarithms.

    Below the smallest count, the line from there to ``counts[i]`` goes on.
    """
    n, half = np.log(counts), float(np.log(counts[i] / 2))
    right = min(max(int(np.searchsorted(n, half)), 1), i)
    left = right - 1
    if half < n[0]:
        left, right = 0, i
    weight = (half - n[left]) / (n[right] - n[left])
    logs = np.log(throughput)
    gain: Array = np.exp(logs[..., i] - (1 - weight) * logs[..., left] - weight * logs[..., right])
    return gain
