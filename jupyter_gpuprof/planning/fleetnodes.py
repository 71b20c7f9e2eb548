"""Free GPUs by machine: what fits, what is taken, what comes back.

A pool that is counted together is one machine of its size, so both kinds go the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: What a job asks of machines: the parts, largest first, each on a machine of its own.
Needs = tuple[int, ...]
#: GPUs taken, by machine.
Places = list[tuple[int, int]]


class Nodes:
    """The GPUs of a pool.

    Args:
        sizes: GPUs of each machine.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.free = list(sizes)
        #: Whether it is counted together.
        self.is_one = len(sizes) == 1
        self.total_free = sum(sizes)
        self.largest = max(sizes, default=0)
        # How many machines have so many free: whether a job fits is asked far oftener than it is placed.
        self._having = [0] * (self.largest + 1)
        for size in sizes:
            self._having[size] += 1

    def copy(self) -> Nodes:
        """The same machines with the same GPUs free, to be changed apart."""
        other = Nodes(())
        other.free, other._having = self.free[:], self._having[:]
        other.total_free, other.largest, other.is_one = self.total_free, self.largest, self.is_one
        return other

    def needs(self, gpus: int, nodes: int) -> Needs:
        """What a job asks for: on as many machines as it ran on, or as it needs at least."""
        if len(self.free) <= 1:
            return (gpus,)
        parts = min(max(nodes, -(-gpus // self.largest)), gpus) if self.largest else 1
        small, more = divmod(gpus, parts)
        return (small + 1,) * more + (small,) * (parts - more)

    def fits(self, needs: Needs) -> bool:
        """Whether all parts find a place now."""
        if self.is_one:
            return needs[0] <= self.total_free
        if sum(needs) > self.total_free:
            return False
        most = needs[0]
        if most > self.largest or sum(self._having[most:]) < needs.count(most):
            return False
        return needs[-1] == most or sum(self._having[needs[-1] :]) >= len(needs)

    def take(self, needs: Needs) -> Places:
        """Take the fullest machines on which they fit; they must fit."""
        places = choose(self.free, needs)
        assert places is not None
        self.add(places, -1)
        return places

    def add(self, places: Iterable[tuple[int, int]], sign: int = 1) -> None:
        """Give GPUs back, or with -1 take those."""
        for node, gpus in places:
            having, free = self._having, self.free
            having[free[node]] -= 1
            free[node] += sign * gpus
            having[free[node]] += 1
            self.total_free += sign * gpus


def choose(free: Sequence[int], needs: Needs) -> Places | None:
    """Places for the parts on the machines with the fewest free GPUs that fit; None if they do not."""
    if len(free) == 1:
        return [(0, needs[0])] if len(needs) == 1 and needs[0] <= free[0] else None
    room, most = list(free), max(free, default=0)
    places: Places = []
    for need in needs:
        # Searching a list for a number is many times as fast as sorting it, and machines have few GPUs.
        fullest = next((gpus for gpus in range(need, most + 1) if gpus in room), None)
        if fullest is None:
            return None
        node = room.index(fullest)
        room[node] = -1  # each part has a machine of its own
        places.append((node, need))
    return places
