"""The words and cells of a fleet's report and of a replay, the same in text, HTML and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jupyter_gpuprof.records.fleet import Refused
from jupyter_gpuprof.records.fleetreplay import FleetComparison, Outcome, Waits
from jupyter_gpuprof.records.fleetreport import FleetGroup, FleetReport, Pooling
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.spotwords import span
from jupyter_gpuprof.views.format import (
    clean,
    counted,
    interval,
    known,
    moment,
    number,
    percent,
    seconds,
    why,
)

#: Rows of a table; the rest is summed up in words.
MOST_ROWS = 12
#: Files named in a title.
_MOST_NAMES = 3
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WAIT_HEADS = ("jobs", "p50", "p90", "p99", "waiting")


def report_title(report: FleetReport) -> str:
    """What the report is about."""
    dates = f", {moment(report.since)} to {moment(report.until)}" if report.since else ""
    names = list(map(clean, report.sources))
    if len(names) > _MOST_NAMES:
        names = [names[0], counted(len(names) - 1, "more file")]
    return f"{', '.join(names)}{dates}"


def report_headline(report: FleetReport) -> str:
    """The three numbers that matter."""
    total = report.total
    if not report.rows and report.observed:
        return observed_words(report)[0]
    if not report.jobs and not isinstance(report.pooling, Missing):
        pooling = report.pooling
        share = pooling.allocated_gpu_hours / pooling.capacity_gpu_hours
        return f"{percent(share)} of {number(pooling.capacity_gpu_hours)} GPU-hours were allocated"
    words = (
        f"{hours(total.gpu_hours)} GPU-hours allocated by {counted(total.jobs, 'job')}; {busy_words(total)}"
    )
    return f"{words}; {p90_words(total.waits)}"


def headline_figures(report: FleetReport) -> list[tuple[str, str]]:
    """The numbers that stand out, each with its name; only those that there are."""
    total, found = report.total, []
    if report.jobs and not (isinstance(total.busy_ratio, Missing) and report.observed):
        found.append((percent(total.busy_ratio), "busy of allocated"))
    elif report.observed:
        found.append((percent(report.observed[0].busy_ratio), "busy of allocated, by Prometheus"))
    elif not isinstance(report.pooling, Missing):
        share = report.pooling.allocated_gpu_hours / report.pooling.capacity_gpu_hours
        found.append((percent(share), "allocated"))
    if total.waits.jobs:
        found.append((wait(total.waits.p90_s, total.waits), "p90 queue wait"))
    return found


def busy_words(group: FleetGroup) -> str:
    """Busy over allocated, with its doubt."""
    if isinstance(group.busy_ratio, Missing):
        return f"busy over allocated is not known ({why(group.busy_ratio)})"
    if isinstance(group.busy_ratio, Estimate):
        ends = interval(group.busy_ratio)[1:-1].replace(", ", " and ")
        return f"{percent(group.busy_ratio)} of what was seen was busy, between {ends} % of all"
    return f"{percent(group.busy_ratio)} of them busy"


def p90_words(waits: Waits) -> str:
    """The wait of nine jobs of ten."""
    if not waits.jobs:
        return "queue waits are not told"
    return f"p90 queue wait {wait(waits.p90_s, waits)}"


def wait(quantile: Number, waits: Waits) -> str:
    """A wait; where so many jobs did not start, more than the longest seen."""
    if isinstance(quantile, Missing):
        return f"> {wait_span(waits.longest_s)}" if waits.jobs else "n/a"
    return wait_span(quantile)


def wait_span(wait_s: float) -> str:
    """A wait in one unit."""
    return "0 s" if wait_s < 0.5 else span(wait_s)


def hours(value: float) -> str:
    """GPU-hours; a trace of something is never shown as zero."""
    return "<0.1" if 0 < value < 0.05 else f"{value:,.1f}"


def money(value: Number) -> str:
    """An amount in whatever money the price is in."""
    return "n/a" if isinstance(value, Missing) else f"{value:,.2f}"


def group_heads(name: str, groups: Sequence[FleetGroup]) -> tuple[str, ...]:
    """The heads of the table of groups, in the order of `group_cells`."""
    used = ("of reserved",) if any(known(group.used_ratio) is not None for group in groups) else ()
    return (name, "GPU-hours", "busy", *used, *WAIT_HEADS)


def group_cells(group: FleetGroup, groups: Sequence[FleetGroup]) -> tuple[str, ...]:
    """One line of it."""
    used: tuple[str, ...] = ()
    if any(known(one.used_ratio) is not None for one in groups):
        used = (percent(group.used_ratio),)
    busy = f"{percent(group.busy_ratio)} {interval(group.busy_ratio)}".strip()
    waits = wait_cells(group.waits)[1:]  # of those of its jobs whose wait is told
    return (clean(group.key) or "(none)", hours(group.gpu_hours), busy, *used, f"{group.jobs:,}", *waits)


def wait_cells(waits: Waits) -> tuple[str, ...]:
    """Under `WAIT_HEADS`."""
    quantiles = (wait(one, waits) for one in (waits.p50_s, waits.p90_s, waits.p99_s))
    return (f"{waits.jobs:,}", *quantiles, f"{waits.pending:,}" if waits.pending else "")


def refused_words(refused: Sequence[Refused]) -> list[str]:
    """What could not be used, and where."""
    found = []
    for one in refused:
        first = "first: " if one.count > 1 else ""
        found.append(f"{one.count:,} not used: {clean(one.reason)} ({first}{clean(one.first)})")
    return found


def read_words(report: FleetReport) -> list[str]:
    """How much of the files was read, and what was not."""
    return [coverage_words(report), *refused_words(report.refused)] if report.rows else []


def coverage_words(report: FleetReport) -> str:
    """How much of the files was read."""
    lost = sum(one.count for one in report.refused)
    if not lost:
        return f"all {report.rows:,} rows were read"
    return f"{max(report.rows - lost, 0):,} of {report.rows:,} rows were read"


def pooling_words(pooling: Pooling) -> list[str]:
    """What one pool would be."""
    share = pooling.allocated_gpu_hours / pooling.capacity_gpu_hours if pooling.capacity_gpu_hours else 0.0
    covered = pooling.coverable_gpu_hours / pooling.pending_gpu_hours if pooling.pending_gpu_hours else 0.0
    found = [
        f"{hours(pooling.allocated_gpu_hours)} of {hours(pooling.capacity_gpu_hours)} GPU-hours were"
        f" allocated ({percent(share)}), in {len(pooling.by_team)} partitions of {number(pooling.gpus)} GPUs",
        f"{hours(pooling.pending_gpu_hours)} GPU-hours waited in queues; GPUs idle in other partitions would"
        f" have covered {hours(pooling.coverable_gpu_hours)} of them ({percent(covered)})",
        f"there was a queue for {percent(pooling.queued_ratio)} of the time, and for"
        f" {percent(pooling.covered_ratio)} of that the idle GPUs would have covered it all",
        f"at most {number(pooling.peak_of_sum)} GPUs were in use together; the peaks of the partitions add up"
        f" to {number(pooling.sum_of_peaks)}",
        f"running and pending together asked for {number(pooling.demand_p90)} GPUs at p90,"
        f" {number(pooling.demand_p99)} at p99, {number(pooling.demand_max)} at most;"
        f" {percent(pooling.within_ratio)} of the time they fitted",
        "counts do not see whether a job fits the GPUs left on machines",
    ]
    return found if pooling.pending_gpu_hours else [found[0], found[3], found[5]]


def money_words(report: FleetReport) -> list[str]:
    """What a busy GPU-hour costs."""
    if isinstance(report.money_per_busy_hour, Missing):
        return []
    return [f"at {money(report.price)} an hour, a busy GPU-hour costs {money(report.money_per_busy_hour)}"]


def observed_words(report: FleetReport) -> list[str]:
    """What a Prometheus saw, measure by measure and team by team, and then the waits."""
    found = []
    for one in report.observed:
        busy = f"{percent(one.busy_ratio)} {interval(one.busy_ratio)}".strip()
        whose = f"of {clean(one.key)}" if one.key else f"by {one.measure}"
        seen = f"{percent(one.coverage_ratio)} of them seen"
        found.append(f"{busy} busy of {hours(one.gpu_hours)} allocated GPU-hours {whose} ({seen})")
    for waits in report.observed_waits:
        whose = f" of {clean(waits.key)}" if waits.key else ""
        quantiles = f"p90 queue wait{whose}: {wait(waits.p90_s, waits)} (p50 {wait(waits.p50_s, waits)})"
        found.append(f"{quantiles}, of {counted(waits.jobs, 'job')} that started")
    return found


def outcome_rows(comparison: FleetComparison) -> list[tuple[str, str, str]]:
    """Before and after, figure by figure."""
    before, after = comparison.before, comparison.after

    def row(name: str, words: Callable[[Outcome], str]) -> tuple[str, str, str]:
        return (name, words(before), words(after))

    rows = [
        row("GPUs", _pool),
        row("in use", lambda one: percent(one.used_ratio)),
        row("paid GPU-hours", lambda one: hours(one.paid_gpu_hours)),
        row("useful GPU-hours", lambda one: hours(one.useful_gpu_hours)),
        row("cost of a useful one", lambda one: money(one.money_per_useful_hour)),
        row("p50 wait", lambda one: wait(one.waits.p50_s, one.waits)),
        row("p90 wait", lambda one: wait(one.waits.p90_s, one.waits)),
        row("p99 wait", lambda one: wait(one.waits.p99_s, one.waits)),
        row("times stopped", lambda one: f"{one.stopped:,}"),
        row("GPU-hours redone", lambda one: hours(one.lost_gpu_hours)),
        row("stopping, resuming", lambda one: hours(one.overhead_gpu_hours)),
        row("makespan", lambda one: seconds(one.makespan_s)),
    ]
    return [*rows, row("never placed", lambda one: f"{one.never:,}")] if before.never or after.never else rows


def _pool(outcome: Outcome) -> str:
    return f"{outcome.gpus} + {outcome.spot_gpus} spot" if outcome.spot_gpus else str(outcome.gpus)


def pair_rows(comparison: FleetComparison, kind: str) -> list[tuple[str, ...]]:
    """p50 and p90 before and after, by "team" or "class"."""
    before, after = (
        {row.key: row for row in (one.by_team if kind == "team" else one.by_class)}
        for one in (comparison.before, comparison.after)
    )
    rows: list[tuple[str, ...]] = []
    for key in sorted(set(before) | set(after)):
        cells = [clean(key) or "(none)"]
        for quantile in ("p50_s", "p90_s"):
            for side in (before, after):
                row = side.get(key)
                cells.append("n/a" if row is None else wait(getattr(row, quantile), row))
        rows.append(tuple(cells))
    return rows


PAIR_HEADS = ("p50 before", "p50 after", "p90 before", "p90 after")


def claim_words(comparison: FleetComparison) -> list[str]:
    """In which time a guarantee is honoured, and what was seen."""
    after = comparison.after
    if isinstance(after.bound_s, Missing):
        return [why(after.bound_s)]
    words = bound_words(after.bound_s)
    if isinstance(after.slowest_claim_s, Missing):
        return [f"{words}; {why(after.slowest_claim_s)}"]
    return [f"{words}; the slowest of {counted(after.claims, 'claim')} took {seconds(after.slowest_claim_s)}"]


def bound_words(bound_s: float) -> str:
    """In which time a guarantee is honoured."""
    return f"T_claim: a guarantee is honoured within {seconds(bound_s)}"


def doubt_words(comparison: FleetComparison) -> list[str]:
    """The interval of the change, or why there is none."""
    change = comparison.verdict.p90_change_s
    if isinstance(change, Estimate):
        return [
            f"p90 changes by {seconds(change.value)}; in resampled weeks by {seconds(change.low)} to"
            f" {seconds(change.high)}"
        ]
    return [f"no interval: {why(change)}"] if isinstance(change, Missing) else []


def search_words(comparison: FleetComparison) -> list[str]:
    """The smallest pool, and what stopped the next smaller one."""
    search = comparison.search
    if isinstance(search, Missing):
        return []
    if isinstance(search.gpus, Missing):
        one = search.tried[0]
        return [
            f"{why(search.gpus)}: p90 of {clean(one.worst) or 'all'} is {_p90(one.p90_s)},"
            f" its limit {wait_span(one.limit_s)}"
        ]
    found = [f"the smallest pool that keeps each team's p90 within its limit has {number(search.gpus)} GPUs"]
    below = [one for one in search.tried if not one.is_enough]
    if below:
        one = max(below, key=lambda tried: tried.gpus)
        found.append(
            f"with {one.gpus}, p90 of {clean(one.worst) or 'all'} is {_p90(one.p90_s)},"
            f" its limit {wait_span(one.limit_s)}"
        )
    return found


def _p90(value: Number) -> str:
    return "not reached" if isinstance(value, Missing) else wait_span(value)
