"""A resume audit as HTML: self-contained, without scripts."""

from __future__ import annotations

from html import escape

from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.markup import (
    bullets,
    fragment,
    head_row,
    line_breaks,
    plain,
    row_cells,
    table,
)
from jupyter_gpuprof.views.resumeaudit_words import (
    CASE_HEADS,
    audit_facts,
    audit_title,
    case_cells,
    case_points,
)

_NUMBERS = (2, 3)


def audit_html(audit: ResumeAudit) -> str:
    """The report of one audit as a fragment that a notebook can show and save."""
    return fragment(
        f"Resume audit of {clean(audit.run_name)}",
        f"<div class='jp-gpuprof-top'><span class='jp-gpuprof-name'>{plain(audit.run_name)}</span> "
        f"<span>{escape(moment(audit.started_at))}</span></div>",
        "<div class='jp-gpuprof-verdict'><div class='jp-gpuprof-why'>"
        f"<p class='jp-gpuprof-label' role='heading' aria-level='3'>{escape(audit_title(audit))}</p>"
        f"<p class='jp-gpuprof-sentence'>{escape(sentence(audit.sentence))}</p></div></div>",
        _cases(audit),
        bullets(case_points(audit)),
        _details(audit),
    )


def _cases(audit: ResumeAudit) -> str:
    rows = []
    for case in audit.cases:
        first, *rest = case_cells(case)
        cells = [
            (escape(cell), "jp-gpuprof-num" if i in _NUMBERS else "jp-gpuprof-text")
            for i, cell in enumerate(rest, start=1)
        ]
        rows.append(f"<tr><th scope='row'>{escape(first)}</th>{row_cells(cells)}</tr>")
    return table(head_row(CASE_HEADS, _NUMBERS), "".join(rows), "jp-gpuprof-below") if rows else ""


def _details(audit: ResumeAudit) -> str:
    facts = [
        *((name, escape(words)) for name, words in audit_facts(audit)),
        ("Notes", line_breaks(audit.notes)),
        ("Audit", f"<code>{plain(audit.audit_id)}</code>"),
    ]
    terms = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in facts if words)
    return f"<dl class='jp-gpuprof-below'>{terms}</dl>"
