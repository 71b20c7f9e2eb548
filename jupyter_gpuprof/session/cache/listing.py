"""What ``jupyter gpuprof cache`` does: look, verify, take away."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.records.derived import CacheEntry, CacheReport
from jupyter_gpuprof.store import derivedplace

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def cache_report(folder: Path | None = None) -> CacheReport:
    """All that is kept, last used first."""
    return derivedplace.report(folder)


def find_entry(wanted: str, folder: Path | None = None) -> CacheEntry:
    """The entry whose key begins so, or the last used one of that name.

    Raises:
        UsageError: there is none.
    """
    for entry in cache_report(folder).entries:
        if entry.name == wanted or entry.key.startswith(wanted):
            return entry
    raise UsageError(f"The cache holds no {wanted!r}.", "jupyter gpuprof cache list shows what it holds.")


def verify_cache(wanted: str | None = None, folder: Path | None = None) -> list[tuple[CacheEntry, int]]:
    """Read everything, or one entry; damaged files are put aside and computed anew when they are needed.

    Returns:
        Each entry, and how many of its files were damaged.

    Raises:
        UsageError: there is no such entry.
    """
    report = cache_report(folder)
    entries = report.entries if wanted is None else (find_entry(wanted, folder),)
    return [(entry, derivedplace.verify(Path(report.folder), entry)) for entry in entries]


def prune_cache(
    size: str | None = None, *, unused_s: float | None = None, folder: Path | None = None
) -> tuple[CacheEntry, ...]:
    """Take away damaged files, and the least recently used entries down to a size.

    Args:
        size: what may stay, as "20G"; by default the limit.
        unused_s: also those not used for so many seconds.
        folder: another cache.

    Raises:
        OptionError: the size cannot be read.
    """
    most = derivedplace.limit_bytes() if size is None else _bytes_of(size)
    root = folder or derivedplace.cache_folder()
    return tuple(derivedplace.prune(root, most, unused_s=unused_s))


def _bytes_of(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f"A size is a number and a unit, not {text!r}.", "For example: 20G, 500M, 0.")
    return int(float(found[1]) * 1024 ** _POWERS[found[2].upper()])
