"""A suspension, with all that must hold for one, as plain text."""

from __future__ import annotations

from jupyter_gpuprof.records.suspension import SuspendReport
from jupyter_gpuprof.views.format import clean
from jupyter_gpuprof.views.lines import wrap

TITLE = "gpuprof suspend (experimental)"


def suspend_text(report: SuspendReport, width: int = 100) -> str:
    """The report of a suspension: what happened, and every condition with what was found."""
    return "\n".join([TITLE, *wrap(clean(report.sentence), width), "", *condition_lines(report)]) + "\n"


def condition_lines(report: SuspendReport) -> list[str]:
    """A line for each condition."""
    return [f"  [{'x' if one.holds else ' '}] {one.name}: {clean(one.found)}" for one in report.conditions]


def suspend_note(report: SuspendReport) -> str:
    """The report in one paragraph: every condition is named, those that do not hold with what was found."""
    holding = "; ".join(one.name for one in report.conditions if one.holds)
    failing = "; ".join(f"{one.name} ({clean(one.found)})" for one in report.conditions if not one.holds)
    words = [f"Suspend (experimental): {clean(report.sentence)}"]
    words += [f"Not so: {failing}."] if failing else []
    return " ".join([*words, f"Checked, and so: {holding}."] if holding else words)


def restore_line(report: SuspendReport) -> str:
    """The line above a cell that waited for its device memory."""
    return f"gpuprof (experimental): {clean(report.sentence)}"
