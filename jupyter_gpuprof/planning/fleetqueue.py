"""Who waits, in line: jobs that fit or do not fit alike stand behind one another; only the first is asked."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jupyter_gpuprof.planning.fleetstate import Waiting
from jupyter_gpuprof.records.fleetpolicy import Line

#: A place in the line; no two jobs have the same.
_Key = tuple[float, float, int]


@dataclass(slots=True, eq=False)
class Bucket:
    """Jobs that fit or do not fit alike, a heap by their place in the line; never empty in a queue."""

    name: tuple[object, ...]
    jobs: list[tuple[_Key, Waiting]] = field(default_factory=list)

    @property
    def first(self) -> Waiting:
        """Who goes first of them."""
        return self.jobs[0][1]


#: The first of each bucket, in the order of the line.
Heads = list[tuple[_Key, Bucket]]


class Queue:
    """All who wait.

    Args:
        line: the policy's; with "fifo" all jobs of a team stand behind one another.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._buckets: dict[tuple[object, ...], Bucket] = {}
        self._heads: Heads = []  # kept in order, since they are asked for far oftener than they change

    def add(self, job: Waiting) -> Bucket:
        """Into the line; where it stands now."""
        work = job.work
        name: tuple[object, ...] = (work.team,)
        if self._line != "fifo":
            name = (work.team, job.needs, job.priority, job.preemptible)
        if self._line == "backfill":
            name += (work.limit_s,)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name)
        before = bucket.jobs[0][0] if bucket.jobs else None
        heapq.heappush(bucket.jobs, (job.key, job))
        if before is None or job.key < before:
            self._change_head(bucket, before)
        return bucket

    def heads(self, only: Iterable[Bucket] | None = None) -> Heads:
        """The first of each bucket, or only of those."""
        if only is None:
            return self._heads[:]
        return sorted((bucket.jobs[0][0], bucket) for bucket in set(only))

    def go_through(self, heads: Heads, start: Callable[[Waiting], bool | None]) -> Heads:
        """Start whom `start` can, in the order of the line; the others. None ends the matter."""
        left: Heads = []
        for looked_at, head in enumerate(heads, 1):  # which goes on to what is put in behind
            bucket = head[1]
            started = start(bucket.jobs[0][1])
            if started is None:
                break
            if not started:
                left.append(head)
                continue
            heapq.heappop(bucket.jobs)
            self._change_head(bucket, head[0])
            if bucket.jobs:
                bisect.insort(heads, (bucket.jobs[0][0], bucket), looked_at)
            else:
                del self._buckets[bucket.name]
        return left

    def _change_head(self, bucket: Bucket, before: _Key | None) -> None:
        if before is not None:
            del self._heads[bisect.bisect_left(self._heads, (before, bucket))]
        if bucket.jobs:
            bisect.insort(self._heads, (bucket.jobs[0][0], bucket))
