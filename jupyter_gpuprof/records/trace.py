"""What a stored trace tells, rank by rank, and what is concluded from it.

A `RankTrace` is one rank's trace without the parts that no analysis needs; `Breakdown` and
`RankComparison` are the answers. Times are integer nanoseconds since the epoch of the trace's clock
(of the Unix epoch where the trace says so).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.records.ranks import RankRow
from jupyter_gpuprof.records.reading import Number
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.timing import StepTable


class OpKind(IntEnum):
    """What a gpu op does."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2  # memcpy and memset


@dataclass(frozen=True, eq=False)
class GpuOps:
    """Everything that ran on devices, sorted by start; all arrays have one entry per op.

    Args:
        span_ns: start and end, shape (n, 2), int64.
        kind: an `OpKind`, int8.
        device: the device's index in its machine, int32.
        stream: int64; -1 where the trace does not say.
        name_id: index into `RankTrace.names`, int32.
        collective_id: index into `RankTrace.names` of what a communication op does and in which
            process group, so that ranks can be matched; -1 for other ops; int32.
    """

    span_ns: NDArray[np.int64]
    kind: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    name_id: NDArray[np.int32]
    collective_id: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.span_ns)


@dataclass(frozen=True, eq=False)
class Marks:
    """Named stretches of host time, sorted by start; all arrays have one entry per mark.

    Args:
        span_ns: start and end, shape (n, 2), int64.
        name_id: index into `RankTrace.names`, int32.
        thread_id: which thread, numbered as met in the trace, int32.
    """

    span_ns: NDArray[np.int64]
    name_id: NDArray[np.int32]
    thread_id: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.span_ns)


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank's trace.

    Args:
        source: the file, or the member of an archive, that it came from.
        rank: None where neither the trace nor the file's name tells.
        world_size: ranks of the job; None where the trace does not tell.
        device: what the rank ran on; ``count`` is the number of devices that its ops used.
        names: the strings that the ids of ops and marks point to.
        ops: what ran on devices; empty in a trace of CPU activity.
        steps: ``ProfilerStep#N`` marks of torch.profiler.
        loaders: fetches of a batch.
        optimizers: optimizer steps.
        collectives: communication run by the host (gloo, MPI).
        host_op_ns: operators of the host, sorted by start and nested, shape (n, 2), int64; those inside
            fetching a batch too, but no communication. Empty where there are gpu ops.
        events: how many events were read.
        complete: whether the whole file could be read; otherwise ops may be missing anywhere.
        notes: what was odd about the file, in sentences.
    """

    source: str
    rank: int | None
    world_size: int | None
    device: Device
    names: tuple[str, ...]
    ops: GpuOps
    steps: Marks
    loaders: Marks
    optimizers: Marks
    collectives: Marks
    host_op_ns: NDArray[np.int64]
    events: int
    complete: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TraceSet:
    """The ranks found in one or more files, in the order of rank and source.

    `notes` say what was left out (files of a folder that are no traces, ...).
    """

    ranks: tuple[RankTrace, ...]
    notes: tuple[str, ...] = ()


#: What the edges of the steps were taken from.
Window = Literal["ProfilerStep marks", "loader marks", "optimizer marks", "first to last op"]


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Where the time of one rank's steps went.

    Ratios are of the wall time from the first edge to the last, 0 to 1, and may overlap: they are
    totals, while the parts of the table are disjoint.

    Args:
        table: a row per step; one row for the whole window where the steps are not known.
        window: what the edges of the steps were taken from.
        edges_ns: where the steps begin and the last one ends, shape (rows + 1,), int64.
        steps: how many steps the rows are; 0 where the trace does not tell.
        device: index of the device that was judged; None on a CPU.
        busy_ratio: any op on the device.
        compute_ratio, communication_ratio, copies_ratio: an op of that kind.
        loader_ratio: host time inside fetching a batch, exposed or not.
        notes: what to know about these numbers, in sentences.
    """

    table: StepTable
    window: Window
    edges_ns: NDArray[np.int64]
    steps: int
    device: int | None
    busy_ratio: Number
    compute_ratio: Number
    communication_ratio: Number
    copies_ratio: Number
    loader_ratio: Number
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives matched over ranks, in the order in which they ended.

    Args:
        names: what each one is, length n.
        span_ns: start and end on each rank with the clocks aligned, shape (n, ranks, 2), int64.
    """

    names: tuple[str, ...]
    span_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def duration_ns(self) -> NDArray[np.int64]:
        """How long each rank was inside, shape (n, ranks)."""
        return self.span_ns[:, :, 1] - self.span_ns[:, :, 0]

    @property
    def transfer_ns(self) -> NDArray[np.int64]:
        """The shortest time that any rank was inside, shape (n,)."""
        shortest: NDArray[np.int64] = self.duration_ns.min(axis=1)
        return shortest

    @property
    def skew_ns(self) -> NDArray[np.int64]:
        """How much longer each rank was inside than the transfer took, shape (n, ranks)."""
        return self.duration_ns - self.transfer_ns[:, np.newaxis]

    @property
    def last(self) -> NDArray[np.int64]:
        """Column of the rank that entered last, shape (n,)."""
        last: NDArray[np.int64] = self.span_ns[:, :, 0].argmax(axis=1)
        return last

    @property
    def late_ns(self) -> NDArray[np.int64]:
        """How long after the first rank the last one entered, shape (n,)."""
        late: NDArray[np.int64] = np.ptp(self.span_ns[:, :, 0], axis=1)
        return late


@dataclass(frozen=True, eq=False)
class RankComparison:
    """Ranks side by side.

    Args:
        rows: one per rank, by rank.
        collectives: those found on all ranks; columns as `rows`.
        late_rank: the rank that the others wait for, None where nobody waits for one rank above all.
        starved_rank: the rank that waits most for its data, None where the ranks wait alike.
        input_spread_s: longest less shortest wait for data per step over ranks.
        sentences: what it means, for a person.
        notes: what to know about these numbers.
    """

    rows: tuple[RankRow, ...]
    collectives: Collectives
    late_rank: int | None
    starved_rank: int | None
    input_spread_s: Number
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
