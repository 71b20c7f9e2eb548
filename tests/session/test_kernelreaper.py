"""The reaper inside a kernel: a real event manager, a clock that is moved by hand, scripted work."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.events import EventManager, available_events

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.idleness import Work
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.release import ReaperNote
from jupyter_gpuprof.session.devices import keep, kernelreaper, releasehooks
from jupyter_gpuprof.session.devices.kernelreaper import KernelReaper, OwnWork, kernel_policy
from jupyter_gpuprof.testing import FakeClock
from jupyter_gpuprof.views.release_text import note_line, reaper_text

GIB = 2**30


class Shell:
    """The part of a shell that the reaper uses."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.events = EventManager(self, available_events)
        self.last_execution_result = None

    def begin(self) -> None:
        self.events.trigger("pre_execute")

    def end(self) -> None:
        self.events.trigger("post_execute")


class World:
    """A kernel with a reaper that is called by hand; 100 s of idleness are enough."""

    def __init__(self, action: str, after_s: float = 100.0) -> None:
        self.clock = FakeClock()
        self.shell = Shell()
        self.notes: list[ReaperNote] = []
        self.asked: list[bool] = []
        self.ended: list[float] = []
        self.cpu_s = 1.0
        self.cores = 0.0
        self.held = GIB
        self.busy: float | Missing = 0.0
        self.reaper = KernelReaper(
            kernel_policy(after_s, action),
            self.shell,
            tell=self.notes.append,
            work=self.work,
            now_s=self.now_s,
            wall_s=lambda: 1.7e9 + self.now_s(),
            end=lambda: self.ended.append(self.now_s()),
        )
        self.reaper.start(inside_cell=False, thread=False)

    def now_s(self) -> float:
        return self.clock.ns * 1e-9

    def work(self, quiet: bool) -> Work:
        self.asked.append(quiet)
        if not quiet:
            return Work(self.cpu_s, Missing("a cell runs"), Missing("a cell runs"), Missing("a cell runs"))
        return Work(self.cpu_s, self.busy, reported_bytes=self.held)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / self.reaper.interval_s)):
            self.clock.advance(self.reaper.interval_s)
            self.cpu_s += self.cores * self.reaper.interval_s
            self.reaper.tick()

    @property
    def steps(self) -> list[str]:
        return [note.action for note in self.notes]


@pytest.fixture
def worlds() -> Iterator[Any]:
    made: list[World] = []

    def make(*args: Any) -> World:
        made.append(World(*args))
        return made[-1]

    yield make
    for world in made:
        world.reaper.stop()
        assert not any(world.shell.events.callbacks.values())
    keep.end_keeps()


def test_a_warning_then_the_action(worlds: Any) -> None:
    world = worlds("free")
    world.run(40)
    assert world.steps == []
    world.run(30)
    assert world.steps == ["warn"]
    assert "holds 1.00 GiB" in note_line(world.notes[0])
    assert "memory that nobody uses is freed" in note_line(world.notes[0])
    assert "%gpuprof keep" in note_line(world.notes[0])
    world.run(50)
    assert world.steps == ["warn", "free"]
    assert world.notes[1].report is not None
    assert "No accelerator is in use here" in note_line(world.notes[1])
    world.run(500)
    assert world.steps == ["warn", "free"]  # each once


def test_a_cell_begins_it_all_anew(worlds: Any) -> None:
    world = worlds("free")
    world.run(70)
    assert world.steps == ["warn"]
    world.shell.begin()
    world.run(200)
    world.shell.end()
    world.run(30)
    assert world.steps == ["warn"]
    world.run(80)
    assert world.steps == ["warn", "warn", "free"]


def test_the_device_is_left_alone_while_a_cell_runs(worlds: Any) -> None:
    world = worlds("offload")
    world.shell.begin()
    world.shell.begin()  # a cell within a cell
    world.shell.end()
    world.run(300)
    assert set(world.asked) == {False}
    assert world.steps == []
    world.shell.end()
    world.run(10)
    assert world.asked[-1] is True


@pytest.mark.parametrize("how", ["processor", "device", "unread", "nothing held", "keep"])
def test_what_is_in_the_way(worlds: Any, how: str) -> None:
    world = worlds("free")
    if how == "processor":
        world.cores = 0.5
    elif how == "device":
        world.busy = 1.0
    elif how == "unread":
        world.busy = Missing("it cannot be asked")
    elif how == "nothing held":
        world.held = 0
    else:
        keep.keep(1e6, why="a long evaluation")
    world.run(400)
    assert world.steps == []
    assert world.reaper.status.decision is not None
    assert world.reaper.status.decision.vetoes


def test_it_steps_back_before_the_servers(worlds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds("free")
    monkeypatch.setenv(kernelreaper.SERVER_REAPER, "1")
    world.run(400)
    assert world.steps == []
    assert world.asked == []
    assert "the reaper of the Jupyter server is on" in reaper_text(world.reaper.status)
    monkeypatch.setenv(kernelreaper.SERVER_REAPER, "0")
    world.run(40)
    assert world.steps == []  # what was before does not count
    world.run(80)
    assert world.steps == ["warn", "free"]


def test_a_shutdown_frees_first_and_saves(worlds: Any) -> None:
    world = worlds("shutdown")
    saved: list[float] = []

    def save() -> None:
        saved.append(world.now_s())

    def broken() -> None:
        raise OSError("the disk is full")

    releasehooks.on_release(save)
    releasehooks.on_release(broken)
    try:
        world.run(200)
    finally:
        releasehooks.forget_release(save)
        releasehooks.forget_release(broken)
    assert world.steps == ["warn", "free", "shutdown"]
    assert saved == world.ended
    assert 100 <= world.ended[0] <= 100 + world.reaper.interval_s
    assert "the disk is full" in note_line(world.notes[-1])
    assert "shut down now" in note_line(world.notes[-1])


def test_a_cell_that_begins_while_it_saves_is_not_lost(worlds: Any) -> None:
    world = worlds("shutdown")
    releasehooks.on_release(world.shell.begin)
    try:
        world.run(200)
    finally:
        releasehooks.forget_release(world.shell.begin)
    assert world.ended == []
    assert world.steps == ["warn", "free"]


def test_a_cell_waits_for_the_step_in_progress(worlds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds("offload")
    inside, go_on, stopped = threading.Event(), threading.Event(), []

    def slow(names: Any, shell: Any, *, returned: Any, stop: Any) -> None:
        inside.set()
        go_on.wait(30)
        stopped.append(stop())

    monkeypatch.setattr(kernelreaper, "offload_device", slow)
    looking = threading.Thread(target=world.run, args=[150])
    looking.start()
    assert inside.wait(30)
    cell = threading.Thread(target=world.shell.begin)
    cell.start()
    deadline = time.monotonic() + 30
    while not world.reaper._running:
        assert time.monotonic() < deadline
    assert cell.is_alive()  # it waits
    go_on.set()
    for thread in (looking, cell):
        thread.join(30)
        assert not thread.is_alive()
    assert stopped == [True]  # and the step was told to hurry


def test_a_failure_is_told_and_not_repeated(worlds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds("free")
    calls: list[int] = []

    def fail(*args: Any) -> None:
        calls.append(1)
        raise RuntimeError("the driver is gone")

    monkeypatch.setattr(kernelreaper, "release_device", fail)
    with pytest.raises(RuntimeError):
        world.run(200)
    world.run(200)
    assert calls == [1]


def test_its_thread_looks_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelreaper, "SHORTEST_INTERVAL_S", 0.01)
    seen = threading.Event()

    def work(quiet: bool) -> Work:
        seen.set()
        raise RuntimeError("cannot be read")

    shell = Shell()
    reaper = KernelReaper(kernel_policy(0.05), shell, tell=lambda note: None, work=work)
    kernelreaper.turn_on(reaper, inside_cell=False)
    assert seen.wait(30)
    assert [t.daemon for t in threading.enumerate() if t.name == "gpuprof reaper"] == [True]
    assert "is on: warn after" in reaper_text(kernelreaper.reaper_status())
    deadline = time.monotonic() + 30
    while "cannot be read" not in reaper_text(kernelreaper.reaper_status()):
        assert time.monotonic() < deadline
    assert kernelreaper.turn_off()
    assert not kernelreaper.turn_off()
    assert "gpuprof reaper" not in [t.name for t in threading.enumerate()]
    assert not any(shell.events.callbacks.values())
    assert "is off; %gpuprof reaper on" in reaper_text(kernelreaper.reaper_status())
    monkeypatch.setenv(kernelreaper.SERVER_REAPER, "1")
    off = reaper_text(kernelreaper.reaper_status())
    assert off == "The reaper of this kernel is off; the reaper of the Jupyter server is on.\n"


@pytest.mark.parametrize(
    ("after_s", "action", "option"),
    [(0.0, "warn", "--after"), (float("nan"), "warn", "--after"), (60.0, "explode", "--action")],
)
def test_policies_that_make_no_sense(after_s: float, action: str, option: str) -> None:
    """What is said names the option as the person writes it."""
    with pytest.raises(OptionError, match=option):
        kernel_policy(after_s, action)


def test_its_own_work_is_that_of_the_process_tree() -> None:
    work = OwnWork()
    before = work(True)
    assert before.reported_bytes == 0
    begun = time.process_time()
    while time.process_time() - begun < 0.1:
        pass
    after = work(True)
    assert isinstance(before.cpu_s, float)
    assert isinstance(after.cpu_s, float)
    assert after.cpu_s - before.cpu_s == pytest.approx(time.process_time() - begun, abs=0.03)
    assert isinstance(work(False).held_bytes, Missing)


@pytest.mark.slow
def test_a_real_kernel_ends_itself() -> None:
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=command, display_name="Python", language="python")
    manager.start_kernel(env={**os.environ, "PYTHONWARNINGS": "ignore"})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        client.execute(
            "import threading\n"
            "from jupyter_gpuprof.session.devices.kernelreaper import end_kernel\n"
            "threading.Thread(target=end_kernel, args=[get_ipython()]).start()"
        )
        deadline = time.monotonic() + 30
        while manager.is_alive():
            assert time.monotonic() < deadline, "the kernel did not end"
            time.sleep(0.05)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
