"""Process facts against real processes, and against psutil's word for the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.probes import processes as probe
from jupyter_gpuprof.probes.processes import ProcessTable, process_id
from jupyter_gpuprof.records.processes import KernelTag, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the tests start processes as Unix does")

Start = Callable[..., subprocess.Popen[str]]
WAIT = "import sys; sys.stdin.read()"
#: A child in a session of its own, whose pid it prints.
CHILD = (
    "import subprocess, sys\n"
    "nap = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
    "child = subprocess.Popen(nap, start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs, which end with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(program: str = WAIT, **options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, **{**pipes, **options}))
        return started[-1]

    yield begin
    for process in started:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.communicate()


def by_pid(facts: tuple[ProcessFacts, ...]) -> dict[int, ProcessFacts]:
    return {process.id.pid: process for process in facts}


@pytest.fixture(params=["proc", "psutil"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Linux's own files, and what other systems use."""
    if request.param == "proc" and not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux")
    monkeypatch.setattr(probe, "_ON_LINUX", request.param == "proc")
    return request.param


def test_this_process(source: str) -> None:
    me = psutil.Process()
    facts = by_pid(ProcessTable().look([me.pid]))[me.pid]
    assert facts.id == process_id() == process_id(me.pid)
    assert facts.parent_pid == me.ppid()
    assert facts.uid == os.getuid()
    assert facts.cpu_s == pytest.approx(sum(me.cpu_times()[:4]), abs=0.1)
    assert process_id(2**22 + 1) is None


def test_start_times_order_processes_and_last(start: Start, source: str) -> None:
    first = process_id(start().pid)
    time.sleep(0.03)  # the clock of /proc counts hundredths
    second = process_id(start().pid)
    assert first is not None
    assert second is not None
    assert first.started_s < second.started_s
    assert process_id(first.pid) == first
    since_s = time.time() - psutil.Process(second.pid).create_time()
    me = process_id()
    assert me is not None
    alive_s = time.time() - psutil.Process().create_time()
    assert second.started_s - me.started_s == pytest.approx(alive_s - since_s, abs=0.1)


def test_children_in_their_own_session_and_grandchildren_are_found(start: Start, source: str) -> None:
    kernel = start(CHILD)
    assert kernel.stdout is not None
    child = int(kernel.stdout.readline())
    stranger = start()
    facts = ProcessTable().look([kernel.pid])
    assert {kernel.pid, child} <= by_pid(facts).keys()
    assert stranger.pid not in by_pid(facts)
    root = process_id(kernel.pid)
    assert root is not None
    assert {id.pid for id in ProcessTree(facts).descendants(root)} == {child}


def test_processes_that_begin_or_end_between_looks(start: Start, source: str) -> None:
    table = ProcessTable()
    table.look([os.getpid()])
    kernel = start(CHILD)
    assert kernel.stdout is not None
    child = int(kernel.stdout.readline())
    assert {kernel.pid, child} <= by_pid(table.look([os.getpid()])).keys()
    os.kill(child, 9)
    kernel.kill()
    kernel.communicate()
    assert kernel.pid not in by_pid(table.look([os.getpid()]))


def test_a_root_that_was_a_stranger_before(start: Start) -> None:
    table = ProcessTable()
    kernel = start(CHILD)
    assert kernel.stdout is not None
    child = int(kernel.stdout.readline())
    assert child not in by_pid(table.look([]))
    assert child in by_pid(table.look([kernel.pid]))


def test_a_pid_that_the_driver_lists_comes_with_its_ancestors(start: Start, source: str) -> None:
    table = ProcessTable()
    kernel = start(CHILD)
    assert kernel.stdout is not None
    child = int(kernel.stdout.readline())
    table.look([])
    facts = by_pid(table.look([], asked=[child, 2**22 + 1]))
    lineage = [process.pid for process in (psutil.Process(child), *psutil.Process(child).parents())]
    assert set(lineage) == facts.keys()
    assert facts[child].parent_pid == kernel.pid


def test_the_tag_of_a_kernel_is_inherited(start: Start, source: str) -> None:
    env = {**os.environ, "JPY_PARENT_PID": "4711", "JPY_SESSION_NAME": "/home/me/Übung 1.ipynb"}
    kernel, bare, odd = (
        start(CHILD, env=env),
        start(env={**os.environ, "JPY_PARENT_PID": "4711"}),
        start(env={**os.environ, "JPY_PARENT_PID": "no number"}),
    )
    assert kernel.stdout is not None
    child = int(kernel.stdout.readline())
    pids = (child, kernel.pid, bare.pid, odd.pid)
    until = time.monotonic() + 5
    while time.monotonic() < until:  # a program has its environment once it is begun
        facts = by_pid(ProcessTable().look([os.getpid()]))
        if facts[bare.pid].tag:
            break
    tag = KernelTag(4711, "/home/me/Übung 1.ipynb")
    assert [facts[pid].tag for pid in pids] == [tag, tag, KernelTag(4711), None]


def test_a_tagged_process_is_found_without_a_root(start: Start, source: str) -> None:
    env = {**os.environ, "JPY_PARENT_PID": "4711", "JPY_SESSION_NAME": "/a.ipynb"}
    kernel = start("print(1, flush=True); import sys; sys.stdin.read()", env=env)
    assert kernel.stdout is not None
    kernel.stdout.readline()
    assert kernel.pid in by_pid(ProcessTable().look([]))


def test_cpu_of_a_tree_stays_when_a_child_ends(start: Start, source: str) -> None:
    program = (
        "import subprocess, sys, time\n"
        "burn = 'import time\\nwhile time.process_time() < 0.3: pass'\n"
        "subprocess.run([sys.executable, '-c', burn])\n"
        "print(1, flush=True); sys.stdin.read()"
    )
    kernel = start(program)
    assert kernel.stdout is not None
    kernel.stdout.readline()
    facts = ProcessTable().look([kernel.pid])
    root = process_id(kernel.pid)
    assert root is not None
    assert ProcessTree(facts).cpu_s([root]) >= 0.3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open files are read from /proc")
def test_open_device_files(start: Start, tmp_path: Path) -> None:
    device = tmp_path / "fakedev0"
    files = (str(tmp_path / "fakedev"),)
    program = "import sys; file = open({!r}); print(1, flush=True); sys.stdin.read()"
    with_device, without = start(program.format(__file__)), start(program.format(__file__))
    table = ProcessTable(device_files=files)
    before = by_pid(table.look([], asked=[with_device.pid]))[with_device.pid].has_device_open
    assert isinstance(before, Missing), "a machine without device files says nothing of processes"
    device.touch()
    with_device = start(program.format(str(device)))
    for process in (with_device, without):
        assert process.stdout is not None
        process.stdout.readline()
    facts = by_pid(ProcessTable(device_files=files).look([without.pid], asked=[with_device.pid, without.pid]))
    assert facts[with_device.pid].has_device_open is True
    assert facts[without.pid].has_device_open is False
    unasked = by_pid(ProcessTable(device_files=files).look([with_device.pid]))[with_device.pid]
    assert isinstance(unasked.has_device_open, Missing)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_pids_of_a_namespace_inside_ours() -> None:
    command = ["unshare", "--fork", "--pid", "--kill-child", "sh", "-c", "echo $$; read line"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        inner = process.stdout.readline().strip()
        if not inner:
            pytest.skip("this user may not make a namespace")
        facts = ProcessTable().look([process.pid])
        inside = [p for p in facts if len(p.namespace_pids) == 2]
        assert [p.namespace_pids for p in inside] == [(inside[0].id.pid, int(inner))]
        assert inside[0].parent_pid == process.pid
    finally:
        process.communicate("\n", timeout=10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as /proc writes it")
def test_a_name_that_looks_like_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    after = " ".join(["S", "7", *["0"] * 9, "150", "50", "25", "25", *["0"] * 4, "1234", "0"])
    monkeypatch.setattr(probe, "_file", lambda pid, name: f"42 (a) R 1 (b)) {after}".encode())
    ticks = os.sysconf("SC_CLK_TCK")
    stat = probe._stat(42)
    assert stat == (ProcessId(42, 1234 / ticks), 7, 250 / ticks)


def test_the_process_of_another_user_tells_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux")
    asked: list[str] = []

    def file(pid: int, name: str) -> bytes:
        asked.append(name)
        return {"status": b"Name:\tx\nUid:\t54321\t54321\t54321\t54321\nNSpid:\t645400\t324\n"}[name]

    monkeypatch.setattr(probe, "_file", file)
    fixed = probe._read_fixed(645400)
    assert (fixed.uid, fixed.namespace_pids, fixed.tag) == (54321, (645400, 324), None)
    assert asked == ["status"]
