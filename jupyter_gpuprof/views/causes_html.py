"""The sections of the HTML report on causes, on what would not help and on levers, where a run has them."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Remedy, Run
from jupyter_gpuprof.views.causes_words import (
    CAUSE_PARTS,
    LEVER_HEADS,
    LEVERS_TITLE,
    LINE_HEADS,
    NO_HELP_TITLE,
    cause_name,
    causes_summary,
    lever_cells,
    levers_matter,
    line_cells,
    told_causes,
    try_words,
)
from jupyter_gpuprof.views.format import why
from jupyter_gpuprof.views.markup import bullet_section, bullets, head_row, heading, row_cells, table
from jupyter_gpuprof.views.share_table import share_row, share_table

_NUMBER, _TEXT = "jp-gpuprof-num", "jp-gpuprof-text"


def causes_sections(run: Run) -> str:
    """What making a batch consists of, and what the host does; folded away where the verdict is another."""
    sections = []
    for kind, title, causes, asked in told_causes(run):
        content = _causes(run, kind, causes)
        sections.append(
            f"{heading(title)}{content}"
            if asked
            else f"<details><summary>{escape(title)}</summary>{content}</details>"
        )
    return "".join(sections)


def try_code(remedy: Remedy) -> str:
    """How the remedy is tried, as code to be copied; nothing where it cannot be."""
    words = try_words(remedy)
    return f"<p><code class='jp-gpuprof-try'>{escape(words)}</code></p>" if words else ""


def no_help_section(run: Run) -> str:
    """What would not help, and why."""
    return bullet_section(NO_HELP_TITLE, run.no_help)


def levers_section(run: Run) -> str:
    """Which levers are on, and when the others help."""
    if not run.levers:
        return ""
    rows = "".join(map(_lever_row, run.levers))
    content = table(head_row(LEVER_HEADS, numbers=()), rows, "jp-gpuprof-levers")
    if levers_matter(run):
        return f"{heading(LEVERS_TITLE)}{content}"
    return f"<details><summary>{LEVERS_TITLE}</summary>{content}</details>"


def _causes(run: Run, kind: str, causes: Causes | Missing) -> str:
    if isinstance(causes, Missing):
        return f"<p class='jp-gpuprof-soft'>not measured: {escape(why(causes))}</p>"
    rows = (share_row(cause_name(part.name, run), CAUSE_PARTS[kind], part.share) for part in causes.parts)
    return (
        f"{share_table('Activity', ''.join(rows))}"
        f"<p class='jp-gpuprof-soft jp-gpuprof-note'>{escape(causes_summary(causes))}</p>"
        f"{_lines(run, causes)}{bullets(causes.hints)}"
    )


def _lines(run: Run, causes: Causes) -> str:
    if not causes.lines:
        return ""
    rows = []
    for line in causes.lines:
        share, interval, cause, place, code = map(escape, line_cells(line, run))
        code = f"<code>{code}</code>" if code else ""
        cells = ((share, _NUMBER), (interval, _NUMBER), (cause, ""), (place, ""), (code, _TEXT))
        rows.append(f"<tr>{row_cells(cells)}</tr>")
    return table(head_row(LINE_HEADS, numbers=(0, 1)), "".join(rows), "jp-gpuprof-lines")


def _lever_row(lever: Lever) -> str:
    name, state, detail, helps_when = map(escape, lever_cells(lever))
    cells = ((state, ""), (detail, _TEXT), (helps_when, _TEXT))
    return f"<tr><th scope='row' class='{_TEXT}'>{name}</th>{row_cells(cells)}</tr>"
