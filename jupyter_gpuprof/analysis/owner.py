"""Which kernel a process belongs to, or why that cannot be told."""

from __future__ import annotations

from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.records.processes import KernelProcess, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing


class Owners:
    """The kernels and the processes that may be theirs.

    Args:
        tree: the processes.
        kernels: running and gone.
        own_uid: whose processes may belong to a kernel by their tag alone.
        server_pid: this server.
    """

    def __init__(
        self,
        tree: ProcessTree,
        kernels: tuple[KernelProcess, ...],
        own_uid: int | None,
        server_pid: int | None,
    ) -> None:
        self._tree = tree
        self._kernels = tuple(kernel for kernel in kernels if kernel.id is not None)
        self._by_id = {kernel.id: kernel for kernel in self._kernels}
        self._alive = [(k, tree.by_pid[k.id.pid]) for k in self._kernels if k.id is not None and k.id in tree]
        self._recorded: dict[ProcessId, list[KernelProcess]] = {}
        for kernel in self._kernels:
            for id in kernel.descendants:
                self._recorded.setdefault(id, []).append(kernel)
        self._own_uid = own_uid
        self._server_pid = server_pid

    def alive(self, kernel: KernelProcess) -> bool | Missing:
        """Whether the kernel's own process runs."""
        return Missing("the kernel is on another machine") if kernel.id is None else kernel.id in self._tree

    def of_listed(self, pid: int) -> KernelProcess | Missing:
        """The kernel of a process that the driver lists."""
        process = self._process(pid)
        return process if isinstance(process, Missing) else self.of(process)

    def of(self, process: ProcessFacts) -> KernelProcess | Missing:
        """The kernel of a process."""
        for ancestor in self._tree.lineage(process):
            if (kernel := self._by_id.get(ancestor.id)) is not None:
                return kernel
            recorded = self._recorded.get(ancestor.id)
            if recorded is not None and len(recorded) == 1:
                return recorded[0]
        return self._tagged(process) or Missing(self._why_not(process))

    def of_report(self, said: ProcessId) -> KernelProcess | None:
        """The running kernel that a report is of; in a container a kernel knows only its inner pid."""
        for kernel, process in self._alive:
            known_as = (process.id.pid, *process.namespace_pids[-1:])
            if process.id.started_s == said.started_s and said.pid in known_as:
                return kernel
        return None

    def _process(self, pid: int) -> ProcessFacts | Missing:
        """The process that the driver means: by its pid here, else by the one inside its container."""
        process = self._tree.by_pid.get(pid)
        if process is not None:
            if process.has_device_open is False:
                return Missing("the process of this pid uses no device: the driver means another namespace")
            return process
        inside = [
            p for p in self._tree.by_pid.values() if pid in p.namespace_pids[1:] and p.uid == self._own_uid
        ]
        if len(inside) == 1:
            return inside[0]
        return Missing(
            "several containers have a process of this pid"
            if inside
            else "no process here has this pid: it is of another container, or ended"
        )

    def _tagged(self, process: ProcessFacts) -> KernelProcess | None:
        """The kernel with the same tag that began before; the last start of it where it was restarted."""
        tag = process.tag
        if tag is None or not tag.session_name or process.uid is None or process.uid != self._own_uid:
            return None
        began = [
            (kernel.id.started_s, kernel)
            for kernel in self._kernels
            if kernel.tag == tag and kernel.id is not None and kernel.id.started_s <= process.id.started_s
        ]
        if len({kernel.kernel_id for _, kernel in began}) != 1:
            return None
        return max(began, key=lambda pair: pair[0])[1]

    def _why_not(self, process: ProcessFacts) -> str:
        pid = process.id.pid
        if any(kernel.id is not None and kernel.id.pid == pid for kernel in self._kernels):
            return "a kernel had this pid before; it now belongs to another process"
        if process.uid is not None and self._own_uid is not None and process.uid != self._own_uid:
            return "it belongs to another user"
        if any(ancestor.id.pid == self._server_pid for ancestor in self._tree.lineage(process)):
            return "it belongs to this server and to no kernel, as what a terminal started"
        if process.tag is not None and process.tag.server_pid != self._server_pid:
            return "another Jupyter server started it"
        return "no kernel is among its ancestors"
