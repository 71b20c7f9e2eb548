"""Releases of the device, and what the kernel's reaper does, as plain text."""

from __future__ import annotations

from jupyter_gpuprof.records.release import ReaperNote, ReaperStatus, ReleaseReport
from jupyter_gpuprof.views.lines import bullet_lines, columns, wrap
from jupyter_gpuprof.views.release_words import headline, note_words, remarks, status_words, tables


def release_text(report: ReleaseReport, width: int = 100) -> str:
    """The report of a release, an offload or a return."""
    title = f"gpuprof {report.kind}"
    blocks = [[f"{title} (SIMULATED device)" if report.simulated else title, *wrap(headline(report), width)]]
    for name, rows in tables(report):
        blocks.append([name, *(line[:width] for line in columns(rows, (1,), "  "))])
    blocks.append(bullet_lines(remarks(report), width))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def return_line(report: ReleaseReport) -> str:
    """The line above a cell before which tensors came back, or could not."""
    return f"gpuprof: {headline(report)}"


def note_line(note: ReaperNote) -> str:
    """What the kernel's reaper did, for the last cell's output."""
    return f"gpuprof: {note_words(note)}"


def reaper_text(status: ReaperStatus, width: int = 100) -> str:
    """How the kernel's reaper stands."""
    return "\n".join(line for words in status_words(status) for line in wrap(words, width)) + "\n"
