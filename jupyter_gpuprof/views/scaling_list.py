"""A list of scalings, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.views.format import clean, known, moment, number
from jupyter_gpuprof.views.lines import columns
from jupyter_gpuprof.views.markup import fragment, head_row, row_cells, table
from jupyter_gpuprof.views.scaling_words import label_words

_HEADS = ("scaling", "when", "name", "mode", "verdict", "worth it")


def scalings_text(scalings: Sequence[Scaling]) -> str:
    """A list of scalings, in the order given (newest first); nothing where there is none."""
    if not scalings:
        return ""
    return "\n".join(columns([_HEADS, *map(_cells, scalings)], right=(5,))) + "\n"


def scalings_html(scalings: Sequence[Scaling]) -> str:
    """The same as a fragment."""
    if not scalings:
        return ""
    rows = "".join(_row(*map(escape, _cells(scaling))) for scaling in scalings)
    return fragment("Scalings", table(head_row(_HEADS, numbers=(5,)), rows))


def _row(scaling_id: str, when: str, name: str, mode: str, label: str, worth: str) -> str:
    text = "jp-gpuprof-text"
    cells = ((when, ""), (name, text), (mode, ""), (label, text), (worth, "jp-gpuprof-num"))
    return f"<tr><th scope='row'><code>{scaling_id}</code></th>{row_cells(cells)}</tr>"


def _cells(scaling: Scaling) -> tuple[str, ...]:
    worth = known(scaling.worth_it_count)
    return (
        clean(scaling.scaling_id),
        moment(scaling.started_at),
        clean(scaling.run_name),
        clean(scaling.mode),
        label_words(scaling),
        number(worth),
    )
