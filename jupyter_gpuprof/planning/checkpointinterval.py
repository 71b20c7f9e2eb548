"""How often to save: the interval of the lowest cost, and what an interval costs.

The symbols of the literature: ``d`` a checkpoint stops training for so long, ``M`` mean time between
interruptions, ``R`` time to be running again, ``t`` the interval: computing between two checkpoints. All in
one unit of time, whichever. Interruptions are exponential and may come at any time, also while saving and
restarting. Sources:

* the full cost and both approximations: J. T. Daly, "A higher order estimate of the optimum checkpoint
  interval for restart dumps", Future Generation Computer Systems 22 (2006);
* the square root: J. W. Young, "A first order approximation to the optimum checkpoint interval",
  Communications of the ACM 17 (1974);
* a period that keeps the most of a machine available: Saxena et al., arXiv 2410.18124 (2024);
* saving in the background, as CheckFreq (Mohan et al., FAST 2021) does it. See `wall_ratio`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Within so much of the lowest cost, an interval is as good as the best one.
FLAT = 0.01
#: exp() of more than that is no number to reckon with.
_MOST = 600.0
#: Where Lambert's function is too close to its branch point for the digits of a float.
_SERIES_BELOW = 1e-6


@dataclass(frozen=True)
class Saving:
    """What determines the cost of an interval; one unit of time for all.

    Args:
        blocking: training stands still for one checkpoint.
        mean: between two interruptions.
        restart: from an interruption until training runs again.
        behind: from the end of `blocking` on until the checkpoint is safe, while training goes on.
        in_time: the share of interruptions at whose notice an emergency save is done in time, below 1.
    """

    blocking: float
    mean: float
    restart: float
    behind: float = 0.0
    in_time: float = 0.0

    @property
    def mean_lossy(self) -> float:
        """Between two interruptions that lose work."""
        return self.mean / (1 - self.in_time)

    @property
    def _pause(self) -> float:
        """What an interruption costs that loses no work."""
        return self.blocking + self.behind + self.restart

    def wall_ratio(self, interval: float) -> float:
        """Wall time over computing: ``(M/t) exp((R + behind)/M) (exp((t + d)/M) - 1)``.

        For ``behind = 0`` it is Daly's full cost. With a save in the background, a period that ends with a
        checkpoint becoming safe takes ``t + d`` without an interruption; after one, the ``behind`` seconds
        before it have to be done again, too: so they count as a part of R (exactly, for ``behind`` no
        longer than a period). Interruptions that lose no work are pauses in all this.
        """
        log = self._log_ratio(interval)
        return math.exp(log) if log < _MOST else math.inf

    def _log_ratio(self, interval: float) -> float:
        """The logarithm of `wall_ratio`, a number also where that is none any more."""
        mean = self.mean_lossy
        period = (interval + self.blocking) / mean
        again = (self.restart + self.behind) / mean
        pauses = math.log1p(self.in_time * self._pause / self.mean)
        return math.log(mean / interval) + again + period + math.log(-math.expm1(-period)) + pauses

    def optimum(self) -> float:
        """The interval of the lowest `wall_ratio`; one save at a time is in flight."""
        return max(optimum(self.blocking, self.mean_lossy), self.behind)

    def flat(self, within: float = FLAT) -> tuple[float, float]:
        """The intervals around the optimum whose cost is within that share of the lowest."""
        from scipy.optimize import brentq

        best = self.optimum()
        limit = self._log_ratio(best) + math.log1p(within)

        def above(times: float) -> float:  # the logarithm of the interval over the best one
            return self._log_ratio(best * math.exp(times)) - limit

        least = math.log(max(self.behind / best, 1e-6))
        low = least if above(least) <= 0 else brentq(above, least, 0.0)
        far = 1.0
        while above(far) <= 0:
            far += 1.0
        return best * math.exp(low), best * math.exp(brentq(above, 0.0, far))

    def lost(self, interval: float) -> float:
        """What one interruption costs on average: work done again, and the restart."""
        again = lost_work(interval + self.blocking, self.mean_lossy) + self.behind + self.restart
        return (1 - self.in_time) * again + self.in_time * self._pause


def optimum(blocking: float, mean: float) -> float:
    """The interval of the lowest cost, exactly: ``M (1 + W(-exp(-d/M - 1)))``, W Lambert's function."""
    from scipy.special import lambertw

    ratio = blocking / mean
    if ratio < _SERIES_BELOW:  # W at its branch point: Corless et al. 1996, eq. 4.22
        p = math.sqrt(-2 * math.expm1(-ratio))
        return mean * (p - p**2 / 3 + 11 * p**3 / 72)
    return float(mean * (1 + lambertw(-math.exp(-ratio - 1)).real))


def young(blocking: float, mean: float) -> float:
    """Young's square root."""
    return math.sqrt(2 * blocking * mean)


def daly_first(blocking: float, mean: float, restart: float) -> float:
    """Daly's first order; may fall below 0 where a checkpoint takes longer than twice the mean."""
    return math.sqrt(2 * blocking * (mean + restart)) - blocking


def daly(blocking: float, mean: float) -> float:
    """Daly's higher order."""
    if blocking >= 2 * mean:
        return mean
    half = blocking / (2 * mean)
    return young(blocking, mean) * (1 + math.sqrt(half) / 3 + half / 9) - blocking


def saxena(blocking: float, mean: float, restart: float) -> float:
    """Saxena's period of the best availability, its checkpoint included."""
    return blocking + math.sqrt(2 * (mean + restart) * blocking + blocking**2)


def lost_work(period: float, mean: float) -> float:
    """Work lost by an interruption, on average over where in the period it comes: about half of it."""
    ratio = period / mean
    if ratio < 1e-4:  # the difference of two large numbers otherwise
        return period * (0.5 - ratio / 12)
    return mean - period / math.expm1(min(ratio, _MOST))


def lost_with_notice(interval: float, in_time_ratio: float) -> float:
    """Work lost by an interruption where an emergency save is done in time so often: to first order."""
    return (1 - in_time_ratio) * interval / 2


def fits_notice(durable: float, notice: float, margin: float = 0.0) -> bool:
    """Whether a save of that length (its 99th percentile, say) is done within the notice."""
    return durable <= notice - margin


def first_order_waste(saving: Saving, interval: float) -> float:
    """The share of time that is lost, to first order: for comparison, not for money."""
    hit = interval / 2 + saving.behind + saving.restart
    return saving.blocking / interval + hit / saving.mean


def effective_cost(price_ratio: float, loss_ratio: float) -> float:
    """The cost of spot capacity over that of the same work on demand."""
    return price_ratio / (1 - loss_ratio)


def round_interval(seconds: float, low: float, high: float) -> float:
    """A rounder number of seconds than `seconds` within the bounds, for a person."""
    fitting = [value for value in _ROUND if low <= value <= high]
    if fitting:
        return min(fitting, key=lambda value: abs(math.log(value / seconds)))
    digits = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return min(max(round(seconds / digits) * digits, low), high)


#: Intervals that a person would choose, in seconds.
_ROUND = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(60.0 * n for n in (1, 2, 3, 5, 10, 15, 20, 30)),
    *(3600.0 * n for n in (1, 2, 3, 4, 6, 8, 12)),
    *(86400.0 * n for n in (1, 2, 3, 5, 7, 14)),
)
