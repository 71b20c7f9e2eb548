"""How numbers and foreign words look, the same in text and in HTML."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from datetime import datetime, timezone

from jupyter_gpuprof.records.reading import Estimate, Missing

#: What stands where there is no number.
NOT_AVAILABLE = "n/a"

#: Anything that may stand where a number is meant.
Reading = Estimate | Missing | float | int | None

_DIRECTION_MARKS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def known(reading: Reading) -> float | None:
    """The number behind the reading, None if there is none or it is not finite."""
    value = reading.value if isinstance(reading, Estimate) else reading
    if value is None or isinstance(value, Missing) or not math.isfinite(value):
        return None
    return float(value)


def why(missing: Missing) -> str:
    """The reason why there is no number."""
    return clean(missing.reason) or "no reason given"


def percent(share: Reading, digits: int = 1) -> str:
    """A share of 0 to 1 in percent: ``12.3 %``; a trace of something is never shown as zero."""
    value = known(share)
    if value is None:
        return NOT_AVAILABLE
    smallest = 10.0**-digits
    if 0 < value * 100 < smallest / 2:
        return f"<{smallest:.{digits}f} %"
    return f"{_fixed(value * 100, digits)} %"


def interval(share: Reading) -> str:
    """The interval of an estimated share in percent, without the sign: ``[59.2, 64.1]``."""
    if not isinstance(share, Estimate):
        return ""
    low, high = known(share.low), known(share.high)
    if low is None or high is None:
        return ""
    return f"[{_fixed(low * 100, 1)}, {_fixed(high * 100, 1)}]"


def points(change: Reading) -> str:
    """The change of a share in percentage points: ``+1.2 points``."""
    value = known(change)
    if value is None:
        return NOT_AVAILABLE
    number = _fixed(value * 100, 1)
    return f"{number if number.startswith('-') or number == '0.0' else '+' + number} points"


def seconds(duration: Reading) -> str:
    """A duration in the unit that suits it: ``850 µs``, ``12.1 ms``, ``3.42 s``, ``5 min 40 s``."""
    value = known(duration)
    if value is None:
        return NOT_AVAILABLE
    sign, size = ("-", -value) if value < 0 else ("", value)
    if size == 0:
        return "0 s"
    if size < 0.9995e-3:
        return f"{sign}{_figures(size * 1e6)} µs"
    if size < 0.9995:
        return f"{sign}{_figures(size * 1e3)} ms"
    if size < 119.5:
        return f"{sign}{size:.2f} s" if size < 9.995 else f"{sign}{_figures(size)} s"
    whole = round(size)
    if whole >= 10**9:
        return f"{sign}{_fixed(size, 0)} s"
    if whole < 7200:
        return f"{sign}{whole // 60} min {whole % 60} s"
    return f"{sign}{whole // 3600} h {whole % 3600 // 60} min"


def byte_size(size: Reading) -> str:
    """Memory in binary units: ``512 KiB``, ``38.2 MiB``, ``1.5 GiB``."""
    value = known(size)
    if value is None:
        return NOT_AVAILABLE
    if abs(value) < 1024:
        return f"{value:.0f} B"
    for unit, scale in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if abs(value) < 1023.5 * scale:
            return f"{_figures(value / scale)} {unit}"
    return f"{_figures(value / 2**40)} TiB"


def ratio(factor: Reading) -> str:
    """A ratio: ``2.5x``; two decimals near one, where they matter."""
    value = known(factor)
    if value is None:
        return NOT_AVAILABLE
    if 0.8 <= value < 1.2:
        return f"{value:.2f}x"
    return f"{_figures(value)}x"


def number(value: Reading) -> str:
    """A plain count or number: ``64``, ``12,000``."""
    plain_value = known(value)
    if plain_value is None:
        return NOT_AVAILABLE
    if abs(plain_value) >= 1e12:
        return _fixed(plain_value, 0)
    return f"{plain_value:,.0f}" if plain_value == round(plain_value) else f"{plain_value:,.1f}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 step``, ``200 steps``."""
    plural = noun + ("es" if noun.endswith(("ch", "ss")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def yes_no(flag: bool | Missing) -> str:
    """A setting: ``yes``, ``no`` or ``n/a``."""
    if isinstance(flag, Missing):
        return NOT_AVAILABLE
    return "yes" if flag else "no"


def moment(started_at: str) -> str:
    """An ISO 8601 moment to the minute, in UTC: ``2026-01-31 09:30 UTC``; unread text as it is."""
    try:
        parsed = datetime.fromisoformat(started_at.replace("Z", "+00:00"))
        utc = parsed.astimezone(timezone.utc) if parsed.tzinfo else parsed
    except (ValueError, OverflowError):
        return clean(started_at)
    return f"{utc:%Y-%m-%d %H:%M} UTC"


def clean(text: str) -> str:
    """Foreign words on one line, without control characters or marks that turn the direction."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(_harmless(character) for character in text).split())


def code_lines(lines: Iterable[str]) -> list[str]:
    """Foreign code line by line, its indentation kept, as harmless as `clean` makes words."""
    parts = (part.expandtabs(4) for line in lines for part in line.splitlines() or [""])
    return ["".join(_harmless(character) for character in part).rstrip() for part in parts]


def sentence(text: str) -> str:
    """Foreign words beginning with a capital letter, unless they begin with code."""
    cleaned = clean(text)
    first = cleaned.partition(" ")[0].rstrip(",;:.")
    return cleaned[:1].upper() + cleaned[1:] if first.isalpha() or "-" in first else cleaned


def shorten(text: str, width: int) -> str:
    """The cleaned text in at most `width` characters, cut with an ellipsis."""
    cleaned = clean(text)
    return cleaned if len(cleaned) <= width else cleaned[: width - 1].rstrip() + "…"


def _harmless(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else " "
    unwanted = unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp")
    return " " if unwanted or unicodedata.bidirectional(character) in _DIRECTION_MARKS else character


def _figures(value: float) -> str:
    """One decimal below a hundred, none above."""
    return _fixed(value, 1) if abs(value) < 99.95 else _fixed(value, 0)


def _fixed(value: float, digits: int) -> str:
    if abs(value) >= 1e12:
        return f"{value:.3g}"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text
