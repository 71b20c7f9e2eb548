"""One look after the other, with scripted devices, processes and clocks."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from jupyter_gpuprof.records.devices import DeviceProcess, DeviceReading, ProcessWork
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.processes import KernelReport, KernelTag, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import SeenKernel, Sighting
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.session.devices.reported import Reported
from jupyter_gpuprof.store.database import database_path
from jupyter_gpuprof.store.kernelreports import KeptKernel, KernelReports
from jupyter_gpuprof.store.ledger import LedgerWriter
from jupyter_gpuprof.testing import FakeClock, FakeDeviceReader
from jupyter_gpuprof.views.sighting_json import decisions_json, devices_json, holders_json

GIB = 2**30
SERVER = 10
UID = os.getuid() if hasattr(os, "getuid") else 0
POLICY = Policy(idle_timeout_s=60, warn_before_s=10, step_wait_s=5, start_grace_s=0, action="shutdown")


@dataclass
class Table:
    """Processes as scripted."""

    processes: dict[int, ProcessFacts] = field(default_factory=dict)

    def add(self, pid: int, parent: int = SERVER, started_s: float = 1.0, session: str = "") -> ProcessId:
        id = ProcessId(pid, started_s)
        tag = KernelTag(SERVER, session) if session else None
        self.processes[pid] = ProcessFacts(id, parent, UID, 1.0, (pid,), tag)
        return id

    def work(self, pid: int, seconds: float) -> None:
        old = self.processes[pid]
        self.processes[pid] = replace(old, cpu_s=old.cpu_s + seconds)

    def look(self, roots: object, asked: object = ()) -> tuple[ProcessFacts, ...]:
        return tuple(self.processes.values())


class World:
    """A server with device 0, and kernels on it."""

    def __init__(self, policy: Policy = POLICY, writer: LedgerWriter | None = None) -> None:
        self.clock, self.wall = FakeClock(10**12), FakeClock(17 * 10**17)
        self.table = Table()
        self.table.add(SERVER, 1)
        self.reader = FakeDeviceReader(self.clock)
        self.held: dict[int, int] = {}
        self.busy = 0.0
        self.kernels: list[SeenKernel] = []
        self.file = KernelReports()
        self.monitor = DeviceMonitor(
            self.reader, self.table, policy=policy, interval_s=1.0, writer=writer,
            reported=Reported(self.file, now_s=lambda: self.clock.ns * 1e-9,
                              now_unix_s=lambda: self.wall.ns * 1e-9),
            server_pid=SERVER, user="ann", clock=self.clock, wall=self.wall,
        )  # fmt: skip

    def kernel(self, kernel_id: str, pid: int, held: int = GIB, path: str = "a.ipynb") -> ProcessId:
        self.kernels.append(SeenKernel(kernel_id, path, "python3", pid, 0, 0))
        if held:
            self.held[pid] = held
        return self.table.add(pid, session=path)

    def look(self, seconds: float = 1.0) -> Sighting:
        for clock in (self.clock, self.wall):
            clock.advance(seconds)
        self.reader.devices = (
            DeviceReading(
                0, "GPU-0", "H200", "ok", "", 140 * GIB, sum(self.held.values()), 0, self.busy, False,
                tuple(DeviceProcess(pid, size) for pid, size in self.held.items()),
                tuple(ProcessWork(pid, self.busy) for pid in self.held) if self.busy else (),
            ),
        )  # fmt: skip
        return self.monitor.tick(self.kernels)

    def run(self, seconds: int) -> tuple[Sighting, list[tuple[str, str]]]:
        """Looks for so long; what was decided is taken as done."""
        done = []
        for _ in range(seconds):
            seen = self.look()
            for kernel in seen.kernels:
                if kernel.decision.action != "none":
                    done.append((kernel.facts.kernel_id, kernel.decision.action))
                    self.monitor.acted(kernel.facts.kernel_id, kernel.decision)
        return seen, done


@pytest.fixture
def world():
    made = World()
    yield made
    made.monitor.close()


def test_an_idle_kernel_comes_to_each_step_in_its_time(world: World):
    world.kernel("k", 100)
    seen, done = world.run(62)
    assert done == [("k", "warn"), ("k", "free"), ("k", "shutdown")]
    assert seen.kernels[0].holdings[0].held_bytes == GIB


def test_who_holds_nothing_is_left_alone(world: World):
    world.kernel("k", 100, held=0)
    world.kernel("other", 200)
    seen, done = world.run(70)
    assert {name for name, _ in done} == {"other"}
    assert seen.kernels[0].decision.reason == "holds too little"


def test_a_child_that_works_is_work_of_the_kernel(world: World):
    world.kernel("k", 100)
    world.table.add(101, parent=100)
    world.look()
    world.table.processes[101] = replace(world.table.processes[101], parent_pid=1)  # its parent ended
    for _ in range(100):
        world.table.work(101, 0.5)
        seen = world.look()
        assert seen.kernels[0].decision.action == "none"
    assert seen.kernels[0].state == "background work"


def test_what_a_dead_kernel_left_is_an_orphan_until_it_ends(world: World):
    kernel = world.kernel("k", 100)
    child = world.table.add(101, parent=100, started_s=2.0)
    world.held = {101: 2 * GIB}
    world.look()
    assert world.monitor.descendants("k") == {child}
    del world.table.processes[kernel.pid]
    world.table.processes[101] = replace(world.table.processes[101], parent_pid=1)
    world.kernels.clear()
    seen, _ = world.run(3)
    (orphan,) = seen.orphans
    assert (orphan.facts.process.pid, orphan.facts.recorded) == (101, orphan.facts.process)
    assert orphan.held == (("GPU-0", 2 * GIB),)
    assert orphan.decision.reason == "orphans are only reported"
    answer = holders_json(seen, world.clock.ns * 1e-9, {})["orphans"][0]
    assert (answer["certain"], answer["path"], answer["held_bytes"]) == (True, "a.ipynb", 2 * GIB)
    assert devices_json(seen, 0.0)["devices"][0]["holders"][0]["orphan"] is True
    world.table.add(101, parent=1, started_s=9.0)  # another process with its number
    assert world.look().orphans == ()
    assert world.monitor.descendants("k") == frozenset()


def test_a_restarted_kernel_leaves_its_children_behind_and_begins_anew(world: World):
    world.kernel("k", 100)
    world.table.add(101, parent=100)
    world.held = {101: GIB}
    world.run(55)
    del world.table.processes[100]
    world.kernels = [replace(world.kernels[0], pid=300, version=5)]
    world.table.add(300, started_s=50.0, session="a.ipynb")
    seen = world.look()
    assert [orphan.facts.process.pid for orphan in seen.orphans] == [101]
    assert seen.kernels[0].facts.process.pid == 300
    assert seen.kernels[0].decision.action == "none"


def test_a_kernel_without_its_process_is_no_holder(world: World):
    world.kernel("k", 100)
    del world.table.processes[100]
    assert world.look().kernels == ()


def test_a_remote_kernel_is_named_so_and_never_touched(world: World):
    world.kernels.append(SeenKernel("far", "b.ipynb", "python3", None, 0, Missing("elsewhere")))
    seen, done = world.run(100)
    assert (seen.kernels[0].state, done) == ("remote", [])


def test_what_a_kernel_reports_counts_where_the_driver_does_not_list_it(world: World):
    kernel = world.kernel("k", 100, held=0)
    world.held = {4711: 3 * GIB}  # of another namespace
    report = KernelReport(kernel, "0", None, GIB, 2 * GIB, True, 0.0)
    world.file.write(kernel, [report], None, world.wall.ns * 1e-9)
    seen = world.look()
    assert seen.kernels[0].state == "training"
    assert seen.kernels[0].holdings[0].held_bytes == 2 * GIB
    world.file.write(kernel, [replace(report, training_active=False)], None, world.wall.ns * 1e-9)
    seen, _ = world.run(3)
    assert seen.kernels[0].state == "finished and holding"


def test_a_keep_of_the_kernel_itself_is_bounded_by_the_policy(world: World):
    kernel = world.kernel("k", 100)
    now_s = world.wall.ns * 1e-9
    world.file.write(kernel, [], KeptKernel(kernel, now_s, float("inf"), "a thread"), now_s)
    seen, done = world.run(100)
    assert not done
    assert "a thread" in seen.kernels[0].decision.sentence
    answer = holders_json(seen, world.clock.ns * 1e-9, {})["holders"][0]
    assert answer["keep"]["until_in_s"] == pytest.approx(24 * 3600 - 100, abs=2)
    world.file.write(kernel, [], None, now_s)
    _, done = world.run(70)
    assert done[-1] == ("k", "shutdown")


def test_the_seconds_add_up_and_go_to_the_notebook(tmp_path: Path):
    writer = LedgerWriter(tmp_path / "ledger.db")
    world = World(writer=writer)
    world.kernel("k", 100)
    world.run(10)
    world.busy = 0.5
    world.kernels = [replace(world.kernels[0], open_requests=1)]
    world.run(20)
    world.busy, world.held = 0.0, {}
    world.run(5)
    with sqlite3.connect(tmp_path / "ledger.db") as file:
        rows = file.execute(
            "SELECT state, notebook, user, SUM(seconds) FROM device_seconds GROUP BY 1, 2, 3"
        ).fetchall()
    file.close()
    seconds = {row[:3]: round(row[3], 6) for row in rows}
    assert seconds == {
        ("held_idle", "a.ipynb", "ann"): 9.0,  # the first look begins it
        ("busy", "a.ipynb", "ann"): 10.0,
        ("host_idle", "a.ipynb", "ann"): 10.0,
        ("free", "", ""): 5.0,
    }
    world.monitor.close()


def test_no_device_is_no_error_and_costs_nothing(world: World):
    world.kernel("k", 100)
    world.reader.devices = ()
    for _ in range(2):
        world.clock.advance(1)
        world.wall.advance(1)
        seen = world.monitor.tick(world.kernels)
    assert seen.snapshot.state == "no device"
    assert seen.kernels[0].decision.reason == "holds too little"


def test_200_kernels_are_all_told(world: World):
    for n in range(200):
        world.kernel(f"k{n}", 1000 + n, path=f"{n}.ipynb")
        world.table.add(5000 + n, parent=1000 + n)
    seen = world.look()
    assert len(decisions_json(seen, 0.0, {})) == len(holders_json(seen, 0.0, {})["holders"]) == 200


def test_the_reports_are_in_the_ledger_file(world: World):
    world.file.write(ProcessId(1, 1.0), [], None, 1.0)
    assert database_path().is_file()
