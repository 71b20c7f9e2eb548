"""The ranks of a live distributed run, brought together by rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jupyter_gpuprof.analysis.conclude import conclude
from jupyter_gpuprof.analysis.ranks import compare
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.timing import StepTable
from jupyter_gpuprof.records.trace import RankComparison
from jupyter_gpuprof.store.rankfolder import RankReport

#: A rank is starved if it waits for its data this much longer, as a share of the step, than the median.
STARVED_EXCESS = 0.05
#: A rank is late if the others are in collectives for this much longer, as a share of the time.
LATE_EXCESS = 0.10
_NO_WINDOW = "needs a kernel window on every rank"


def merge_ranks(reports: Sequence[RankReport], facts: Facts, world_size: int) -> Run:
    """One run of all ranks: rank 0's, judged over the mean of the ranks, with a row per rank.

    Args:
        reports: those that came, rank 0's first.
        facts: rank 0's context.
        world_size: how many there should be.
    """
    compared = _compare(reports, world_size)
    rows = [_row(report, compared) for report in reports]
    late = compared.late_rank if compared else None
    tails: tuple[str, ...] = ()
    if compared is None:
        rows, late, tails = _by_tails(rows)
    starved = compared.starved_rank if compared else _starved(rows)
    sentences = list(compared.sentences) if compared else list(tails)
    if starved is not None and not any(f"ank {starved} is starved" in s for s in sentences):
        sentences.insert(0, f"Rank {starved} is starved: the others wait for it in their collectives.")
    waits = [float(row.exposed_input_s) for row in rows if not isinstance(row.exposed_input_s, Missing)]
    ranks = Ranks(
        rows=tuple(rows),
        late_rank=late,
        starved_rank=starved,
        input_spread_s=max(waits) - min(waits) if waits else Missing("no loader was seen"),
        exposed_skew_ratio=_mean([row.exposed_skew_ratio for row in rows]),
        sentences=tuple(sentences),
    )
    skew = ranks.exposed_skew_ratio
    job_facts = replace(
        facts,
        device=replace(facts.device, count=world_size),
        exposed_skew_ratio=0.0 if isinstance(skew, Missing) else float(skew),
        others_wait_ratio=others_wait_ratio(ranks),
        late_rank=ranks.late_rank,
        ranks=world_size,
    )
    conclusion = conclude(job_table([report.table for report in reports]), job_facts)
    absent = sorted(set(range(world_size)) - {report.rank for report in reports})
    notes = list(reports[0].run.notes)
    if absent:
        notes.append(f"No report came from rank {', '.join(map(str, absent))}: it is not in these numbers.")
    return replace(
        reports[0].run,
        device=job_facts.device,
        steps=conclusion.steps,
        shares=conclusion.shares,
        verdict=conclusion.verdict,
        remedies=conclusion.remedies,
        no_help=conclusion.no_help,
        notes=tuple(notes),
        ranks=ranks,
    )


def others_wait_ratio(ranks: Ranks) -> float:
    """How long the median of the other ranks waits for the late one, as a share of its time."""
    waits = [
        float(row.exposed_skew_ratio)
        for row in ranks.rows
        if row.rank != ranks.late_rank and not isinstance(row.exposed_skew_ratio, Missing)
    ]
    return float(np.median(waits)) if waits and ranks.late_rank is not None else 0.0


def _by_tails(rows: Sequence[RankRow]) -> tuple[list[RankRow], int | None, tuple[str, ...]]:
    """Without windows: a transfer takes all ranks alike, so what a rank communicates longer, it waits.

    Returns:
        The rows with that, the rank that waits least if the others wait clearly longer, and a sentence.
    """
    ratios = [row.exposed_communication_ratio for row in rows]
    known = [float(ratio) for ratio in ratios if not isinstance(ratio, Missing)]
    if len(known) < max(2, len(rows)):
        return list(rows), None, ()
    least = min(known)
    waiting = [replace(row, exposed_skew_ratio=ratio - least) for row, ratio in zip(rows, known, strict=True)]
    late = waiting[known.index(least)].rank
    others = float(np.median([ratio for row, ratio in zip(rows, known, strict=True) if row.rank != late]))
    if others - least < LATE_EXCESS:
        return waiting, None, ()
    sentence = (
        f"Rank {late} is probably late: it spends {100 * least:.0f} % in collectives, the others "
        f"{100 * others:.0f} %. A kernel window on every rank (--kernels 8) tells for certain."
    )
    return waiting, late, (sentence,)


def job_table(tables: Sequence[StepTable]) -> StepTable:
    """The mean over ranks of each step; a part is missing if it is missing on any rank."""
    sizes = {table.steps_per_row for table in tables}
    rows = min(len(table.seconds) for table in tables)
    missing = {part: why for table in reversed(tables) for part, why in table.missing.items()}
    if len(sizes) > 1 or not rows:  # ranks with very different numbers of steps: sums only
        seconds = np.mean([table.seconds.sum(axis=0, keepdims=True) for table in tables], axis=0)
        return replace(tables[0], seconds=seconds, missing=missing)
    return replace(
        tables[0],
        seconds=np.mean([table.seconds[:rows] for table in tables], axis=0),
        steps=min(table.steps for table in tables),
        missing=missing,
    )


def _compare(reports: Sequence[RankReport], world_size: int) -> RankComparison | None:
    """The kernel windows side by side, if every rank has one."""
    traces = [replace(r.trace, rank=r.rank, world_size=world_size) for r in reports if r.trace is not None]
    if len(traces) < len(reports):
        return None
    try:
        return compare(traces, [breakdown(trace) for trace in traces])
    except TraceError:
        return None


def _row(report: RankReport, compared: RankComparison | None) -> RankRow:
    run = report.run
    mean_s = run.steps.mean_s
    input_ratio = _value(run.shares.exposed_input)
    known = not isinstance(mean_s, Missing) and not isinstance(input_ratio, Missing)
    unknown: Number = Missing(_NO_WINDOW)
    row = RankRow(
        rank=report.rank,
        source=f"rank {report.rank}",
        steps=run.steps.counted,
        step_s=0.0 if isinstance(mean_s, Missing) else float(mean_s),
        exposed_input_s=float(input_ratio) * float(mean_s)  # type: ignore[arg-type]
        if known
        else Missing("not measured"),
        exposed_input_ratio=input_ratio,
        exposed_communication_ratio=_value(run.shares.exposed_communication),
        busy_ratio=Missing(run.ops.reason) if isinstance(run.ops, Missing) else run.ops.busy_ratio,
        host_gap_ratio=_value(run.shares.host_gap),
        transfer_s=unknown,
        skew_s=unknown,
        exposed_skew_ratio=unknown,
        caused_wait_s=unknown,
        clock_ahead_s=unknown,
        label=run.verdict.label,
    )
    if compared is None:
        return row
    seen = next(r for r in compared.rows if r.rank == report.rank)
    return replace(
        row,
        transfer_s=seen.transfer_s,
        skew_s=seen.skew_s,
        exposed_skew_ratio=seen.exposed_skew_ratio,
        caused_wait_s=seen.caused_wait_s,
        clock_ahead_s=seen.clock_ahead_s,
    )


def _value(share: Share) -> Number:
    return share.value if isinstance(share, Estimate) else share


def _mean(readings: Sequence[Number]) -> Number:
    known = [float(r) for r in readings if not isinstance(r, Missing)]
    return sum(known) / len(known) if known else Missing(_NO_WINDOW)


def _starved(rows: Sequence[RankRow]) -> int | None:
    """The rank that waits for its data clearly longer than the others."""
    waits = {
        row.rank: float(row.exposed_input_ratio)
        for row in rows
        if not isinstance(row.exposed_input_ratio, Missing)
    }
    if len(waits) < 2:
        return None
    worst = max(waits, key=lambda rank: waits[rank])
    others = [wait for rank, wait in waits.items() if rank != worst]
    return worst if waits[worst] > float(np.median(others)) + STARVED_EXCESS else None
