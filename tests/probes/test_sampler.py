"""Sampling's parts: when it looks, how it counts, what it says of a stack."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest

from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import hooks, sampler, stacks
from jupyter_gpuprof.probes.hostmemory import free_bytes, group_bytes, own_bytes
from jupyter_gpuprof.probes.pyspy import is_refused, why_refused
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.probes.sampler import Schedule, Ticks, TrainingSampler
from jupyter_gpuprof.probes.stacks import StackCounts, spot_of, stack_counts
from jupyter_gpuprof.probes.workerreports import doing

# -- when ---------------------------------------------------------------------------------------------


def test_one_instant_in_each_period_whatever_happens() -> None:
    schedule = Schedule(1000, 100)
    for period in range(500):
        assert 1000 + 100 * period <= schedule.due_ns < 1000 + 100 * (period + 1)
        assert schedule.passed(schedule.due_ns - 1) == 0
        assert schedule.passed(schedule.due_ns) == 1


def test_instants_are_spread_over_a_loop_of_the_same_period() -> None:
    schedule, phases = Schedule(0, 1000), []
    for _ in range(100):
        phases.append(schedule.due_ns % 1000)
        schedule.passed(schedule.due_ns)
    ordered = [0, *sorted(phases), 1000]
    assert max(b - a for a, b in pairwise(ordered)) < 40


def test_a_late_look_stands_for_all_the_instants_it_missed() -> None:
    schedule, total, now = Schedule(0, 100), 0, 0
    for late in (30, 1234, 5, 777, 100_000):
        now += late
        total += schedule.passed(now)
    assert total == sum(1 for n in range(2000) if Schedule(0, 100)._due_ns(n) <= now)


# -- how stacks are counted ---------------------------------------------------------------------------


def run_source(file: str, look: Callable[[FrameType], object], source: str = "") -> None:
    """Run ``f`` of some source, and look at its frame while it is in ``here()``."""
    source = source or SOURCE
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"here": lambda *args, **kwargs: look(sys._getframe(1))}
    exec(compile(source, file, "exec"), names)
    names["f"]()  # type: ignore[call-arg]


SOURCE = "def f():\n    x = 1\n    return [len('é'), here(x,\n        y=2)]\n"


def test_the_text_is_the_call_itself() -> None:
    counts = StackCounts()
    run_source("<cell 3>", lambda frame: counts.add(frame, "step", 3))
    (stack,) = stack_counts(counts.stacks())
    inner = stack.frames[0]
    assert (inner.file, inner.line, inner.function) == ("<cell 3>", 3, "f")
    if sys.version_info >= (3, 11):
        assert inner.text == "here(x, y=2)"
    else:
        assert inner.text.startswith("return [")
    assert (stack.where, stack.count) == ("step", 3)
    assert [frame.function for frame in stack.frames[1:3]] == [
        "run_source",
        "test_the_text_is_the_call_itself",
    ]


def test_without_columns_the_text_is_the_line() -> None:
    assert stacks.text_of((__file__, "f", 3, 0, 0, 0)) == "from __future__ import annotations"
    assert stacks.text_of(("<gone>", "f", 3, 0, 0, 0)) == ""


def test_a_long_text_is_cut() -> None:
    texts = []
    source = f"def f():\n    here({'1 + ' * 100}1)\n"
    run_source("<long>", lambda f: texts.append(stacks.text_of(spot_of(f.f_code, f.f_lasti))), source)
    assert len(texts[0]) == stacks.MAX_TEXT
    assert texts[0].endswith("…")


def test_equal_code_of_two_files_is_counted_apart() -> None:
    counts = StackCounts()
    for file in ("<one>", "<two>", "<two>"):
        run_source(file, lambda frame: counts.add(frame, "fetch"))
    seen = {stack.frames[0].file: stack.count for stack in stack_counts(counts.stacks())}
    assert seen == {"<one>": 1, "<two>": 2}


def test_stacks_are_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_STACKS", 10)
    counts = StackCounts()
    for n in range(15):
        run_source(f"<file {n}>", lambda frame: counts.add(frame, "step", 2))
    counts.add(None, "step")
    assert sum(counts.stacks().values()) == 20
    assert counts.left_out == 11


def test_only_so_many_frames_are_kept() -> None:
    def deep(n: int) -> FrameType:
        return deep(n - 1) if n else sys._getframe()

    counts = StackCounts()
    counts.add(deep(200), "step")
    (stack,) = stack_counts(counts.stacks())
    assert len(stack.frames) == stacks.MAX_FRAMES
    counts = StackCounts()
    frame = deep(3)
    assert frame.f_back is not None
    counts.add(frame, "step", until=frame.f_back.f_code)
    (stack,) = stack_counts(counts.stacks())
    assert len(stack.frames) == 1  # the same code


def test_frames_of_ours_are_left_out() -> None:
    ours = stacks.__file__
    spots = ((ours, "f", 1, 0, 0, 0), ("theirs.py", "g", 2, 0, 0, 0))
    (stack,) = stack_counts(stacks.Counter({("step", spots): 4, ("step", spots[1:]): 5, ("step", ()): 1}))
    assert [frame.function for frame in stack.frames] == ["g"]
    assert stack.count == 9


# -- what a worker is seen in -------------------------------------------------------------------------

LOOP = ("_worker_loop", "BaseProcess.run")


@pytest.mark.parametrize(
    ("functions", "thread", "what"),
    [
        (("select", "wait", "Connection._poll", "Queue.get", *LOOP), "MainThread", None),
        (("Data.__getitem__", "_MapDatasetFetcher.fetch", *LOOP), "MainThread", "fetch"),
        (("get", "Data.__getitem__", "fetch", *LOOP), "MainThread", "fetch"),
        (LOOP, "MainThread", "fetch"),
        (("Queue.put", *LOOP), "MainThread", "step"),
        (("deep",) * 60, "MainThread", "fetch"),
        (("Condition.wait", "Queue._feed", "Thread.run"), "QueueFeederThread", None),
        (("_ForkingPickler.dumps", "Queue._feed", "Thread.run"), "QueueFeederThread", "step"),
        (("Queue._feed", "Thread.run"), "QueueFeederThread", "step"),
        (("Thread.run",), "QueueFeederThread", None),
    ],
)
def test_what_a_worker_is_doing(functions: tuple[str, ...], thread: str, what: str | None) -> None:
    assert doing(functions, thread) == what


# -- the thread -----------------------------------------------------------------------------------------


@pytest.fixture
def recorder():
    recorder = Recorder(StepAssembler(), lambda: True)
    hooks.push(recorder)
    yield recorder
    hooks.pop(recorder)


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_it_samples_this_thread_and_leaves_nothing(recorder: Recorder) -> None:
    before = sys.getswitchinterval()
    sampling = TrainingSampler(recorder)
    sampling.start()
    assert [t for t in threading.enumerate() if t.name == "gpuprof sampler"]
    busy(0.3)
    assert sys.getswitchinterval() < before
    samples = sampling.stop()
    assert sys.getswitchinterval() == before
    assert samples.total * samples.period_s == pytest.approx(samples.wall_s)
    assert samples.wall_s == pytest.approx(0.3, abs=0.1)
    assert isinstance(samples.cpu_s, float)
    in_busy = [s for s in samples.stacks if any(frame.function == "busy" for frame in s.frames)]
    assert sum(s.count for s in in_busy) >= 0.7 * samples.total
    assert not samples.remarks
    assert recorder.cost_ns > 0


def test_a_fetch_is_told_apart(recorder: Recorder) -> None:
    source = recorder.sources.of_site(1, "for", "line 1")
    sampling = TrainingSampler(recorder)
    sampling.start()
    recorder.begin_fetch(source)
    busy(0.2)
    recorder.end_fetch("batch")
    samples = sampling.stop()
    assert sum(s.count for s in samples.stacks if s.where == "fetch") >= 0.8 * samples.total > 0


def test_it_sleeps_while_another_run_is_on_or_nothing_is_recorded(recorder: Recorder) -> None:
    sampling = TrainingSampler(recorder)
    inner = Recorder(StepAssembler(), lambda: True)
    hooks.push(inner)
    sampling.start()
    busy(0.1)
    hooks.pop(inner)
    recorder.muted = True
    busy(0.1)
    recorder.failures_left = 0
    busy(0.05)
    assert sampling.stop().total == 0


def test_what_fails_in_it_is_a_remark(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "current", lambda: 1 / 0)
    sampling = TrainingSampler(recorder)
    sampling.start()
    busy(0.1)
    (remark,) = sampling.stop().remarks
    assert "ZeroDivisionError" in remark


def test_an_interval_changed_by_somebody_else_stays() -> None:
    before = sys.getswitchinterval()
    try:
        ticks = Ticks(lambda n: None)
        ticks.start()
        busy(0.05)
        sys.setswitchinterval(0.003)
        ticks.stop()
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_batches_fetched_on_another_thread_put_the_interval_back(recorder: Recorder) -> None:
    before = sys.getswitchinterval()
    sampling = TrainingSampler(recorder)
    sampling.start()
    busy(0.05)
    recorder.off_thread(1000)
    busy(0.1)
    assert sys.getswitchinterval() == before
    sampling.stop()


def test_ending_twice_or_before_it_began_is_harmless() -> None:
    ticks = Ticks(lambda n: None)
    ticks.stop()
    ticks.stop()
    ticks = Ticks(lambda n: None)
    ticks.end()
    ticks.start()
    ticks.stop()
    assert not ticks.is_alive()
    assert sys.getswitchinterval() > sampler.SWITCH_S


# -- memory ---------------------------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_a_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": "1000\n",
            "sys/fs/cgroup/pod/memory.current": "700\n",
            "sys/fs/cgroup/pod/memory.stat": "anon 500\ninactive_file 50\n",
        },
    )
    assert group_bytes(tmp_path) == 350


def test_the_older_groups_and_a_container_that_sees_its_own_as_the_top(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1200\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 100\n",
        },
    )
    assert group_bytes(tmp_path) == 0
    write(tmp_path, {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n"})
    assert group_bytes(tmp_path) is None
    assert group_bytes(tmp_path / "elsewhere") is None


def test_memory_of_this_machine() -> None:
    free, own = free_bytes(), own_bytes()
    assert isinstance(free, int)
    assert free > 0
    assert own is None or own > 1 << 20
    assert own_bytes(2**22 + 1) is None


# -- when py-spy may not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "Permission Denied: Try running again with elevated permissions by going 'sudo env ...'",
        "Error: Failed to get process executable name. Check that the process is running.\nReason: "
        "Permission denied (os error 13)",
        "Operation not permitted (os error 1)",
    ],
)
def test_refusals_are_known(message: str) -> None:
    assert is_refused(message)
    assert not is_refused("Error: Failed to copy PyInterpreterState")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"proc/sys/kernel/yama/ptrace_scope": "3"}, "ptrace_scope 3"),
        ({"proc/sys/kernel/yama/ptrace_scope": "2"}, "administrator"),
        ({"proc/sys/kernel/yama/ptrace_scope": "1"}, "kernel.yama.ptrace_scope=0"),
        ({"proc/sys/kernel/yama/ptrace_scope": "1", ".dockerenv": ""}, "--cap-add=SYS_PTRACE"),
        ({}, "CAP_SYS_PTRACE"),
    ],
)
def test_why_py_spy_may_not(tmp_path: Path, files: dict[str, str], words: str) -> None:
    write(tmp_path, files)
    said = why_refused(1234, tmp_path)
    assert words in said
    assert "none of this" in said  # the way that needs no permission


def test_workers_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"proc/1234/stat": ""})
    monkeypatch.setattr("os.getuid", lambda: -5)
    assert "another user" in why_refused(1234, tmp_path)
