"""The first in line gets a date, by the time limits of who runs, and nobody may delay it (EASY backfilling).

Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.planning.fleetnodes import Needs, choose
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
        return math.isfinite(self.at_s) and (self._is_short(job, now_s) or job.work.gpus <= self.spare)

    def let_by(self, job: Waiting, now_s: float) -> None:
        """It goes before; if it stays longer, it uses up of what is spare."""
        if not self._is_short(job, now_s):
            self.spare -= job.work.gpus

    def _is_short(self, job: Waiting, now_s: float) -> bool:
        return now_s + job.work.limit_s <= self.at_s


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

    def reserve(
        self, needs: Needs, free: Sequence[int], now_s: float, team: str | None = None
    ) -> Reservation:
        """The date for a job that does not fit now.

        Args:
            needs: what it asks for.
            free: GPUs by machine, or with `team` what is left of its quota.
            team: only its jobs count, as quota.
        """
        room, fits_at_s = list(free), math.inf
        for at_s, _, what in self._order:
            if at_s > fits_at_s or math.isinf(at_s):
                break
            if team is not None:
                room[0] += what.job.work.gpus if what.job.work.team == team else 0
            else:
                for node, gpus in what.places:
                    room[node] += gpus
            if choose(room, needs):
                fits_at_s = at_s
        if math.isinf(fits_at_s):
            return Reservation(math.inf, 0)
        return Reservation(max(fits_at_s, now_s), room[0] - needs[0] if len(room) == 1 else 0)

    def _insert(self, what: Placed | Claim, at_s: float) -> None:
        self._number += 1
        self._keys[id(what)] = (at_s, self._number)
        bisect.insort(self._order, (at_s, self._number, what))
