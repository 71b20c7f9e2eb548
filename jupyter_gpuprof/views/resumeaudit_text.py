"""A resume audit as plain text for a terminal."""

from __future__ import annotations

from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.views.format import clean, moment, sentence
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap
from jupyter_gpuprof.views.resumeaudit_words import (
    CASE_HEADS,
    audit_facts,
    audit_title,
    case_cells,
    case_points,
)

_NARROWEST = 48


def audit_text(audit: ResumeAudit, width: int = 120) -> str:
    """The report of one audit, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    facts = [*audit_facts(audit), ("Audit", f"{clean(audit.audit_id)}, {moment(audit.started_at)}")]
    points = case_points(audit)
    blocks = [
        wrap(f"gpuprof audit: {clean(audit.run_name)}", width),
        [*wrap(audit_title(audit), width), *wrap(sentence(audit.sentence), width)],
        fitting([CASE_HEADS, *map(case_cells, audit.cases)], width, (3,), "", (3, 1, 2)),
        bullet_lines(points, width) if points else [],
        [line for name, words in facts for line in wrap(words, width, f"{name:<15}", " " * 15)],
        ["Notes", *bullet_lines(audit.notes, width)] if audit.notes else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"
