"""How a fleet is shared: guarantees, borrowing, priorities, and the time in which a guarantee is honoured."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Literal

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.reading import Missing, Number

#: Who goes first: the next in line alone, whoever fits, or whoever fits without delaying the next in line.
Line = Literal["fifo", "skip", "backfill"]
LINES: tuple[Line, ...] = ("fifo", "skip", "backfill")

_NOT_SET = Missing("not set")


@dataclass(frozen=True)
class Team:
    """One team's share.

    Args:
        guarantee: GPUs that it can always claim.
        borrow: how many more it may use while others do not; None for as many as there are.
        p90_s: queue wait that nine of ten of its jobs must stay within.
    """

    guarantee: int = 0
    borrow: int | None = None
    p90_s: Number = _NOT_SET


@dataclass(frozen=True)
class PriorityClass:
    """Jobs of a kind: the higher priority goes first, and within its team over lower ones that run."""

    priority: int = 0
    preemptible: bool = True


@dataclass(frozen=True)
class Reclaim:
    """How borrowed GPUs come back to whom they are guaranteed.

    Args:
        cycle_s: until the scheduler looks.
        notice_s: until the borrower's processes know.
        grace_s: how long they may take to save.
        teardown_s: until the devices are free.
        start_s: until the claiming job runs.
    """

    cycle_s: float = 0.0
    notice_s: float = 0.0
    grace_s: float = 0.0
    teardown_s: float = 0.0
    start_s: float = 0.0

    @property
    def signal_s(self) -> float:
        """From the claim until the borrower stops working."""
        return self.cycle_s + self.notice_s

    @property
    def release_s(self) -> float:
        """From the claim until the GPUs are handed over."""
        return self.signal_s + self.grace_s + self.teardown_s

    @property
    def bound_s(self) -> float:
        """T_claim, from the claim until the claiming job runs, at most."""
        return self.release_s + self.start_s


@dataclass(frozen=True)
class Checkpoint:
    """What a job that is stopped keeps.

    Args:
        interval_s: work between two checkpoints; None if the jobs save none.
        save_s: what a save takes at most (p99); one that fits the grace time loses nothing.
        resume_s: from the start of a stopped job until it works again.
    """

    interval_s: float | None = None
    save_s: Number = Missing("what a save takes was not given")
    resume_s: float = 0.0

    def kept_s(self, worked_s: float, warning_s: float) -> float:
        """Work kept of `worked_s` by a job that is warned `warning_s` before it is ended."""
        if not isinstance(self.save_s, Missing) and self.save_s <= warning_s:
            return worked_s
        if not self.interval_s:
            return 0.0
        return math.floor(worked_s / self.interval_s + 1e-9) * self.interval_s


@dataclass(frozen=True)
class Spot:
    """Interruptible capacity beside the stable one; only preemptible jobs run there.

    Args:
        between_s: mean time until a job there is interrupted (exponential).
        notice_s: warning before it.
        price: of a GPU-hour, paid while in use.
    """

    gpus: int = 0
    between_s: float = math.inf
    notice_s: float = 0.0
    price: Number = _NOT_SET


@dataclass(frozen=True)
class FleetPolicy:
    """A pool and how it is shared.

    Args:
        gpus: stable ones in all.
        nodes: GPUs of each machine; () to count them together, which no fragmentation can hurt.
        teams: shares by team; who is not named has no guarantee and may borrow.
        classes: priority classes by name; who is not named has priority 0.
        line: who goes first.
        gang: a job gets all its GPUs at once; else it takes each as it comes, and holds it.
        aging_s: waiting that is worth one priority; infinite for none.
        price: of a stable GPU-hour, paid whether in use or not.

    Raises:
        OptionError: the guarantees exceed the pool, or a value makes no sense.
    """

    name: str
    gpus: int
    nodes: tuple[int, ...] = ()
    teams: tuple[tuple[str, Team], ...] = ()
    classes: tuple[tuple[str, PriorityClass], ...] = ()
    line: Line = "skip"
    gang: bool = True
    aging_s: float = math.inf
    reclaim: Reclaim = Reclaim()
    checkpoint: Checkpoint = Checkpoint()
    spot: Spot = Spot()
    price: Number = _NOT_SET

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.gpus + self.spot.gpus < 1:
            raise OptionError("The policy has no GPUs.", "Set pool: gpus.")
        if self.nodes and sum(self.nodes) != self.gpus:
            raise OptionError(f"The nodes of the policy have {sum(self.nodes)} GPUs, not {self.gpus}.")
        promised = sum(team.guarantee for _, team in self.teams)
        if promised > self.gpus:
            raise OptionError(
                f"The guarantees add up to {promised} GPUs, and the pool has {self.gpus}.",
                "What is guaranteed to all must be there; lower a guarantee, or raise pool: gpus.",
            )
        if not self.aging_s > 0:
            raise OptionError("aging must be a time above 0; leave it out for none.")
        if self.line not in LINES:
            raise OptionError(f"line is {', '.join(LINES)}, not {self.line!r}.")

    def reserved(self) -> FleetPolicy:
        """The same pool, each team in its guarantee alone."""
        fixed = tuple((name, replace(team, borrow=0)) for name, team in self.teams)
        return replace(self, name="reserved", teams=fixed, spot=Spot())

    def sized(self, gpus: int) -> FleetPolicy:
        """The same policy on another number of GPUs, the guarantees in proportion (rounded down).

        With nodes, whole ones are taken in their order, so the pool may be smaller than asked.
        """
        nodes: tuple[int, ...] = ()
        if self.nodes:
            for size in itertools.cycle(self.nodes):
                if sum(nodes) + size > gpus:
                    break
                nodes += (size,)
            gpus = sum(nodes)
        teams = tuple(
            (name, replace(team, guarantee=team.guarantee * gpus // self.gpus if self.gpus else 0))
            for name, team in self.teams
        )
        return replace(self, name=f"{self.name} on {gpus}", gpus=gpus, nodes=nodes, teams=teams)
