"""The first in line gets a date, by the time limits of who runs, and nobody may delay it (EASY backfilling).

Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

from jupyter_gpuprof.planning.fleetnodes import Needs, Nodes
from jupyter_gpuprof.planning.fleetstate import Claim, Placed, Waiting


@dataclass
class Reservation:
    """The date of the first who waits for GPUs.

    Args:
        at_s: when it will fit at the latest; infinite if nobody's limit tells.
        spare: GPUs that will be left then, in a pool that is counted together.
    """

    at_s: float
    spare: int

    def allows(self, job: Waiting, now_s: float) -> bool:
        """Whether the job may go before."""
        is_short = now_s + job.work.limit_s <= self.at_s
        return (is_short or job.work.gpus <= self.spare) and self.at_s < math.inf

    def let_by(self, job: Waiting, now_s: float) -> None:
        """It goes before; if it stays longer, it uses up of what is spare."""
        if now_s + job.work.limit_s > self.at_s:
            self.spare -= job.work.gpus


class Expected:
    """When GPUs will be free at the latest, kept in order."""

    def __init__(self) -> None:
        self._order: list[tuple[float, int, Placed | Claim]] = []
        self._keys: dict[int, tuple[float, int]] = {}
        self._number = 0

    def add(self, what: Placed) -> None:
        """A job has started."""
        self._insert(what, what.start_s + what.job.work.limit_s)

    def set_aside(self, claim: Claim, release_s: float) -> None:
        """A job will start on the GPUs of others: theirs are not free before it ends."""
        self._insert(claim, claim.decided_s + release_s + claim.job.work.limit_s)
        for placed in claim.victims:
            self.remove(placed)

    def remove(self, what: Placed | Claim) -> None:
        """It has ended, or is taken back already."""
        key = self._keys.pop(id(what), None)
        if key is not None:
            del self._order[bisect.bisect_left(self._order, key)]

    def reserve(self, needs: Needs, free: Nodes) -> Reservation:
        """The date for a job that does not fit on the free GPUs now."""
        room = free.copy()

        def fits_after(what: Placed | Claim) -> bool:
            room.add(what.places)
            return room.fits(needs)

        at_s = self._first_time(fits_after)
        return Reservation(at_s, room.total_free - sum(needs) if room.is_one else 0)

    def reserve_quota(self, team: str, gpus: int, left: int) -> Reservation:
        """The date for a job that `left` of its team's quota is not enough for."""
        room = left

        def is_enough_after(what: Placed | Claim) -> bool:
            nonlocal room
            if what.job.work.team == team:
                room += what.job.work.gpus
            return room >= gpus

        return Reservation(self._first_time(is_enough_after), room - gpus)

    def _first_time(self, is_enough_after: Callable[[Placed | Claim], bool]) -> float:
        """When the last one ends that is waited for; with it, all are counted that end then."""
        first_s = math.inf
        for at_s, _, what in self._order:
            if at_s > first_s or math.isinf(at_s):
                break
            if is_enough_after(what):
                first_s = at_s
        return first_s

    def _insert(self, what: Placed | Claim, at_s: float) -> None:
        self._number += 1
        self._keys[id(what)] = (at_s, self._number)
        bisect.insort(self._order, (at_s, self._number, what))
