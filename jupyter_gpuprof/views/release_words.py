"""What is said of a release, an offload and a return, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.idleness import Action
from jupyter_gpuprof.records.release import Held, ReaperNote, ReaperStatus, ReleaseReport
from jupyter_gpuprof.views.format import byte_size, clean, known, seconds, sentence

#: Rows of each table; the rest is summed up.
MOST_ROWS = 12

_NEXT: dict[Action, str] = {
    "warn": "a warning follows",
    "free": "memory that nobody uses is freed",
    "offload": "its tensors move to the host, and come back before the next cell",
    "suspend": "it is suspended",
    "shutdown": "it is shut down, and its variables are lost",
    "none": "",
    "end orphan": "it is ended",
}
_EXPERIMENTAL = "This is experimental: unless all its conditions hold then, nothing is done, and it says why."
_DONE: dict[Action, str] = {
    "shutdown": "It is shut down now; its variables are lost.",
    "warn": "",
}


def headline(report: ReleaseReport) -> str:
    """What it came to, in one sentence."""
    if not report.devices:
        return report.remarks[0] if report.remarks else "Nothing is away, so nothing came back."
    where = " and ".join(report.devices)
    if report.kind == "return":
        return _return_words(report, where)
    freed = (
        f"{byte_size(report.freed_bytes)} of {where} freed"
        if report.freed_bytes
        else f"Nothing of {where} freed"
    )
    if report.kind == "offload" and report.moved:
        freed += f"; {byte_size(report.moved_bytes)} of tensors are on the host until the next cell"
    return f"{freed}; {byte_size(report.reserved_bytes)} still held."


def tables(report: ReleaseReport) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Titles and rows of name, size and reason."""
    moved = "Came back" if report.kind == "return" else "Moved to the host"
    parts = [(moved, report.moved)]
    if report.kind == "release":
        parts.append(("Still held", report.still_held))
    else:
        parts.append(("Stayed where it is", report.stayed + _unseen(report)))
    return [(title, _rows(held)) for title, held in parts if held]


def remarks(report: ReleaseReport) -> tuple[str, ...]:
    """What else is to be said."""
    said = report.remarks if report.devices else report.remarks[1:]
    if report.kind != "return" and report.devices:
        said = (*said, "The driver's own context (some hundred MiB) goes only with the kernel.")
    return said


def note_words(note: ReaperNote) -> str:
    """What the kernel's reaper did, in one paragraph."""
    said = [note.sentence]
    if note.report is not None:
        said.append(headline(note.report))
    said += [_DONE.get(note.action, ""), *note.remarks]
    if note.next_action != "none" and known(note.next_s) is not None:
        said.append(f"In {seconds(note.next_s)}, {_NEXT[note.next_action]}.")
        said.append("%gpuprof keep 2h prevents it.")
    return " ".join(clean(words) for words in said if words)


def status_words(status: ReaperStatus) -> list[str]:
    """How the kernel's reaper stands, sentences."""
    if status.policy is None:
        if status.steps_back:
            return [sentence(f"The reaper of this kernel is off; {status.steps_back}.")]
        said = ["The reaper of this kernel is off; %gpuprof reaper on --after 30m turns it on."]
    else:
        policy = status.policy
        said = [
            f"The reaper of this kernel is on: {policy.action} after {seconds(policy.idle_timeout_s)} "
            f"without work, with a warning {seconds(policy.warn_before_s)} before."
        ]
        if policy.action == "suspend":
            said.append(_EXPERIMENTAL)
        if status.decision is not None and not status.steps_back:
            said.append(status.decision.sentence)
            said += [f"In the way: {veto}." for veto in status.decision.vetoes]
    if status.steps_back:
        said.append(f"It does nothing now: {status.steps_back}.")
    if status.trouble:
        said.append(f"It failed last: {status.trouble}.")
    return [sentence(words) for words in said]


def _return_words(report: ReleaseReport, where: str) -> str:
    came = (
        f"{byte_size(report.moved_bytes)} came back to {where} in {seconds(report.took_s)}"
        if report.moved
        else ""
    )
    if report.complete:
        return f"{came}." if came else "What was away is not used any more."
    stays = f"{byte_size(report.stayed_bytes)} stay on the host, and the next cell tries again"
    whys = dict.fromkeys(held.why for held in report.stayed)
    return f"{came + '; ' if came else ''}{stays}: {'; '.join(whys)}."


def _unseen(report: ReleaseReport) -> tuple[Held, ...]:
    """Memory of no tensor of Python, which is neither moved nor in `stayed`."""
    return tuple(held for held in report.still_held if held.why) if report.kind == "offload" else ()


def _rows(held: tuple[Held, ...]) -> list[tuple[str, str, str]]:
    rows = [(clean(one.name), byte_size(one.size_bytes), clean(one.why)) for one in held[:MOST_ROWS]]
    rest = held[MOST_ROWS:]
    if rest:
        rows.append((f"{len(rest)} more", byte_size(sum(one.size_bytes for one in rest)), ""))
    return rows
