"""What gpu ops told: a summary of the window in which they were recorded, and two steps drawn out."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.reading import Number


@dataclass(frozen=True)
class OpTotal:
    """A gpu op by name: how often it ran and for how long, summed over its runs; kinds as in `Lane`."""

    name: str
    kind: str  # "compute", "communication" or "copies"
    count: int
    total_s: float
    busy_ratio: float  # of the device's busy time


@dataclass(frozen=True)
class OpSpan:
    """One bar of a timeline; seconds from the beginning of its step.

    A bar may stand for several short ops in a row; `busy_ratio` is the share of it in which one ran.
    """

    name: str
    start_s: float
    duration_s: float
    busy_ratio: float = 1.0


@dataclass(frozen=True)
class Lane:
    """One row of a timeline: "loader", "host", "compute", "communication" or "copies"."""

    kind: str
    spans: tuple[OpSpan, ...]


@dataclass(frozen=True)
class StepTimeline:
    """One step of one rank, drawn out."""

    which: str  # "typical" or "worst"; "window" for all that there is, where the steps are not known
    rank: int
    step: int
    duration_s: float
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class OpWindow:
    """The stretch in which gpu ops were recorded.

    Args:
        edges: what the steps were taken from ("ProfilerStep marks", ...).
        steps: how many; 0 where it is not known.
        wall_s: seconds.
        busy_ratio, communication_ratio, loader_ratio: shares of `wall_s` with any op on the device, with a
            communication op, and inside fetching a batch, hidden or not.
        exposed_input_ratio: share of `wall_s` for which the device was idle inside a fetch.
        agreement: how the window's input wait and that of the events go together; "" without events.
        top_ops: the gpu ops that took most time, longest first.
        timelines: typical and worst step of each rank.
        rank: whose figures these are, where there are several ranks; None where there are not.
    """

    edges: str
    steps: int
    wall_s: float
    busy_ratio: Number
    communication_ratio: Number
    loader_ratio: Number
    exposed_input_ratio: Number
    agreement: str = ""
    top_ops: tuple[OpTotal, ...] = ()
    timelines: tuple[StepTimeline, ...] = ()
    rank: int | None = None
