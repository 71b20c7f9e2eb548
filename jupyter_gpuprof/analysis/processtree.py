"""Who descends from whom, with start times, since pids are used again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_gpuprof.records.processes import ProcessFacts, ProcessId


class ProcessTree:
    """Processes as they were seen in one look.

    Args:
        processes: their facts.
    """

    def __init__(self, processes: Iterable[ProcessFacts]) -> None:
        self.by_pid = {process.id.pid: process for process in processes}
        self._children: dict[int, list[ProcessFacts]] = {}
        for process in self.by_pid.values():
            self._children.setdefault(process.parent_pid, []).append(process)

    def __contains__(self, id: ProcessId) -> bool:
        """Whether that very process runs."""
        process = self.by_pid.get(id.pid)
        return process is not None and process.id == id

    def lineage(self, process: ProcessFacts) -> Iterator[ProcessFacts]:
        """The process, its parent, and so on, as far as they were seen."""
        passed: set[int] = set()
        while process.id.pid not in passed:
            yield process
            passed.add(process.id.pid)
            parent = self.by_pid.get(process.parent_pid)
            if parent is None or parent.id.started_s > process.id.started_s:
                return  # a parent that began later is another process with the parent's pid
            process = parent

    def descendants(self, root: ProcessId) -> frozenset[ProcessId]:
        """All below that very process, itself left out."""
        if root not in self:
            return frozenset()
        found: set[ProcessId] = set()
        left = [root]
        while left:
            parent = left.pop()
            for child in self._children.get(parent.pid, ()):
                if child.id not in found and child.id != root and child.id.started_s >= parent.started_s:
                    found.add(child.id)
                    left.append(child.id)
        return frozenset(found)

    def cpu_s(self, processes: Iterable[ProcessId]) -> float:
        """Processor seconds of those that still run; a tree's use is the difference of two looks at it."""
        return sum(self.by_pid[id.pid].cpu_s for id in processes if id in self)
