"""How much wider an interval of about 95 % is that rests on few values."""

from __future__ import annotations

from itertools import pairwise

#: The normal distribution's 97.5 % quantile.
NORMAL_975 = 1.959964
#: Student's for 1, 2, 3, ... degrees of freedom.
_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def student_t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t: a table, then its expansion in 1/freedom (A&S 26.7.5).

    Between two entries it is read off the line in 1/freedom, which is a little too wide, never too narrow.

    Args:
        freedom: degrees of freedom; fewer than one are taken for one.
    """
    for low, (here, after) in enumerate(pairwise(_T975), start=1):
        if freedom <= low:
            return here
        if freedom <= low + 1:
            part = (1 / low - 1 / freedom) / (1 / low - 1 / (low + 1))
            return here + part * (after - here)
    z = NORMAL_975
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
