"""Which processes belong to which kernel, remembered beyond the kernel's end.

Children in a session of their own survive a clean shutdown, and those of a killed kernel are nobody's. So
descendants are recorded while their kernel lives, each with its start time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpuprof.analysis.owner import Owners
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.records.processes import KernelProcess, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import SeenKernel


@dataclass(frozen=True)
class GoneKernel:
    """A kernel that ended and left processes.

    Args:
        gone_s: when it was first missed.
    """

    kernel: KernelProcess
    gone_s: float


class Families:
    """The kernels of one server with all that descends from them.

    Args:
        own_uid: whose processes may belong to a kernel by their tag.
        server_pid: the server.
    """

    def __init__(self, own_uid: int | None, server_pid: int | None) -> None:
        self._own_uid = own_uid
        self._server_pid = server_pid
        self._alive: dict[str, KernelProcess] = {}
        self._gone: dict[ProcessId, GoneKernel] = {}

    @property
    def alive(self) -> dict[str, KernelProcess]:
        """By kernel id; those on other machines are left out."""
        return dict(self._alive)

    @property
    def gone(self) -> tuple[GoneKernel, ...]:
        """Kernels that are gone while something of them is left."""
        return tuple(self._gone.values())

    def of(self, kernel_id: str) -> frozenset[ProcessId]:
        """All recorded descendants of the kernel, of its earlier processes too."""
        kernels = [self._alive[kernel_id]] if kernel_id in self._alive else []
        kernels += [gone.kernel for gone in self._gone.values() if gone.kernel.kernel_id == kernel_id]
        return frozenset[ProcessId]().union(*(kernel.descendants for kernel in kernels))

    def look(self, tree: ProcessTree, seen: Iterable[SeenKernel], now_s: float) -> tuple[KernelProcess, ...]:
        """Bring everything up to date; the kernels, running and gone."""
        alive, gone = {}, dict(self._gone)
        for kernel in seen:
            process = tree.by_pid.get(kernel.pid) if kernel.pid is not None else None
            if process is None:
                continue
            old = self._alive.get(kernel.kernel_id)
            recorded = old.descendants if old is not None and old.id == process.id else frozenset()
            path = "" if isinstance(kernel.path, Missing) else kernel.path
            alive[kernel.kernel_id] = KernelProcess(kernel.kernel_id, path, process.id, process.tag, recorded)
        for old in self._alive.values():
            now = alive.get(old.kernel_id)
            if old.id is not None and (now is None or now.id != old.id):
                gone[old.id] = GoneKernel(old, now_s)
        found = self._owned(tree, (*alive.values(), *(left.kernel for left in gone.values())))
        # New dictionaries: another thread may be reading the old ones.
        self._alive = {
            name: _with(kernel, found.get(kernel.id, frozenset()) if kernel.id else frozenset())
            for name, kernel in alive.items()
        }
        self._gone = {
            id: GoneKernel(_with(left.kernel, found[id]), left.gone_s)
            for id, left in gone.items()
            if id in found
        }
        return (*self._alive.values(), *(left.kernel for left in self._gone.values()))

    def _owned(
        self, tree: ProcessTree, kernels: tuple[KernelProcess, ...]
    ) -> dict[ProcessId, frozenset[ProcessId]]:
        """Who belongs to a kernel now, by ancestry, by an earlier record or by its tag."""
        owners = Owners(tree, kernels, self._own_uid, self._server_pid)
        found: dict[ProcessId, frozenset[ProcessId]] = {}
        for process in tree.by_pid.values():
            owner = owners.of(process)
            if not isinstance(owner, Missing) and owner.id is not None and owner.id != process.id:
                found[owner.id] = found.get(owner.id, frozenset()) | {process.id}
        return found


def _with(kernel: KernelProcess, descendants: frozenset[ProcessId]) -> KernelProcess:
    return KernelProcess(kernel.kernel_id, kernel.path, kernel.id, kernel.tag, descendants)
