"""Several ranks of one job, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.reading import Number


@dataclass(frozen=True)
class RankRow:
    """One rank among others; ratios are of its own wall time, 0 to 1.

    `step_s` and `exposed_input_s` are seconds per step, the other times are over the whole trace.
    `transfer_s` is the time in collectives that all ranks needed, `skew_s` the rest: waiting for ranks
    that entered later; `exposed_skew_ratio` is the share of waiting that no computation hid.
    `caused_wait_s` is how long the other ranks together waited where this rank entered last.
    `label` is the verdict on this rank by itself, and `clock_ahead_s` is how far its clock is ahead of the
    median rank's.
    """

    rank: int
    source: str
    steps: int
    step_s: float
    exposed_input_s: Number
    exposed_input_ratio: Number
    exposed_communication_ratio: Number
    busy_ratio: Number
    host_gap_ratio: Number
    transfer_s: Number
    skew_s: Number
    exposed_skew_ratio: Number
    caused_wait_s: Number
    clock_ahead_s: Number
    label: str = ""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run.

    Args:
        rows: one per rank, by rank.
        late_rank: the rank that the others wait for in collectives; None where there is no such one.
        starved_rank: the rank that waits most for its data; None where the ranks wait alike.
        input_spread_s: longest less shortest wait for data per step over ranks, in seconds.
        exposed_skew_ratio: share of the job's wall time spent waiting for late ranks, not hidden by compute.
        sentences: what it means, for a person.
    """

    rows: tuple[RankRow, ...]
    late_rank: int | None
    starved_rank: int | None
    input_spread_s: Number
    exposed_skew_ratio: Number
    sentences: tuple[str, ...] = ()
