"""The pieces of plain text that reports are made of."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from jupyter_gpuprof.views.format import sentence


def wrap(words: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Words on lines of at most `width`, the first one led by `first`, the others by `rest`."""
    after = first if rest is None else rest
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=after, break_on_hyphens=False)


def bullet_lines(sentences: Iterable[str], width: int) -> list[str]:
    """Sentences as a list."""
    return [line for words in sentences for line in wrap(sentence(words), width, "  - ", "    ")]


def columns(
    rows: Sequence[Sequence[str]], right: tuple[int, ...] = (), indent: str = "", keep_end: bool = False
) -> list[str]:
    """Rows of cells in columns as wide as their widest cell, those in `right` to the right.

    Args:
        rows: cells, as many in each row.
        right: positions of the columns that stand right.
        indent: what each line begins with.
        keep_end: leave the spaces at the end of the lines.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligns = [">" if column in right else "<" for column in range(len(widths))]
    lines = []
    for row in rows:
        cells = (f"{cell:{side}{wide}}" for cell, side, wide in zip(row, aligns, widths, strict=True))
        line = indent + "  ".join(cells)
        lines.append(line if keep_end else line.rstrip())
    return lines


def fitting(
    rows: Sequence[Sequence[str]], width: int, right: tuple[int, ...], indent: str, drop: tuple[int, ...]
) -> list[str]:
    """Rows of cells in columns, no line wider than `width`.

    Args:
        rows: cells, as many in each row.
        width: characters that there is room for.
        right: positions of the columns that stand right.
        indent: what each line begins with.
        drop: positions of the columns to leave out for want of room, in this order.
    """
    for dropped in range(len(drop) + 1):
        kept = [i for i in range(len(rows[0])) if i not in drop[:dropped]]
        cells = [[row[i] for i in kept] for row in rows]
        lines = columns(cells, tuple(n for n, i in enumerate(kept) if i in right), indent)
        if max(map(len, lines)) <= width:
            return lines
    return [line[: width - 1] + "…" if len(line) > width else line for line in lines]
