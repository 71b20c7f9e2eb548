"""The bar that the parts of the time make together, as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.views.format import percent
from jupyter_gpuprof.views.parts import Part, bar_widths
from jupyter_gpuprof.views.style import part_class


def part_bar(parts: Sequence[Part]) -> str:
    """The parts beside each other, each as wide as its share; its label says it in words."""
    widths = bar_widths([part.share.value for part in parts])
    words = ", ".join(f"{part.name} {percent(part.share)}" for part in parts) or "no part was measured"
    drawn = [_segment(part, width) for part, width in zip(parts, widths, strict=False) if width > 0]
    return (
        f"<div class='jp-gpuprof-bar' role='img' aria-label='Parts of the time: {escape(words)}'>"
        f"{' '.join(drawn)}</div>"
    )


def _segment(part: Part, width: float) -> str:
    told = f"{part.name} {percent(part.share)}"
    classes = part_class(part.key) + ("" if width >= 1 else " jp-gpuprof-thin")
    words = f"<span>{escape(percent(part.share, 0))}</span> <span>{escape(part.name)}</span>"
    return f"<span class='{classes}' style='width:{width:.4f}%' title='{escape(told)}'>{words}</span>"
