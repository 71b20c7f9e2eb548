"""Runs as plain text for a terminal: no colour codes, nothing but lines."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.records.run import Remedy, Run
from jupyter_gpuprof.views.causes_text import causes_blocks, levers_block, no_help_block
from jupyter_gpuprof.views.causes_words import try_words
from jupyter_gpuprof.views.format import clean, sentence, shorten
from jupyter_gpuprof.views.lines import bullet_lines, columns, wrap
from jupyter_gpuprof.views.ops_text import ops_block, ranks_block
from jupyter_gpuprof.views.parts import compute_note, measured_parts, missing_words
from jupyter_gpuprof.views.rows import HISTORY_HEADS, comparison_doubts, comparison_rows, history_cells
from jupyter_gpuprof.views.sentences import (
    clock_words,
    device_words,
    loader_words,
    memory_words,
    overhead_words,
    prediction,
    step_time_words,
    steps_words,
)
from jupyter_gpuprof.views.share_lines import share_lines

_NARROWEST = 48


def run_text(run: Run, width: int = 100) -> str:
    """The report of one run, no line wider than `width` (or than 48, if that is more)."""
    width = max(width, _NARROWEST)
    blocks = [
        _verdict_block(run, width),
        _parts_block(run, width),
        ranks_block(run.ranks, width),
        *causes_blocks(run, width),
        _remedies_block(run, width),
        no_help_block(run, width),
        _list_block("Doubts", run.verdict.doubts, width),
        _list_block("Near misses", run.verdict.near, width),
        ops_block(run, width),
        levers_block(run, width),
        _facts_block(run, width),
        _list_block("Notes", run.notes, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def compare_text(a: Run, b: Run) -> str:
    """Two runs side by side: `a` before, `b` after, and what changed."""
    rows = comparison_rows(a, b)
    heads = ("", shorten(a.name, 28), shorten(b.name, 28), "change")
    table = columns([heads, *((row.name, row.before, row.after, row.change) for row in rows)], right=(1, 2))
    return "\n".join(["gpuprof: before and after", "", *table, *_doubt_lines(comparison_doubts(a, b))]) + "\n"


def history_text(rows: Sequence[Run]) -> str:
    """A list of runs, in the order given (newest first): one line each."""
    if not rows:
        return "No runs yet.\n"
    cells = [history_cells(run) for run in rows]
    short = [(run_id, when, shorten(name, 32), *rest) for run_id, when, name, *rest in cells]
    return "\n".join(columns([HISTORY_HEADS, *short], right=(4, 5))) + "\n"


def _verdict_block(run: Run, width: int) -> list[str]:
    verdict = run.verdict
    strength = "" if verdict.strength == "none" else f" ({verdict.strength})"
    also = f", also {', '.join(clean(label) for label in verdict.also)}" if verdict.also else ""
    title = wrap(f"gpuprof: {clean(run.name)}", width)
    if run.device.simulated:
        title.append("SIMULATED device: no real hardware was measured")
    return [
        *title,
        "",
        *wrap(f"{verdict.label.upper()}{strength}{also}", width),
        *wrap(sentence(verdict.sentence), width),
        *bullet_lines(verdict.reasons, width),
    ]


def _parts_block(run: Run, width: int) -> list[str]:
    parts = measured_parts(run)
    seen = [part for part in parts if part.share.value != 0 or part.share.high != 0]
    lines = ["Where the time goes", *share_lines([(part.name, part.share) for part in seen], width)]
    unseen = [part.name for part in parts if part not in seen]
    if unseen:
        lines += wrap(f"none seen: {', '.join(unseen)}", width, "  ")
    note = compute_note(run)
    if note:
        lines += wrap(note, width, "  ")
    missing = missing_words(run)
    if missing:
        lines += wrap(f"not measured: {missing}", width, "  ")
    return lines


def _remedies_block(run: Run, width: int) -> list[str]:
    if not run.remedies:
        return []
    lines = ["What to try"]
    for rank, remedy in enumerate(run.remedies, start=1):
        lines += _remedy_lines(run, remedy, f"  {rank}. ", width)
    return lines


def _remedy_lines(run: Run, remedy: Remedy, lead: str, width: int) -> list[str]:
    title, gain = sentence(remedy.title), prediction(run, remedy)
    indent = " " * len(lead)
    room = width - len(lead) - len(gain)
    if len(title) + 2 <= room:
        lines = [f"{lead}{title}{gain:>{width - len(lead) - len(title)}}"]
    else:
        lines = [*wrap(title, width, lead, indent), *wrap(gain, width, indent)]
    return [*lines, *wrap(sentence(remedy.how), width, indent), *wrap(try_words(remedy), width, indent)]


def _list_block(title: str, items: Sequence[str], width: int) -> list[str]:
    return [title, *bullet_lines(items, width)] if items else []


def _facts_block(run: Run, width: int) -> list[str]:
    memory = memory_words(run)
    facts = [
        ("Steps", steps_words(run)),
        ("", step_time_words(run)),
        *([("Memory", memory)] if memory else []),
        *(("Loader", loader_words(loader)) for loader in run.loaders),
        ("Device", f"{device_words(run.device)}; {clock_words(run)}"),
        ("Overhead", overhead_words(run)),
    ]
    return [line for name, words in facts for line in wrap(words, width, f"{name:<10}", " " * 10)]


def _doubt_lines(doubts: Sequence[str]) -> list[str]:
    return ["", *doubts] if doubts else []
