"""The words and cells of the ledger's report, the same in text, HTML and tables for programs."""

from __future__ import annotations

from jupyter_gpuprof.records.ledger import STATES, LedgerGroup, LedgerReport, Loss, State
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.format import Reading, clean, counted, interval, known, percent, why

STATE_NAMES: dict[State, str] = {
    "busy": "busy",
    "input_stall": "input stall",
    "host_idle": "host idle",
    "held_idle": "held idle",
    "orphan": "orphan",
    "reserved_idle": "reserved idle",
    "free": "free",
    "unknown": "unknown",
}

#: The part of a step whose colour stands for a state, in the order of the picture.
STATE_PARTS: dict[State, str] = {
    "busy": "device_compute",
    "input_stall": "exposed_input",
    "host_idle": "host_gap",
    "held_idle": "exposed_communication",
    "orphan": "between.epoch_start",
    "reserved_idle": "between.validation",
    "unknown": "between.other",
}

_MEASURES = {
    "util_nvml": "the share of the time in which some kernel ran, by the driver's utilisation",
    "gr_active": "the share of the time in which the compute engine was active",
}


def heads(report: LedgerReport) -> tuple[str, ...]:
    """The heads of the table, in the order of `cells`."""
    return (report.by, "allocated", "busy", "of it", *(STATE_NAMES[state] for state in lost_states(report)))


def cells(group: LedgerGroup, report: LedgerReport) -> tuple[str, ...]:
    """One line of the table; the numbers are GPU-hours."""
    lost = (hours(group.seconds.get(state, 0.0)) for state in lost_states(report))
    ratio = f"{percent(group.busy_ratio)} {interval(group.busy_ratio)}".strip()
    return (holder_name(group.key), hours(group.allocated_s), hours(group.busy_s), ratio, *lost)


def lost_states(report: LedgerReport) -> list[State]:
    """The states besides busy that the report has any seconds in."""
    return [state for state in STATES if state != "busy" and report.total.seconds.get(state, 0.0) > 0]


def holder_name(key: str) -> str:
    """A notebook, device, user or day; nobody where there is none."""
    return clean(key) or "(nobody known)"


def hours(seconds: float) -> str:
    """Device seconds as GPU-hours; a trace of something is never shown as zero."""
    value = seconds / 3600
    return "<0.1" if 0 < value < 0.05 else f"{value:,.1f}"


def money(value: Reading) -> str:
    """An amount in whatever money the price is in."""
    amount = known(value)
    return "n/a" if amount is None else f"{amount:,.2f}"


def title(report: LedgerReport) -> str:
    """What the report is about."""
    span = report.since if report.since == report.until else f"{report.since} to {report.until}"
    return f"GPU-hours, {span}, {counted(report.devices, 'device')}"


def headline(report: LedgerReport) -> str:
    """Busy over allocated, with its doubt."""
    total = report.total
    if isinstance(total.busy_ratio, Missing):
        return f"Busy over allocated GPU-hours is not known: {why(total.busy_ratio)}"
    ratio = percent(total.busy_ratio)
    if doubt := interval(total.busy_ratio):
        ratio += f" of what was seen, between {doubt[1:-1].replace(', ', ' and ')} % of all"
    unseen_s = total.seconds.get("unknown", 0.0)
    seen = f"{hours(total.allocated_s - unseen_s)} allocated GPU-hours"
    rest = f"; nobody looked for another {hours(unseen_s)}" if unseen_s > 0 else ""
    return f"{hours(total.busy_s)} of {seen} were busy: {ratio}{rest}"


def loss_words(loss: Loss) -> str:
    """A place where time is lost, in one sentence."""
    cost = "" if isinstance(loss.money, Missing) else f", which cost {money(loss.money)}"
    return f"{loss.place}: {hours(loss.seconds)} GPU-hours{cost}"


def sentences(report: LedgerReport) -> list[str]:
    """What else there is to say."""
    found = []
    work = report.same_work
    if not isinstance(work, Missing) and work.worth > 0:
        found.append(
            f"{counted(work.devices, 'device')} at {percent(work.busy_ratio, 0)} do the work of"
            f" {work.worth:.1f}; at {percent(work.target_ratio, 0)} the same work fits on {work.needed}"
        )
    if known(report.money_per_busy_hour) is not None:
        found.append(
            f"at {money(report.price)} an hour, a busy GPU-hour costs {money(report.money_per_busy_hour)}"
        )
    coverage = report.total.coverage_ratio
    if not isinstance(coverage, Missing):
        found.append(f"somebody looked for {percent(coverage)} of the allocated time")
    found += [f"busy ({name}) is {_MEASURES.get(name, 'as named')}" for name in report.measures]
    return [*found, *report.notes]
