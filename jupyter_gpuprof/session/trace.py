"""Stored traces to a `Run`: the same record, verdict and report as a live cell's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.conclude import conclude
from jupyter_gpuprof.analysis.ranks import compare, job_table, ranks_of_one_job
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.ops import OpWindow
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Memory, Overhead, Run
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.records.trace import Breakdown, RankTrace
from jupyter_gpuprof.session.opwindow import describe_window
from jupyter_gpuprof.session.ranks import others_wait_ratio
from jupyter_gpuprof.store.runs import new_run_id, save_run

#: Host work between steps has no marks of its own in a trace.
_NOT_NAMED = "a trace does not name it; it is part of the host gap"
_BETWEEN = (Part.EPOCH_START, Part.OTHER, Part.CHECKPOINT, Part.VALIDATION)


def trace_run(
    paths: Sequence[str | PathLike[str]],
    *,
    name: str = "",
    progress: Callable[[int, int], None] | None = None,
    save: bool = True,
) -> Run:
    """The run that stored traces tell of.

    Args:
        paths: trace files, archives and folders; several ranks must be of one job.
        name: how to call the run; by default the first path's name.
        progress: called with bytes done and bytes in all; what it raises ends the reading.
        save: keep the run in the ledger database.

    Raises:
        TraceError: nothing in them can be judged.
    """
    found = ranks_of_one_job(read_traces(paths, progress))
    traces, breakdowns, unread = _break_down(found.ranks)
    table = _with_between_missing(job_table(traces, breakdowns))
    ranks = _ranks(traces, breakdowns) if len(traces) > 1 else None
    first = traces[0]
    memory: Number = Missing("a trace does not tell the peak memory")
    facts = Facts(
        device=first.device,
        memory=Memory(memory, memory),
        live=False,
        optimizer_steps=len(first.optimizers) or Missing("the trace has no marks of them"),
        exposed_skew_ratio=_known(ranks.exposed_skew_ratio) if ranks else 0.0,
        others_wait_ratio=others_wait_ratio(ranks) if ranks else 0.0,
        late_rank=ranks.late_rank if ranks else None,
        ranks=len(traces),
    )
    conclusion = conclude(table, facts)
    nothing: Number = Missing("nothing was measured here: the trace was stored")
    run = Run(
        run_id=new_run_id(started := clock.utc_now()),
        name=name or _name_of(paths),
        started_at=started,
        device=replace(first.device, count=max(first.device.count, len(traces))),
        clock="host" if first.device.kind == "cpu" else "device",
        steps=conclusion.steps,
        shares=conclusion.shares,
        verdict=conclusion.verdict,
        remedies=conclusion.remedies,
        no_help=conclusion.no_help,
        overhead=Overhead(nothing, nothing),
        memory=facts.memory,
        notes=tuple(dict.fromkeys((*found.notes, *unread, *(n for b in breakdowns for n in b.notes)))),
        source="trace",
        ops=_window(traces, breakdowns, ranks),
        ranks=ranks,
    )
    if save:
        save_run(run)
    return run


def _break_down(ranks: Iterable[RankTrace]) -> tuple[list[RankTrace], list[Breakdown], list[str]]:
    """Each rank's breakdown; ranks that have none become notes, unless none has one."""
    traces, breakdowns, failures = [], [], []
    for trace in ranks:
        try:
            breakdowns.append(breakdown(trace))
            traces.append(trace)
        except TraceError as error:
            failures.append(error)
    if not traces:
        raise failures[0] if failures else TraceError("No trace was named.")
    return traces, breakdowns, [f"Left out: {error.args[0]}" for error in failures]


def _with_between_missing(table: StepTable) -> StepTable:
    return replace(table, missing={**dict.fromkeys(_BETWEEN, _NOT_NAMED), **table.missing})


def _ranks(traces: Sequence[RankTrace], breakdowns: Sequence[Breakdown]) -> Ranks:
    compared = compare(traces, breakdowns)
    rows = tuple(
        replace(row, label=_label(trace, broken_down))
        for row, trace, broken_down in zip(compared.rows, traces, breakdowns, strict=True)
    )
    return Ranks(
        rows=rows,
        late_rank=compared.late_rank,
        starved_rank=compared.starved_rank,
        input_spread_s=compared.input_spread_s,
        exposed_skew_ratio=_mean([row.exposed_skew_ratio for row in rows], [_wall_s(row) for row in rows]),
        sentences=(*compared.sentences, *compared.notes),
    )


def _label(trace: RankTrace, broken_down: Breakdown) -> str:
    """The verdict on one rank by itself."""
    unknown: Number = Missing("a trace does not tell the peak memory")
    facts = Facts(device=trace.device, memory=Memory(unknown, unknown), live=False)
    verdict = conclude(_with_between_missing(broken_down.table), facts).verdict
    return ", also ".join((verdict.label, *verdict.also))


def _wall_s(row: RankRow) -> float:
    return row.step_s * max(row.steps, 1)


def _mean(readings: Sequence[Number], weights: Sequence[float]) -> Number:
    """The mean of those that are numbers."""
    known = [(r, w) for r, w in zip(readings, weights, strict=True) if not isinstance(r, Missing)]
    if not known or not sum(w for _, w in known):
        return Missing("no collectives were found on all ranks")
    return sum(float(r) * w for r, w in known) / sum(w for _, w in known)


def _known(reading: Number) -> float:
    return 0.0 if isinstance(reading, Missing) else float(reading)


def _window(traces: Sequence[RankTrace], breakdowns: Sequence[Breakdown], ranks: Ranks | None) -> OpWindow:
    """The window of the rank that says most: the late one, or the first."""
    column = 0
    if ranks is not None and ranks.late_rank is not None:
        column = next(i for i, row in enumerate(ranks.rows) if row.rank == ranks.late_rank)
    return describe_window(traces, breakdowns, column)


def _name_of(paths: Sequence[str | PathLike[str]]) -> str:
    return Path(paths[0]).name.partition(".")[0] or Path(paths[0]).name if paths else "trace"
