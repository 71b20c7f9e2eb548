"""What the derived-data cache holds, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from jupyter_gpuprof.records.derived import CacheEntry, CacheReport
from jupyter_gpuprof.views.lines import fitting

_KEY = 10


def cache_text(report: CacheReport, width: int = 100) -> str:
    """All entries, one a line."""
    limit = f"{_size(report.size_bytes)} of {_size(report.limit_bytes)} in {report.folder}"
    if not report.entries:
        return f"The cache is empty ({report.folder}).\n"
    rows = [("key", "name", "results", "size", "last used"), *map(_row, report.entries)]
    lines = [f"gpuprof: derived data, {limit}", "", fitting(rows, width, (2, 3), "  ", (4, 2))]
    if report.quarantined_bytes:
        lines += [
            "",
            f"{_size(report.quarantined_bytes)} of damaged files are put aside; prune takes them away.",
        ]
    return "\n".join(_flat(lines)) + "\n"


def entry_text(entry: CacheEntry) -> str:
    """One entry, and what its results depend on."""
    made = f"; one takes {1e3 * entry.item_s:.1f} ms to compute" if entry.item_s else ""
    head = [
        f"{entry.name} ({entry.key})",
        f"{entry.items} results, {_size(entry.size_bytes)}{made}",
        f"made {entry.created_at}, last used {_date(entry.used_unix_s)}",
        "",
        "They are read back as long as none of these changes:",
    ]
    return (
        "\n".join([*head, *(f"  {name}: {value[:12]}" for name, value in sorted(entry.parts.items()))]) + "\n"
    )


def verified_text(verified: Sequence[tuple[CacheEntry, int]]) -> str:
    """What verifying found."""
    if not verified:
        return "The cache is empty.\n"
    lines = [
        f"{entry.key[:_KEY]}  {entry.name}: "
        + (
            "whole"
            if not damaged
            else f"{damaged} damaged files put aside; they are computed anew when needed"
        )
        for entry, damaged in verified
    ]
    return "\n".join(lines) + "\n"


def pruned_text(gone: Sequence[CacheEntry]) -> str:
    """What is gone."""
    if not gone:
        return "Nothing had to go.\n"
    lines = [f"{entry.key[:_KEY]}  {entry.name}, {_size(entry.size_bytes)}" for entry in gone]
    return "\n".join(["Gone:", *lines]) + "\n"


def _row(entry: CacheEntry) -> tuple[str, ...]:
    return (
        entry.key[:_KEY],
        entry.name,
        str(entry.items),
        _size(entry.size_bytes),
        _date(entry.used_unix_s),
    )


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _flat(lines: Iterable[Sequence[str]]) -> list[str]:
    return [one for line in lines for one in ([line] if isinstance(line, str) else line)]
