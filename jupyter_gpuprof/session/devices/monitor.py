"""One look after the other at devices, processes and kernels, and what is decided at each.

``DeviceMonitor.tick`` is a plain method: a server calls it in a thread of its own, a command in a loop, a
test with a scripted clock. All that it learns is in the `Sighting` that it returns.
"""

from __future__ import annotations

import getpass
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.accounting import account
from jupyter_gpuprof.analysis.attribution import attribute
from jupyter_gpuprof.analysis.idleness import acted, decide, decide_orphan
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.probes.nvml import DeviceReader
from jupyter_gpuprof.probes.processes import ProcessTable
from jupyter_gpuprof.records.devices import Attribution, Holder, Snapshot
from jupyter_gpuprof.records.idleness import Decision, Keep, KernelFacts, OrphanFacts, Process, Tick, Watch
from jupyter_gpuprof.records.ledger import Allocation, LedgerRow
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.processes import KernelProcess, KernelReport, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import KernelSight, OrphanSight, SeenKernel, Sighting
from jupyter_gpuprof.session.devices.families import Families, GoneKernel
from jupyter_gpuprof.session.devices.holderwork import held_by, kernel_work, orphan_work
from jupyter_gpuprof.session.devices.reported import Reported
from jupyter_gpuprof.session.devices.samples import Samples
from jupyter_gpuprof.store.lease import Lease
from jupyter_gpuprof.store.ledger import KEEP_DAYS, LedgerWriter

_DAY_S = 86400.0


class DeviceMonitor:
    """Looks at the devices of one server and remembers what a look alone does not tell.

    Args:
        reader: of the devices.
        table: of the processes.
        policy: what the reaper may do.
        interval_s: planned seconds between two looks.
        writer: where the device seconds go; None keeps none.
        lease: whose turn it is to write them, of several servers on this machine; None: always ours.
        allocation: what a device that nobody holds is.
        keep_days: for how long the seconds are kept; infinite: nothing is ever deleted.
        reported: what the kernels say of themselves.
        server_pid: the server, whose descendants the kernels are.
        user: whose server it is, for the ledger.
        clock, wall: monotonic and wall-clock nanoseconds.
    """

    def __init__(
        self,
        reader: DeviceReader,
        table: ProcessTable | None = None,
        *,
        policy: Policy | None = None,
        interval_s: float = 1.0,
        writer: LedgerWriter | None = None,
        lease: Lease | None = None,
        allocation: Allocation = "held",
        keep_days: float = KEEP_DAYS,
        reported: Reported | None = None,
        server_pid: int | None = None,
        user: str | None = None,
        clock: Callable[[], int] = clock.now_ns,
        wall: Callable[[], int] = clock.unix_ns,
    ) -> None:
        self.policy = policy or Policy()
        self.interval_s = interval_s
        self.allocation = allocation
        self.writer = writer
        self._lease = lease
        self._reader = reader
        self._table = table or ProcessTable()
        self._keep_days = keep_days
        self._reported = reported
        self._server_pid = os.getpid() if server_pid is None else server_pid
        self._own_uid = os.getuid() if hasattr(os, "getuid") else 0
        self._clock, self._wall = clock, wall
        self._families = Families(self._own_uid, self._server_pid)
        self._samples = Samples(_user() if user is None else user)
        self._watches: dict[str, Watch] = {}
        self._began_s: dict[str, tuple[ProcessId | None, float]] = {}
        self._trained: set[ProcessId] = set()
        self._stuck: set[ProcessId] = set()
        self._own_keeps: dict[str, Keep] = {}
        self._postponed: set[str] = set()
        self._last: Tick | None = None
        self._pruned_s = 0.0

    @property
    def simulated(self) -> bool:
        """Whether the devices are pretended."""
        return bool(getattr(self._reader, "simulated", False))

    def tick(self, seen: Sequence[SeenKernel]) -> Sighting:
        """One look; never waits longer than the reader's limits and the ledger's."""
        tick = Tick(self._clock() * 1e-9, self._wall() * 1e-9, self.interval_s)
        snapshot = self._reader.read()
        lists = [device.processes for device in snapshot.devices]
        listed = {process.pid for found in lists if not isinstance(found, Missing) for process in found}
        pids = [kernel.pid for kernel in seen if kernel.pid is not None]
        processes = self._table.look([self._server_pid, *pids], listed)
        tree = ProcessTree(processes)
        kernels = self._families.look(tree, seen, tick.now_s)
        reports: tuple[KernelReport, ...] = ()
        if self._reported is not None:
            self._reported.read()
            reports = self._reported.reports
        attribution = attribute(
            snapshot, processes, kernels, reports, own_uid=self._own_uid, server_pid=self._server_pid
        )
        said = _latest(reports, self._families.alive, tree)
        held = _by_kernel(attribution)
        # A kernel whose process is not there any more is dead; what it left are orphans.
        here = [k for k in seen if k.pid is None or k.kernel_id in self._families.alive]
        sights = tuple(self._kernel(kernel, tree, snapshot, held, said, tick) for kernel in here)
        orphans = tuple(
            self._orphan(gone, tree.by_pid[id.pid], snapshot, tree, tick)
            for gone in self._families.gone
            for id in sorted(gone.kernel.descendants, key=lambda id: id.pid)
            if id in tree
        )
        orphans = tuple(orphan for orphan in orphans if orphan.facts.work.held_bytes != 0)
        self._forget({sight.facts.kernel_id for sight in sights} | {o.orphan_id for o in orphans}, tree)
        self._account(snapshot, attribution, sights, said, tick)
        self._last = tick
        took_s = self._clock() * 1e-9 - tick.now_s
        return Sighting(tick.now_s, tick.wall_s, took_s, snapshot, attribution, sights, orphans)

    def acted(self, holder_id: str, decision: Decision) -> None:
        """The step of the decision was begun (or would have been, in a dry run)."""
        watch = self._watches.get(holder_id)
        if watch is not None:
            self._watches[holder_id] = acted(watch, decision, self._clock() * 1e-9)

    def postponed(self, holder_id: str) -> None:
        """Its last step was not carried out: all steps come again, after another idle timeout."""
        self._postponed.add(holder_id)  # a look may be on in another thread: the next one knows

    def own_keep(self, kernel_id: str) -> Keep | None:
        """What the kernel itself asked for, as of the last look."""
        return self._own_keeps.get(kernel_id)

    def descendants(self, kernel_id: str) -> frozenset[ProcessId]:
        """All that was recorded below the kernel and may still run."""
        return self._families.of(kernel_id)

    def stuck(self, id: ProcessId) -> None:
        """The process could not be ended: it is shown, and not tried again."""
        self._stuck.add(id)

    def close(self) -> None:
        """Let go of the driver and of the ledger."""
        self._reader.close()
        if self._lease is not None:
            self._lease.release()
        if self.writer is not None:
            self.writer.close()
        if self._reported is not None:
            self._reported.close()

    def _kernel(
        self,
        seen: SeenKernel,
        tree: ProcessTree,
        snapshot: Snapshot,
        held: Mapping[ProcessId, tuple[Holder, ...]],
        said: Mapping[ProcessId, KernelReport],
        tick: Tick,
    ) -> KernelSight:
        kernel = self._families.alive.get(seen.kernel_id)
        id = kernel.id if kernel is not None else None
        holdings = held.get(id, ()) if id is not None else ()
        is_training = id is not None and id in said and said[id].training_active
        if is_training and id is not None:
            self._trained.add(id)
        facts = KernelFacts(
            kernel_id=seen.kernel_id,
            notebook=seen.path,
            kernelspec=seen.kernelspec,
            process=_process(tree, id),
            began_s=self._began(seen.kernel_id, id, tick.now_s),
            version=seen.version,
            open_requests=seen.open_requests,
            open_messages=seen.open_messages,
            last_end_s=seen.last_end_s,
            training=is_training,
            work=kernel_work(kernel, holdings, snapshot, tree),
            keep=self._keep(seen, tree, id),
        )
        before = self._watches.get(seen.kernel_id)
        if seen.kernel_id in self._postponed:
            self._postponed.discard(seen.kernel_id)
            before = replace(before, base_s=tick.now_s, steps=()) if before is not None else None
        watch, decision = decide(facts, before, self.policy, tick)
        self._watches[seen.kernel_id] = watch
        trained = decision.activity == "idle" and id in self._trained
        state = "finished and holding" if trained and facts.work.held_bytes != 0 else decision.activity
        return KernelSight(facts, decision, state, holdings, watch.steps, seen.connections)

    def _orphan(
        self, gone: GoneKernel, process: ProcessFacts, snapshot: Snapshot, tree: ProcessTree, tick: Tick
    ) -> OrphanSight:
        orphan_id = f"{process.id.pid}-{process.id.started_s:.2f}"
        itself = Process(process.id.pid, process.id.started_s, -1 if process.uid is None else process.uid)
        facts = OrphanFacts(
            kernel_id=gone.kernel.kernel_id,
            notebook=gone.kernel.path,
            process=itself,
            recorded=itself if process.id in gone.kernel.descendants else None,
            own_uid=self._own_uid,
            gone_s=gone.gone_s,
            work=orphan_work(process, snapshot, tree),
            stuck=process.id in self._stuck,
        )
        watch, decision = decide_orphan(facts, self._watches.get(orphan_id), self.policy, tick)
        self._watches[orphan_id] = watch
        return OrphanSight(orphan_id, facts, decision, held_by(process.id.pid, snapshot), watch.steps)

    def _keep(self, seen: SeenKernel, tree: ProcessTree, id: ProcessId | None) -> Keep | None:
        """The longer one of what was asked of the server and what the kernel itself asks."""
        self._own_keeps.pop(seen.kernel_id, None)
        if id is None or self._reported is None:
            return seen.keep
        most_s = self.policy.for_kernelspec(seen.kernelspec).keep_max_s
        known_as = (id.pid, *tree.by_pid[id.pid].namespace_pids[-1:])
        for pid in known_as:
            own = self._reported.keeps.get(replace(id, pid=pid))
            if own is not None:
                until_s = min(own.until_s, own.since_s + most_s)
                self._own_keeps[seen.kernel_id] = replace(own, until_s=until_s)
        keeps = [keep for keep in (seen.keep, self._own_keeps.get(seen.kernel_id)) if keep is not None]
        return max(keeps, key=lambda keep: keep.until_s, default=None)

    def _began(self, kernel_id: str, id: ProcessId | None, now_s: float) -> float:
        """When this process of the kernel was first seen."""
        known = self._began_s.get(kernel_id)
        if known is None or known[0] != id:
            known = self._began_s[kernel_id] = (id, now_s)
        return known[1]

    def _forget(self, present: set[str], tree: ProcessTree) -> None:
        self._watches = {name: watch for name, watch in self._watches.items() if name in present}
        self._began_s = {name: began for name, began in self._began_s.items() if name in present}
        self._own_keeps = {name: keep for name, keep in self._own_keeps.items() if name in present}
        self._trained = {id for id in self._trained if id in tree}
        self._stuck = {id for id in self._stuck if id in tree}

    def _account(
        self,
        snapshot: Snapshot,
        attribution: Attribution,
        sights: Sequence[KernelSight],
        said: Mapping[ProcessId, KernelReport],
        tick: Tick,
    ) -> None:
        if self.writer is None or (self._lease is not None and not self._lease.mine(tick.wall_s)):
            return
        states = {sight.facts.kernel_id: sight.decision.activity for sight in sights}
        samples = self._samples.of(snapshot, attribution, states, said)
        rows: list[LedgerRow] = []
        if self._last is not None:
            rows = account(
                samples,
                self._samples.names,
                ended_unix_s=tick.wall_s,
                passed_s=tick.now_s - self._last.now_s,
                interval_s=self.interval_s,
                allocation=self.allocation,
            )
        if rows or self.writer.trouble:
            self.writer.add(rows)
        if rows and self._keep_days < float("inf") and tick.now_s - self._pruned_s > _DAY_S:
            self._pruned_s = tick.now_s
            try:
                self.writer.prune(tick.wall_s, keep_days=self._keep_days)
            except (sqlite3.Error, OSError) as error:
                self.writer.trouble = f"The ledger cannot be pruned ({error})."


def _by_kernel(attribution: Attribution) -> dict[ProcessId, tuple[Holder, ...]]:
    found: dict[ProcessId, tuple[Holder, ...]] = {}
    for holder in attribution.holders:
        if holder.kernel is not None:
            found[holder.kernel] = (*found.get(holder.kernel, ()), holder)
    return found


def _latest(
    reports: Iterable[KernelReport], alive: Mapping[str, KernelProcess], tree: ProcessTree
) -> dict[ProcessId, KernelReport]:
    """The last report of each running kernel; in a container a kernel knows only its inner pid."""
    said: dict[tuple[int, float], KernelReport] = {}
    for report in reports:
        key = (report.id.pid, report.id.started_s)
        if key not in said or said[key].at_s <= report.at_s:
            said[key] = report
    found = {}
    for kernel in alive.values():
        process = tree.by_pid.get(kernel.id.pid) if kernel.id is not None else None
        if process is None:
            continue
        for pid in (process.id.pid, *process.namespace_pids[-1:]):
            if (pid, process.id.started_s) in said:
                found[process.id] = said[pid, process.id.started_s]
    return found


def _process(tree: ProcessTree, id: ProcessId | None) -> Process | None:
    if id is None:
        return None
    uid = tree.by_pid[id.pid].uid
    return Process(id.pid, id.started_s, -1 if uid is None else uid)


def _user() -> str:
    """The name of whoever runs this; JupyterHub's where there is one."""
    name = os.environ.get("JUPYTERHUB_USER", "")
    try:
        return name or getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        return ""
