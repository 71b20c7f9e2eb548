"""What a person asks of a budget, together with what its study keeps."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from typing import SupportsFloat

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sweep import SweepTerms
from jupyter_gpuprof.session.devices.keep import parse_span

Expiry = str | date | datetime | timedelta | None

_TIMES = "Write 48h, 7d, 2030-01-31 or 2030-01-31T18:00."


def checked_hours(gpu_hours: float | None) -> float | None:
    """The cap.

    Raises:
        OptionError: it is no number above 0.
    """
    if gpu_hours is None:
        return None
    number = isinstance(gpu_hours, SupportsFloat) and not isinstance(gpu_hours, bool)
    if not number or not math.isfinite(gpu_hours) or gpu_hours <= 0:
        raise OptionError(f"A budget is a number of GPU-hours above 0, not {gpu_hours!r}.")
    return float(gpu_hours)


def merged_terms(
    kept: SweepTerms | Missing, gpu_hours: float | None, expires: Expiry, now_unix_s: float
) -> SweepTerms:
    """What holds from now on: what is asked goes before what is kept; what is not asked stays.

    A span such as "48h" counts from the moment at which a budget was first put on the study, so that a
    restart gives no more time.

    Raises:
        OptionError: `expires` is no time.
    """
    began = now_unix_s if isinstance(kept, Missing) else kept.began_unix_s
    before = SweepTerms(began) if isinstance(kept, Missing) else kept
    return SweepTerms(
        began,
        before.gpu_hours if gpu_hours is None else gpu_hours,
        before.expires_unix_s if expires is None else expiry_unix_s(expires, began),
    )


def expiry_unix_s(expires: str | date | datetime | timedelta, began_unix_s: float) -> float:
    """The moment in seconds since 1970; a date without a time is its end, one without a zone is local.

    Raises:
        OptionError: it is no time.
    """
    if isinstance(expires, str):
        try:
            return began_unix_s + parse_span(expires)
        except OptionError:
            pass
        try:
            text = expires.strip().replace("Z", "+00:00")
            expires = date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(f"{expires!r} is no time.", _TIMES) from None
    if isinstance(expires, timedelta):
        return began_unix_s + expires.total_seconds()
    if not isinstance(expires, date):  # a datetime is one, too
        raise OptionError(f"{expires!r} is no time.", _TIMES)
    if not isinstance(expires, datetime):
        expires = datetime.combine(expires, time.max)
    return expires.timestamp()
