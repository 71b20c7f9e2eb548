"""Causes, what would not help, and levers in words, the same in text and in HTML."""

from __future__ import annotations

from jupyter_gpuprof.records.causes import Causes, HotLine
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import NO_SAMPLES, Remedy, Run
from jupyter_gpuprof.views.format import clean, counted, interval, known, percent, seconds, sentence, shorten

#: For each kind of causes: its heading, and the label that it explains.
_TITLES = {"input": "What making a batch consists of", "host": "What the host does"}
_EXPLAINS = {"input": "input-bound", "host": "host-bound"}
#: The part of a step whose colour stands for a kind of causes.
CAUSE_PARTS = {"input": "exposed_input", "host": "host_gap"}

LINE_HEADS = ("share", "95 % interval", "activity", "line", "code")
LEVER_HEADS = ("lever", "state", "seen", "helps when")
NO_HELP_TITLE = "What would not help"
LEVERS_TITLE = "Levers"
#: Labels that make levers the first thing to look at.
_OF_LEVERS = ("correctly sized", "compute-bound")

_CODE_WIDTH = 100


def told_causes(run: Run) -> list[tuple[str, str, Causes | Missing, bool]]:
    """What is told of causes: the kind, its heading, what is known, and whether the verdict is about it.

    Where the stacks were not sampled, or too few of what the verdict is not about, nothing is told.
    """
    labels = (run.verdict.label, *run.verdict.also)
    told = []
    for kind, causes in (("input", run.input_causes), ("host", run.host_causes)):
        asked = _EXPLAINS[kind] in labels
        if isinstance(causes, Causes) or (asked and causes != NO_SAMPLES):
            told.append((kind, _TITLES[kind], causes, asked))
    return told


def cause_name(name: str, run: Run) -> str:
    """An activity in plain words; on a CPU, launching is the computing itself."""
    return "torch's own work" if name == "launching" and run.device.kind == "cpu" else clean(name)


def causes_summary(causes: Causes) -> str:
    """What it is a share of, and what it rests on."""
    words = []
    if known(causes.batch_s) is not None:
        of = "work in a batch" if causes.of == "input" else "the training thread per step"
        words.append(f"{seconds(causes.batch_s)} of {of}")
    if known(causes.cpu_ratio) is not None:
        words.append(f"{percent(causes.cpu_ratio, 0)} of it on a processor")
    by = f", by {clean(causes.how)}" if causes.how else ""
    return (
        sentence("; ".join([", ".join(words), f"{counted(causes.samples, 'sample')}{by}"]).lstrip("; ")) + "."
    )


def line_cells(line: HotLine, run: Run) -> tuple[str, str, str, str, str]:
    """One costly line, under `LINE_HEADS`."""
    return (
        percent(line.share),
        interval(line.share),
        cause_name(line.cause, run),
        clean(line.place),
        shorten(line.text, _CODE_WIDTH),
    )


def lever_cells(lever: Lever) -> tuple[str, str, str, str]:
    """One lever, under `LEVER_HEADS`."""
    return clean(lever.name), clean(lever.state), clean(lever.detail), clean(lever.helps_when)


def levers_in_short(run: Run) -> str:
    """The levers by their state, those that do not apply left out."""
    named = {
        state: ", ".join(clean(lever.name) for lever in run.levers if lever.state == state)
        for state in ("on", "off", "unknown")
    }
    return "Levers: " + "; ".join(f"{state}: {names}" for state, names in named.items() if names)


def levers_matter(run: Run) -> bool:
    """Whether levers are the first thing to look at."""
    return run.verdict.label in _OF_LEVERS


def try_words(remedy: Remedy) -> str:
    """How the remedy is tried, to be copied; "" where it cannot be."""
    return f"%gpuprof try {clean(remedy.setting)}" if remedy.setting else ""
