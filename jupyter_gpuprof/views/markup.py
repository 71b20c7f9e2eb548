"""The pieces of HTML that reports are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.format import clean, sentence, why
from jupyter_gpuprof.views.style import ROOT_CLASS, style_sheet

#: Stands above everything that comes from a simulated device.
SIMULATED = "<p class='jp-gpuprof-simulated'><b>Simulated device.</b> No real hardware was measured.</p>"


def fragment(name: str, *blocks: str) -> str:
    """A report with its style; empty blocks are left out.

    Args:
        name: what it is, as plain text, for those who do not see it.
        blocks: its parts as HTML.
    """
    body = "\n".join(block for block in blocks if block)
    return (
        f"<section class='{ROOT_CLASS}' aria-label='{escape(name)}'>\n"
        f"<style>{style_sheet()}</style>\n{body}\n</section>"
    )


def table(heads: str, rows: str, name: str = "") -> str:
    """A table that scrolls sideways where it is too wide."""
    drawn = f"<table><thead>{heads}</thead><tbody>{rows}</tbody></table>"
    return f"<div class='jp-gpuprof-wide {name}'>{drawn}</div>"


def head_row(heads: Sequence[str], numbers: Sequence[int]) -> str:
    """The heads of a table, those of the columns `numbers` to the right."""
    classes = (" class='jp-gpuprof-num'" if i in numbers else "" for i in range(len(heads)))
    cells = (f"<th scope='col'{c}>{escape(head)}</th>" for head, c in zip(heads, classes, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def row_cells(cells: Iterable[tuple[str, str]]) -> str:
    """Cells of a row, each its HTML and its class."""
    return "".join(f"<td class='{name}'>{content}</td>" for content, name in cells)


def heading(title: str) -> str:
    """The heading of a section."""
    return f"<p class='jp-gpuprof-head' role='heading' aria-level='4'>{escape(title)}</p>"


def bullet_section(title: str, sentences: Sequence[str]) -> str:
    """Sentences under a heading; nothing where there are none."""
    return f"{heading(title)}{bullets(sentences)}" if sentences else ""


def bullets(sentences: Sequence[str]) -> str:
    """Sentences as a list; nothing where there are none."""
    if not sentences:
        return ""
    points = "".join(f"<li>{escape(sentence(words))}</li>" for words in sentences)
    return f"<ul class='jp-gpuprof-list'>{points}</ul>"


def line_breaks(sentences: Sequence[str]) -> str:
    """Sentences, each on its line."""
    return "<br/>".join(escape(sentence(words)) for words in sentences)


def hinted(content: str, reading: object) -> str:
    """A reading as HTML; where it is missing, its title says why."""
    if isinstance(reading, Missing):
        return f"<span title='{escape(why(reading))}'>{content}</span>"
    return content


def plain(text: str) -> str:
    """Foreign words."""
    return escape(clean(text))
