"""Shares as a table of HTML: name, share, interval, and both on a line from 0 to 100 %."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.reading import Estimate
from jupyter_gpuprof.views.format import interval, known, percent
from jupyter_gpuprof.views.markup import table
from jupyter_gpuprof.views.style import part_class


def share_table(what: str, rows: str) -> str:
    """Rows of `share_row` under their heads, the first of which is `what`."""
    heads = (
        f"<tr><th scope='col'>{escape(what)}</th><th scope='col' class='jp-gpuprof-num'>Share</th>"
        "<th scope='col' class='jp-gpuprof-num'>95 % interval</th>"
        "<th scope='col' class='jp-gpuprof-range'>0 to 100 %</th></tr>"
    )
    return table(heads, rows, "jp-gpuprof-parts")


def share_row(name: str, key: str, share: Estimate) -> str:
    """One share, in the colour of the part `key`."""
    seen = share.value != 0 or share.high != 0
    colour = part_class(key)
    return (
        f"<tr class='{'' if seen else 'jp-gpuprof-zero'}'>"
        f"<th scope='row'><span class='jp-gpuprof-key {colour}'></span>{escape(name)}</th>"
        f"<td class='jp-gpuprof-num'>{escape(percent(share))}</td>"
        f"<td class='jp-gpuprof-num'>{interval(share)}</td>"
        f"<td class='jp-gpuprof-range'>{_track(share, colour) if seen else ''}</td></tr>"
    )


def _track(share: Estimate, colour: str) -> str:
    value, low, high = (_clamped(x) for x in (share.value, share.low, share.high))
    return (
        "<span class='jp-gpuprof-track' aria-hidden='true'>"
        f"<i class='{colour}' style='left:{low:.2f}%;width:{max(high - low, 0):.2f}%'></i>"
        f"<b class='{colour}' style='left:{value:.2f}%'></b></span>"
    )


def _clamped(share: float) -> float:
    return 100 * min(max(known(share) or 0.0, 0.0), 1.0)
