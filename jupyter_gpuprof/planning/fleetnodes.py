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
        self.total_free = sum(sizes)
        self.largest = max(sizes, default=0)
        # How many machines have so many free: whether a job fits is asked far oftener than it is placed.
        self._having = [0] * (self.largest + 1)
        for size in sizes:
            self._having[size] += 1

    def needs(self, gpus: int, nodes: int) -> Needs:
        """What a job asks for: on as many machines as it ran on, or as it needs at least."""
        if len(self.free) <= 1:
            return (gpus,)
        parts = min(max(nodes, -(-gpus // self.largest)), gpus) if self.largest else 1
        small, more = divmod(gpus, parts)
        return (small + 1,) * more + (small,) * (parts - more)

    def fits(self, needs: Needs) -> bool:
        """Whether all parts find a place now."""
        if len(needs) == 1 and len(self.free) == 1:
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
    order = sorted((gpus, node) for node, gpus in enumerate(free) if gpus >= needs[-1])
    places: Places = []
    used: set[int] = set()
    for need in needs:
        node = next((n for gpus, n in order if gpus >= need and n not in used), None)
        if node is None:
            return None
        used.add(node)
        places.append((node, need))
    return places
