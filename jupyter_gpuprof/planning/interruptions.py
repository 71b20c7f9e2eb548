"""How often a job is interrupted: from what was observed, with its doubt.

Interruptions are taken for a Poisson process. With k of them in a time t, the mean time between two is t/k,
and its exact 95 % interval ``[2t/chi2(0.975; 2k+2), 2t/chi2(0.025; 2k)]`` (Garwood, Biometrika 1936; for a
life test ended at a set time, Epstein, Technometrics 1960). With none there is only a lower bound,
``2t/chi2(0.95; 2)``, about t/3.
"""

from __future__ import annotations

import math

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.spot import Interruptions, Range

_NONE_SEEN = Missing("no interruption was seen")


def observed(count: int, over_s: float) -> Interruptions:
    """`count` interruptions were seen in `over_s` seconds.

    Raises:
        OptionError: a negative count, or no time.
    """
    from scipy.special import gammaincinv  # the quantile of chi2(2k) is twice that of gamma(k)

    if count < 0:
        raise OptionError(f"There cannot be {count} interruptions: count them from 0 on.")
    if not 0 < over_s < math.inf:
        raise OptionError("Interruptions are counted over a time above 0.", "For example --over 24h.")
    if count == 0:
        return Interruptions(Range(_NONE_SEEN, over_s / gammaincinv(1, 0.95), _NONE_SEEN), 0, over_s)
    low, high = over_s / gammaincinv(count + 1, 0.975), over_s / gammaincinv(count, 0.025)
    return Interruptions(Range(over_s / count, float(low), float(high)), count, over_s)


def given(mean_s: float) -> Interruptions:
    """One interruption every `mean_s` seconds on average, as somebody says.

    Raises:
        OptionError: it is no time.
    """
    if not 0 < mean_s < math.inf:
        raise OptionError("The time between interruptions must be above 0.", "For example --between 6h.")
    return Interruptions(Range.of(float(mean_s)))


def given_rate(per_hour: float) -> Interruptions:
    """So many interruptions in an hour, as somebody says.

    Raises:
        OptionError: the rate is negative, or not above 0.
    """
    if not 0 < per_hour < math.inf:
        raise OptionError(
            f"A rate of interruptions is a number above 0 for an hour, not {per_hour:g}.",
            "If none was seen so far, say for how long: --interruptions 0 --over 24h.",
        )
    return given(3600 / per_hour)


def in_time_ratio(done: int, of: int) -> float:
    """How probably a save ends within the notice, if `done` of `of` did: by the rule of succession.

    It never says 0 or 1, which a few saves cannot show (Laplace).
    """
    return (done + 1) / (of + 2)
