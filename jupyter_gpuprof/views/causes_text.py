"""The blocks of the text report on causes, on what would not help and on levers, where a run has them."""

from __future__ import annotations

from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.causes_words import (
    LEVERS_TITLE,
    NO_HELP_TITLE,
    cause_name,
    causes_summary,
    lever_cells,
    levers_in_short,
    levers_matter,
    line_cells,
    told_causes,
)
from jupyter_gpuprof.views.format import why
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.share_lines import share_lines


def causes_blocks(run: Run, width: int) -> list[list[str]]:
    """What making a batch consists of, and what the host does: a block each."""
    return [_causes_block(run, title, causes, width) for _, title, causes, _ in told_causes(run)]


def no_help_block(run: Run, width: int) -> list[str]:
    """What would not help, and why."""
    return [NO_HELP_TITLE, *bullet_lines(run.no_help, width)] if run.no_help else []


def levers_block(run: Run, width: int) -> list[str]:
    """Which levers are on, and when the others help; in short where something else comes first."""
    if not run.levers:
        return []
    if not levers_matter(run):
        return wrap(levers_in_short(run), width)
    lines = [LEVERS_TITLE]
    for name, state, detail, helps_when in map(lever_cells, run.levers):
        lines += wrap(f"{name}: {state}" + (f" ({detail})" if detail else ""), width, "  ", "      ")
        if helps_when and state in ("off", "unknown"):
            lines += wrap(f"helps when {helps_when}", width, "      ")
    return lines


def _causes_block(run: Run, title: str, causes: Causes | Missing, width: int) -> list[str]:
    if isinstance(causes, Missing):
        return [title, *wrap(f"not measured: {why(causes)}", width, "  ")]
    rows = [(cause_name(part.name, run), part.share) for part in causes.parts]
    lines = [title, *share_lines(rows, width), *wrap(causes_summary(causes), width, "  ")]
    if causes.lines:
        told = (line_cells(line, run) for line in causes.lines)
        cells = [(share, cause, place, code) for share, _, cause, place, code in told]
        lines += ["  The lines that cost most", *fitting(cells, width, right=(0,), indent="    ", drop=())]
    return lines + bullet_lines(causes.hints, width)
