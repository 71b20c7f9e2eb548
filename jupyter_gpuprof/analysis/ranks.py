"""The ranks of one job side by side: who is starved, who is late, and what the others pay for it.

A collective ends on all ranks together, when the last one has entered and the data has moved. So the
shortest time that any rank was inside is the *transfer*, and what a rank was inside longer is *skew*:
waiting for the rank that entered last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from jupyter_gpuprof.analysis.collectives import Match, match_collectives
from jupyter_gpuprof.analysis.intervals import difference, length_per_window, union
from jupyter_gpuprof.analysis.trace_breakdown import activity_of, step_numbers
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.records.ranks import RankRow
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.records.trace import Breakdown, Collectives, RankComparison, RankTrace, TraceSet

#: A rank is called late when it causes this share of all waiting, and the waiting is worth a word.
LATE_RATIO = 0.5
#: Waiting for data or for a rank is worth a word above this share of the wall time.
WORTH_A_WORD_RATIO = 0.05
#: Traces further apart are of different recordings; clocks of machines differ by less.
ONE_RECORDING_NS = 60_000_000_000

_NO_MATCH = "no collective was found on all ranks"


_ONE_JOB = "Give the traces of one job, recorded together."


def ranks_of_one_job(found: TraceSet) -> TraceSet:
    """One trace per rank, numbered and sorted by rank.

    Of several traces of a rank the last recorded is kept. Where a trace does not tell its rank, all are
    numbered by file name. What is left out or missing is noted.

    Raises:
        TraceError: the traces are of different jobs or recordings.
    """
    traces, notes = list(found.ranks), list(found.notes)
    sizes = {trace.world_size: trace for trace in traces if trace.world_size is not None}
    if len(sizes) > 1:
        (one_size, one), (other_size, other) = list(sizes.items())[:2]
        raise TraceError(
            f"These are ranks of different jobs: {one.source} is one of {one_size} ranks,"
            f" {other.source} one of {other_size}.",
            _ONE_JOB,
        )
    if len(traces) > 1 and any(trace.rank is None for trace in traces):
        notes.append("Not every trace tells its rank, so the ranks are numbered by file name.")
        traces = [replace(t, rank=i) for i, t in enumerate(sorted(traces, key=lambda t: t.source))]
    by_rank: dict[int, RankTrace] = {}
    for trace in sorted(traces, key=lambda t: _recorded(t)[0]):
        rank = trace.rank or 0
        if rank in by_rank:
            notes.append(f"Left out: {by_rank[rank].source}; {trace.source} is a later trace of rank {rank}.")
        by_rank[rank] = replace(trace, rank=rank)
    kept = [by_rank[rank] for rank in sorted(by_rank)]
    _check_recorded_together(kept)
    missing = sorted(set(range(max(sizes, default=0))) - set(by_rank)) if len(kept) > 1 else []
    if missing:
        notes.append(
            f"Of {len(kept) + len(missing)} ranks these are missing: {', '.join(map(str, missing))}."
            " The late rank may be one of them, and transfer may hold waiting for them."
        )
    return TraceSet(tuple(kept), tuple(notes))


def compare(traces: Sequence[RankTrace], breakdowns: Sequence[Breakdown]) -> RankComparison:
    """Put ranks side by side.

    Args:
        traces: one per rank, of one job.
        breakdowns: theirs, in the same order.
    """
    match = match_collectives(traces)
    rows = [
        _row(trace, broken_down, match, column)
        for column, (trace, broken_down) in enumerate(zip(traces, breakdowns, strict=True))
    ]
    late, starved = _late_rank(rows), _starved_rank(rows)
    waits = [row.exposed_input_s for row in rows if not isinstance(row.exposed_input_s, Missing)]
    sentences = []
    if starved is not None:
        sentences.append(_starved_sentence(rows, starved))
    if late is not None:
        sentences.append(_late_sentence(rows, late, match.collectives))
    return RankComparison(
        rows=tuple(rows),
        collectives=match.collectives,
        late_rank=None if late is None else rows[late].rank,
        starved_rank=None if starved is None else rows[starved].rank,
        input_spread_s=max(waits) - min(waits) if waits else Missing("no rank has loader marks"),
        sentences=tuple(sentences),
        notes=match.notes,
    )


def job_table(traces: Sequence[RankTrace], breakdowns: Sequence[Breakdown]) -> StepTable:
    """The steps of a whole job: per step the mean over its ranks.

    Steps are matched by their number where all ranks tell it, else by their order from the first. A part
    is missing if it is missing on every rank.
    """
    tables = [broken_down.table for broken_down in breakdowns]
    if len(tables) == 1:
        return tables[0]
    numbers = [step_numbers(trace, len(table.seconds)) for trace, table in zip(traces, tables, strict=True)]
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    if not common:  # the ranks were recorded at different steps
        numbers = [tuple(range(len(table.seconds))) for table in tables]
        common = list(range(min(len(table.seconds) for table in tables)))
    seconds = np.mean(
        [t.seconds[[n.index(step) for step in common]] for n, t in zip(numbers, tables, strict=True)], axis=0
    )
    everywhere = set(tables[0].missing).intersection(*(table.missing for table in tables[1:]))
    return StepTable(
        seconds=seconds,
        steps_per_row=1,
        missing={part: tables[0].missing[part] for part in everywhere},
        sample_s=seconds.sum(axis=1) if all(b.steps for b in breakdowns) else np.empty(0),
    )


def _row(trace: RankTrace, broken_down: Breakdown, match: Match, column: int) -> RankRow:
    table, collectives, ahead_ns = broken_down.table, match.collectives, match.ahead_ns[column]
    steps = max(broken_down.steps, 1)

    def part_s(part: Part) -> Number:
        return Missing(table.missing[part]) if part in table.missing else table.part_s(part)

    transfer_s: Number
    skew_s: Number
    exposed_skew_s: Number
    caused_s: Number
    transfer_s = skew_s = exposed_skew_s = caused_s = Missing(_NO_MATCH)
    if len(collectives):
        skew_ns = collectives.skew_ns
        entered_ns = collectives.span_ns[:, column, 0] + ahead_ns
        waiting = union(np.column_stack((entered_ns, entered_ns + skew_ns[:, column])))
        exposed = difference(waiting, activity_of(trace, broken_down.device).compute)
        transfer_s = float(collectives.transfer_ns.sum()) * 1e-9
        skew_s = float(skew_ns[:, column].sum()) * 1e-9
        exposed_skew_s = float(length_per_window(exposed, broken_down.edges_ns).sum()) * 1e-9
        caused_s = float(skew_ns[collectives.last == column].sum()) * 1e-9
    return RankRow(
        rank=trace.rank or 0,
        source=trace.source,
        steps=broken_down.steps,
        step_s=table.total_s / steps,
        exposed_input_s=_over(part_s(Part.INPUT), steps),
        exposed_input_ratio=_over(part_s(Part.INPUT), table.total_s),
        exposed_communication_ratio=_over(part_s(Part.COMMUNICATION), table.total_s),
        busy_ratio=broken_down.busy_ratio,
        host_gap_ratio=_over(part_s(Part.HOST_GAP), table.total_s),
        transfer_s=transfer_s,
        skew_s=skew_s,
        exposed_skew_ratio=_over(exposed_skew_s, table.total_s),
        caused_wait_s=caused_s,
        clock_ahead_s=float(ahead_ns) * 1e-9 if len(collectives) else Missing(_NO_MATCH),
    )


def _late_rank(rows: Sequence[RankRow]) -> int | None:
    """Position of the rank that the others wait for, if it causes most of the waiting and that is long."""
    caused_s = [row.caused_wait_s for row in rows if not isinstance(row.caused_wait_s, Missing)]
    if len(caused_s) < 2:
        return None
    late = int(np.argmax(caused_s))
    wall_s = sum(row.step_s * max(row.steps, 1) for row in rows) / len(rows)
    each_waits_s = caused_s[late] / (len(rows) - 1)
    is_late = caused_s[late] > LATE_RATIO * sum(caused_s) and each_waits_s > WORTH_A_WORD_RATIO * wall_s
    return late if is_late else None


def _starved_rank(rows: Sequence[RankRow]) -> int | None:
    """Position of the rank that waits longest for its data, if it waits much longer than the others."""
    readings = {i: row.exposed_input_s for i, row in enumerate(rows)}
    waits_s = {i: wait for i, wait in readings.items() if not isinstance(wait, Missing)}
    if len(waits_s) < 2:
        return None
    starved = max(waits_s, key=lambda i: waits_s[i])
    longer_s = waits_s.pop(starved) - median(waits_s.values())
    step_s = sum(row.step_s for row in rows) / len(rows)
    return starved if longer_s > WORTH_A_WORD_RATIO * step_s else None


def _starved_sentence(rows: Sequence[RankRow], starved: int) -> str:
    waits_s = [row.exposed_input_s for row in rows if not isinstance(row.exposed_input_s, Missing)]
    longest_s = max(waits_s)
    waits_s.remove(longest_s)
    return (
        f"Rank {rows[starved].rank} is starved: it waits {longest_s * 1e3:.1f} ms per step for its data,"
        f" the others {median(waits_s) * 1e3:.1f} ms."
    )


def _late_sentence(rows: Sequence[RankRow], late: int, collectives: Collectives) -> str:
    caused_ns = collectives.skew_ns.sum(axis=1) * (collectives.last == late)
    worst = int(caused_ns.argmax())
    # Collectives may lie before and after the marked steps: how many steps' worth of them is there?
    recorded_s = float(np.ptp(collectives.span_ns)) * 1e-9
    steps = max(rows[late].steps, 1, recorded_s / rows[late].step_s if rows[late].step_s else 1)
    each_ms = caused_ns.sum() * 1e-6 / (len(rows) - 1) / steps
    late_ms = collectives.late_ns[worst] * 1e-6
    return (
        f"Rank {rows[late].rank} is late: the others wait {each_ms:.1f} ms per step for it, most in"
        f" {collectives.names[worst]}, which it enters {late_ms:.1f} ms after the first."
    )


def _over(reading: Number, whole: float) -> Number:
    return reading if isinstance(reading, Missing) else reading / whole


def _recorded(trace: RankTrace) -> tuple[int, int]:
    """From the first thing recorded to the last, in ns."""
    spans = np.concatenate(
        [
            trace.ops.span_ns,
            trace.host_op_ns,
            *(m.span_ns for m in (trace.steps, trace.loaders, trace.optimizers, trace.collectives)),
        ]
    )
    return int(spans[:, 0].min()), int(spans[:, 1].max())


def _check_recorded_together(traces: Sequence[RankTrace]) -> None:
    first = min(traces, key=lambda t: _recorded(t)[1])
    last = max(traces, key=lambda t: _recorded(t)[0])
    apart_ns = _recorded(last)[0] - _recorded(first)[1]
    if apart_ns > ONE_RECORDING_NS:
        raise TraceError(
            f"These are ranks of different jobs or recordings: {first.source} ends"
            f" {apart_ns * 1e-9:.0f} s before {last.source} begins.",
            _ONE_JOB,
        )
