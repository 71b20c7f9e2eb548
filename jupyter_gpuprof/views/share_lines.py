"""Shares as lines of text: name, share, interval and a bar."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.views.format import interval, known, percent
from jupyter_gpuprof.views.lines import columns

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_SHORTEST_BAR = 8


def share_lines(shares: Sequence[tuple[str, Estimate]], width: int) -> list[str]:
    """Named shares below each other, with bars where there is room for them."""
    rows = [(name, percent(share), interval(share)) for name, share in shares]
    table = columns(rows, right=(1, 2), indent="  ", keep_end=True)
    room = width - max((len(line) for line in table), default=0) - 2
    if room < _SHORTEST_BAR:
        return table
    return [
        f"{line}  {share_bar(known(share) or 0.0, room)}".rstrip()
        for line, (_, share) in zip(table, shares, strict=True)
    ]


def share_bar(share: float, cells: int) -> str:
    """A bar of block characters, `cells` long for a share of 1; a trace of something stays visible."""
    eighths = round(min(max(share, 0.0), 1.0) * cells * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
