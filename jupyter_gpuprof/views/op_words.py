"""Gpu ops, their window and ranks in words, the same in text and in HTML."""

from __future__ import annotations

import re
from functools import lru_cache
from statistics import median

from jupyter_gpuprof.records.ops import OpSpan, OpWindow, StepTimeline
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.reading import Number
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.views.format import clean, counted, known, percent, seconds, sentence, shorten

#: The heads of the table of ranks, in the order of `rank_readings` behind rank and verdict.
RANK_HEADS = (
    "rank",
    "verdict",
    "step",
    "input wait",
    "communication",
    "waits for others",
    "busy",
    "host gap",
)

# What makes names of C++ long: argument lists within a name, namespaces, and what the function returns.
_INNER_ARGUMENTS = re.compile(r"\([^()]*\)(?=(?: const)?::)")
_ANONYMOUS = "(anonymous namespace)::"
_NAMESPACES = re.compile(r"\b(?:[a-z_]\w*::)+(?=[A-Za-z_])")
_ARGUMENTS = re.compile(r"(?<=[\w>])\(")
_READ = 4000  # characters of a name


@lru_cache(maxsize=1 << 12)
def op_name(name: str, width: int) -> str:
    """A gpu op's name in at most `width` characters, without namespaces, argument types and ``void``."""
    words = clean(name[:_READ])
    if words.endswith((")", "…")) or "<" in words:
        words = words.removeprefix("void ").replace(_ANONYMOUS, "")
        words = _NAMESPACES.sub("", _INNER_ARGUMENTS.sub("", words))
        for opening in _ARGUMENTS.finditer(words):
            before = words[: opening.start()]
            if before.count("<") <= before.count(">") and words.endswith((")", "…")):
                words = before
                break
    return shorten(words or clean(name[:_READ]), width)


def bar_name(span: OpSpan, width: int = 80) -> str:
    """What a bar of a timeline stands for."""
    count, merged, longest = span.name.partition(" ops (longest: ")
    if not (merged and count.isdecimal()):
        return op_name(span.name, width)
    return f"{count} ops, the longest {op_name(longest.removesuffix(')'), width)}"


def bar_words(span: OpSpan) -> str:
    """What a bar of a timeline stands for, how long, how full and when."""
    busy = "" if span.busy_ratio == 1 else f" of which {percent(span.busy_ratio, 0)} busy"
    return f"{bar_name(span)}: {seconds(span.duration_s)}{busy}, from {seconds(span.start_s)} on"


def lane_name(kind: str) -> str:
    """What a lane of a timeline shows; of the host only the optimizer is drawn."""
    return "optimizer" if kind == "host" else clean(kind)


def step_words(timeline: StepTimeline, lone: bool, several_ranks: bool) -> str:
    """Which step is drawn, and how long it took."""
    which = "the only" if lone else clean(timeline.which)
    step = "the whole window" if timeline.which == "window" else f"{which} step, number {timeline.step}"
    whose = f"rank {timeline.rank}: " if several_ranks else ""
    return sentence(f"{whose}{step}, {seconds(timeline.duration_s)}")


def what_it_did(run: Run) -> str:
    """The heading of what is told of the window."""
    return "What the host did" if run.device.kind == "cpu" else "What the device did"


def window_words(ops: OpWindow) -> str:
    """Which stretch of time the figures are of."""
    whose = "" if ops.rank is None else f" of rank {ops.rank}"
    if not ops.steps:
        return f"{seconds(ops.wall_s)}{whose}, {clean(ops.edges)}; where steps begin is not known."
    return f"{counted(ops.steps, 'step')}{whose} in {seconds(ops.wall_s)}, by {clean(ops.edges)}."


def window_readings(ops: OpWindow, on_cpu: bool) -> tuple[tuple[str, Number], ...]:
    """The shares of the window that are told, by name."""
    return (
        ("busy" if on_cpu else "device busy", ops.busy_ratio),
        ("communication", ops.communication_ratio),
        ("fetching batches", ops.loader_ratio),
        ("input wait", ops.exposed_input_ratio),
    )


def rank_readings(row: RankRow) -> tuple[tuple[str, Number], ...]:
    """The numbers of a rank as words and as they are, under `RANK_HEADS`."""
    ratios = (
        row.exposed_input_ratio,
        row.exposed_communication_ratio,
        row.exposed_skew_ratio,
        row.busy_ratio,
        row.host_gap_ratio,
    )
    return ((seconds(row.step_s), row.step_s), *((percent(ratio), ratio) for ratio in ratios))


def rank_marks(ranks: Ranks, row: RankRow) -> tuple[str, ...]:
    """What is remarkable about a rank."""
    remarkable = (("late", ranks.late_rank), ("starved", ranks.starved_rank))
    return tuple(mark for mark, rank in remarkable if rank == row.rank)


def chosen_ranks(ranks: Ranks, most: int) -> tuple[int, ...]:
    """The ranks to show where there is room for `most`: late, starved, the first, then the extremes.

    An extreme is furthest from the median in one of the columns of the table; each column has its turn.
    """
    first = ranks.rows[0].rank if ranks.rows else None
    wanted = [rank for rank in (ranks.late_rank, ranks.starved_rank, first) if rank is not None]
    if len(ranks.rows) <= most:
        return tuple(row.rank for row in ranks.rows)
    for turn in zip(*_furthest_first(ranks), strict=True):
        wanted += turn
    return tuple(sorted(list(dict.fromkeys(wanted))[:most]))


def chosen_rows(ranks: Ranks, most: int) -> tuple[list[RankRow], str]:
    """The rows of `chosen_ranks`, and a sentence on what is left out, "" if nothing is."""
    chosen = set(chosen_ranks(ranks, most))
    rows = [row for row in ranks.rows if row.rank in chosen]
    left_out = len(ranks.rows) - len(rows)
    if not left_out:
        return rows, ""
    return rows, (
        f"The {len(rows)} ranks that stand out most of {len(ranks.rows)};"
        f" {left_out} nearer to the median are left out here and kept in the run."
    )


def drawn_timelines(run: Run, most_ranks: int) -> tuple[list[StepTimeline], str]:
    """The timelines to draw, and a sentence on the ranks that are left out, "" if none is."""
    if not isinstance(run.ops, OpWindow):
        return [], ""
    timelines = list(run.ops.timelines)
    drawn = list(dict.fromkeys(timeline.rank for timeline in timelines))
    if len(drawn) <= most_ranks:
        return timelines, ""
    chosen = set(chosen_ranks(run.ranks, most_ranks)) & set(drawn) if run.ranks else set()
    chosen = chosen or set(drawn[:most_ranks])
    kept = [timeline for timeline in timelines if timeline.rank in chosen]
    names = ", ".join(map(str, sorted(chosen)))
    return kept, f"Of {len(drawn)} ranks these are drawn, the first and those that stand out: {names}."


def _furthest_first(ranks: Ranks) -> list[list[int]]:
    """The ranks in the order of their distance from the median, for each column that tells them apart."""
    columns = zip(*([known(reading) for _, reading in rank_readings(row)] for row in ranks.rows), strict=True)
    orders = []
    for column in columns:
        numbers = [value for value in column if value is not None]
        if not numbers:
            continue
        middle = median(numbers)
        apart = [-abs((middle if value is None else value) - middle) for value in column]
        order = sorted(range(len(column)), key=lambda i: apart[i])
        orders.append([ranks.rows[i].rank for i in order])
    return orders
