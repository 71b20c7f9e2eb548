"""One look of a server at its devices and kernels, and what was decided at it.

Moments are monotonic seconds of the process that looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpuprof.records.devices import Attribution, Holder, Snapshot
from jupyter_gpuprof.records.idleness import Decision, Keep, KernelFacts, OrphanFacts, Step
from jupyter_gpuprof.records.reading import Missing, Number


@dataclass(frozen=True)
class SeenKernel:
    """A kernel as its server knows it, before anything is read of processes and devices.

    Args:
        path: its notebook; "" without a session, missing where it cannot be told.
        pid: its process; None where it is on another machine.
        version, open_requests, open_messages, last_end_s: see `KernelFacts`.
        connections: websockets that are open to it.
    """

    kernel_id: str
    path: str | Missing
    kernelspec: str
    pid: int | None
    version: int
    open_requests: int | Missing
    open_messages: int = 0
    last_end_s: float | None = None
    keep: Keep | None = None
    connections: int | Missing = Missing("not counted")


@dataclass(frozen=True)
class KernelSight:
    """One kernel at one look.

    Args:
        state: its activity; an idle one that has trained is "finished and holding".
        holdings: what it holds, one for each device.
        steps: what was done to it in this stretch of idleness.
    """

    facts: KernelFacts
    decision: Decision
    state: str
    holdings: tuple[Holder, ...] = ()
    steps: tuple[Step, ...] = ()
    connections: int | Missing = Missing("not counted")


@dataclass(frozen=True)
class OrphanSight:
    """One process whose kernel is gone, at one look.

    Args:
        orphan_id: of the process for certain, not only of its number.
        held: bytes by device UUID; missing where the driver does not list it.
    """

    orphan_id: str
    facts: OrphanFacts
    decision: Decision
    held: tuple[tuple[str, Number], ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Sighting:
    """Everything at one look.

    Args:
        at_s: when it began.
        unix_s: the same moment as a date.
        took_s: how long it took.
    """

    at_s: float
    unix_s: float
    took_s: float
    snapshot: Snapshot
    attribution: Attribution
    kernels: tuple[KernelSight, ...] = ()
    orphans: tuple[OrphanSight, ...] = ()
