"""Suspension with a scripted driver: its states, each failure, and cells that wait in a real shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

from jupyter_gpuprof.analysis.suspension import conditions, next_call
from jupyter_gpuprof.probes import suspendable
from jupyter_gpuprof.probes.cudacheckpoint import CudaProcess, DriverRefused
from jupyter_gpuprof.records.devices import DeviceProcess, DeviceReading, Snapshot
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.suspension import SuspendReport, SuspensionFacts
from jupyter_gpuprof.session.devices import suspend as kernel_side
from jupyter_gpuprof.session.devices import suspend_child
from jupyter_gpuprof.session.devices.suspending import BUSY_S, drive
from jupyter_gpuprof.testing import FakeClock
from jupyter_gpuprof.views.suspend_html import suspend_html
from jupyter_gpuprof.views.suspend_text import suspend_note, suspend_text

GIB = 1 << 30
RIGHT = SuspensionFacts(
    system="Linux x86_64", driver="580.95.05", driver_trouble="", same_user=True, devices=("GPU-a",),
    used_devices=1, mig=False, mps=False, footprint_bytes=10 * GIB, free_host_bytes=12 * GIB, children=(),
    nvml_loaded=False, distributed=False, other_libraries=(), profiling="", holds_cells=True,
)  # fmt: skip
TO = {"lock": "locked", "checkpoint": "checkpointed", "restore": "locked", "unlock": "running"}
FROM = {"lock": "running", "checkpoint": "locked", "restore": "checkpointed", "unlock": "locked"}


class Driver:
    """A driver by the book, but for what a script says of single calls.

    Args:
        state: to begin with.
        script: by call: "refuses" (nothing changes), "fails" (the state is failed), "gone", "late" (does it,
            and complains all the same), "between" (stays in between for ever), "silent" (no state is told).
    """

    def __init__(self, state: str = "running", **script: str) -> None:
        self.now, self.script, self.calls = state, script, list[str]()
        self.broken = ""

    def state(self) -> Any:
        if self.broken == "silent":
            raise DriverRefused("no answer")
        return self.now

    def lock(self, timeout_ms: int) -> None:
        assert timeout_ms > 0  # 0 would wait for ever
        self._do("lock")

    def checkpoint(self) -> None:
        self._do("checkpoint")

    def restore(self) -> None:
        self._do("restore")

    def unlock(self) -> None:
        self._do("unlock")

    def _do(self, call: str) -> None:
        assert self.now == FROM[call], f"{call} of a process that is {self.now}"
        self.calls.append(call)
        how = self.script.get(call, "")
        if how in ("", "late"):
            self.now = TO[call]
        elif how != "refuses":
            self.now = {"fails": "failed", "gone": "gone", "between": "busy", "silent": self.now}[how]
        if how == "silent":
            self.broken = how
        if how:
            raise DriverRefused(f"{call} {how}")


class Reader:
    """One device, of which `pid` holds 10 GiB and somebody else `others`."""

    def __init__(self, others: int = 0, total: int | Missing = 16 * GIB) -> None:
        self.others, self.total, self.pid = others, total, os.getpid()

    def read(self) -> Snapshot:
        device = DeviceReading(
            0, "GPU-a", "H200", "ok", total_bytes=self.total, used_bytes=self.others, reserved_bytes=0,
            processes=(DeviceProcess(self.pid, 10 * GIB),),
        )  # fmt: skip
        return Snapshot(0.0, "ok", "", "580.95.05", (device,))

    def close(self) -> None:
        pass


def run(driver: Driver, goal: Any) -> Any:
    clock = FakeClock()
    return drive(driver, goal, now_s=lambda: clock() * 1e-9, sleep=lambda s: clock.advance(s))


@pytest.mark.parametrize(
    ("goal", "begins", "script", "ending", "state", "calls"),
    [
        ("suspend", "running", {}, "suspended", "checkpointed", "lock checkpoint"),
        ("restore", "checkpointed", {}, "running", "running", "restore unlock"),
        # The lock times out: nothing has changed.
        ("suspend", "running", {"lock": "refuses"}, "running", "running", "lock"),
        # The checkpoint fails, the lock is taken back.
        ("suspend", "running", {"checkpoint": "refuses"}, "running", "running", "lock checkpoint unlock"),
        ("suspend", "running", {"checkpoint": "refuses", "unlock": "refuses"}, "failed", "locked",
         "lock checkpoint unlock"),
        ("suspend", "running", {"checkpoint": "fails"}, "failed", "failed", "lock checkpoint"),
        ("suspend", "running", {"lock": "gone"}, "gone", "gone", "lock"),
        ("suspend", "running", {"checkpoint": "gone"}, "gone", "gone", "lock checkpoint"),
        # What a call says is not believed, the state is.
        ("suspend", "running", {"checkpoint": "late"}, "suspended", "checkpointed", "lock checkpoint"),
        ("suspend", "running", {"checkpoint": "between"}, "unknown", "busy", "lock checkpoint"),
        ("suspend", "running", {"lock": "silent"}, "unknown", "running", "lock"),
        ("restore", "checkpointed", {"restore": "refuses"}, "suspended", "checkpointed", "restore"),
        ("restore", "checkpointed", {"restore": "fails"}, "failed", "failed", "restore"),
        ("restore", "checkpointed", {"unlock": "refuses"}, "failed", "locked", "restore unlock"),
        ("restore", "locked", {}, "running", "running", "unlock"),  # somebody stopped half-way
        ("restore", "running", {}, "running", "running", ""),
        ("restore", "gone", {}, "gone", "gone", ""),
        ("restore", "failed", {}, "failed", "failed", ""),
    ],
)  # fmt: skip
def test_each_failure_has_its_ending(
    goal: str, begins: str, script: dict[str, str], ending: str, state: str, calls: str
) -> None:
    driver = Driver(begins, **script)
    done = run(driver, goal)
    assert (done.ending, driver.now, " ".join(driver.calls)) == (ending, state, calls)
    assert " ".join(done.made) == calls
    assert bool(done.trouble) == bool(script)


def test_a_state_in_between_is_waited_for() -> None:
    driver, clock = Driver("busy"), FakeClock()

    def sleep(s: float) -> None:
        clock.advance(s)
        if clock() > BUSY_S / 2 * 1e9:
            driver.now = "checkpointed"

    done = drive(driver, "restore", now_s=lambda: clock() * 1e-9, sleep=sleep)
    assert (done.ending, driver.calls) == ("running", ["restore", "unlock"])


HOW = st.sampled_from(["", "refuses", "fails", "gone", "late", "between", "silent"])


@given(
    goal=st.sampled_from(["suspend", "restore"]),
    begins=st.sampled_from(["running", "locked", "checkpointed", "failed", "gone", "busy"]),
    script=st.fixed_dictionaries(dict.fromkeys(TO, HOW)),
)
def test_it_always_ends_and_says_what_is(goal: str, begins: str, script: dict[str, str]) -> None:
    driver = Driver(begins, **{call: how for call, how in script.items() if how})
    done = run(driver, goal)  # the driver itself refuses calls that do not fit its state
    assert len(set(driver.calls)) == len(driver.calls)
    true = {
        "suspended": ["checkpointed"],
        "running": ["running"],
        "gone": ["gone"],
        "failed": ["failed", "locked"],
    }
    if done.ending in true:
        assert driver.now in true[done.ending]
    elif done.ending == "refused":
        assert not driver.calls
    else:
        assert done.ending == "unknown"
        assert driver.now == "busy" or driver.broken


def test_next_call_never_locks_what_is_not_wanted_locked() -> None:
    assert next_call("restore", "running", ()) == "running"
    assert next_call("suspend", "checkpointed", ()) == "suspended"


WRONG: list[tuple[str, Any, str]] = [
    ("system", "Linux aarch64", "x86_64"),
    ("driver", "575.57.08", "580"),
    ("driver", Missing("no driver"), "580"),
    ("driver_trouble", "no libcuda", "driver can be asked"),
    ("same_user", False, "same user"),
    ("devices", ("GPU-a", "GPU-b"), "one device"),
    ("devices", (), "one device"),
    ("used_devices", 2, "one device"),
    ("mig", True, "MIG"),
    ("mig", Missing("unread"), "MIG"),
    ("mps", True, "MPS"),
    ("footprint_bytes", Missing("foreign pids"), "host memory"),
    ("footprint_bytes", 0, "host memory"),
    ("free_host_bytes", 12 * GIB - 1, "host memory"),
    ("children", (7,), "child processes"),
    ("children", Missing("unread"), "child processes"),
    ("nvml_loaded", True, "NVML"),
    ("distributed", True, "torch.distributed"),
    ("other_libraries", ("cupy",), "unified memory"),
    ("profiling", "torch.profiler is on", "CUPTI"),
    ("holds_cells", False, "held back"),
]


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
def test_every_condition_is_in_the_way_alone(field: str, value: Any, words: str) -> None:
    assert all(one.holds for one in conditions(RIGHT))
    failing = [one for one in conditions(replace(RIGHT, **{field: value})) if not one.holds]
    assert len(failing) == 1
    assert words in failing[0].name


def told(**changes: Any) -> dict[str, Any]:
    own = {
        "used_devices": 1,
        "distributed": False,
        "other_libraries": [],
        "profiling": "",
        "mps_variables": [],
    }
    return {"pid": os.getpid(), "own": own | changes, "holds_cells": True}


@pytest.fixture
def right_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this test process is in the way: it may have children and monitoring of its own."""
    monkeypatch.setattr(suspendable, "_children", lambda pid, table: frozenset())
    monkeypatch.setattr(suspendable, "nvml_loaded", lambda pid: False)
    monkeypatch.setattr(suspendable, "mps_runs", lambda: False)
    monkeypatch.setattr(suspendable.hostmemory, "free_bytes", lambda: 100 * GIB)
    monkeypatch.setattr(suspendable.platform, "system", lambda: "Linux")
    monkeypatch.setattr(suspendable.platform, "machine", lambda: "x86_64")


@pytest.mark.usefixtures("right_outside")
def test_nothing_is_called_unless_everything_holds() -> None:
    driver, begun = Driver(), list[str]()
    report = suspend_child.suspend(
        told(distributed=True), lambda pid: driver, Reader(), lambda: begun.append("x")
    )
    assert (report.ending, driver.calls, begun) == ("refused", [], [])
    assert [one.name for one in report.conditions if not one.holds] == [
        "torch.distributed is not initialised"
    ]
    report = suspend_child.suspend(told(), lambda pid: driver, Reader(), lambda: begun.append("x"))
    assert (report.ending, driver.now, begun) == ("suspended", "checkpointed", ["x"])
    assert (report.devices, report.footprint_bytes) == (("GPU-a",), 10 * GIB)
    assert "10.00 GiB of GPU-a" in report.sentence
    for words in (suspend_text(report), suspend_html(report), suspend_note(report)):
        assert "experimental" in words
        assert all(one.name in words for one in report.conditions)


def test_nothing_is_restored_without_room() -> None:
    """16 GiB, of which others use 6.5: less than the 10 that are needed; the driver would fail for good."""
    back = {"pid": os.getpid(), "devices": ["GPU-a"], "footprint_bytes": 10 * GIB}
    driver = Driver("checkpointed")
    for reader in (Reader(6 * GIB + GIB // 2), Reader(total=Missing("lost"))):
        report = suspend_child.restore(back, lambda pid: driver, reader)
        assert (report.ending, driver.calls) == ("suspended", [])
    assert suspend_child.restore(back, lambda pid: driver, Reader(6 * GIB)).ending == "running"
    assert driver.calls == ["restore", "unlock"]


def test_the_real_helper_without_a_driver_lists_everything() -> None:
    asked = json.dumps({"goal": "suspend"} | told(used_devices=0))
    command = [sys.executable, "-m", "jupyter_gpuprof.session.devices.suspend_child"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=60)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert suspend_child.BEGUN not in done.stdout.splitlines()
    assert answer["ending"] == "refused"
    assert answer["sentence"].endswith("conditions do not hold, and no accelerator is in use here.")
    assert len(answer["conditions"]) == len(conditions(RIGHT))
    with pytest.raises(DriverRefused):
        CudaProcess(os.getpid()).state()


# In the kernel ---------------------------------------------------------------------------------------


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setattr(kernel_side, "AGAIN_S", 0.0)
    monkeypatch.setattr(kernel_side, "_came_back", False)
    shell = InteractiveShell()
    yield shell
    assert not kernel_side.suspended()
    assert not shell.ast_transformers


class Helper:
    """Answers a suspension, then each return, by a list of endings."""

    def __init__(self, *endings: str) -> None:
        self.endings, self.asked = list(endings), list[dict[str, Any]]()

    def __call__(self, told: dict[str, Any]) -> SuspendReport:
        self.asked.append(told)
        ending: Any = self.endings.pop(0)
        if ending == "interrupt":
            raise KeyboardInterrupt
        return SuspendReport(told["goal"], ending, f"It is {ending}.", (), ("GPU-a",), 10 * GIB)


def test_the_next_cell_waits_until_all_is_back(shell: InteractiveShell) -> None:
    helper = Helper("suspended", "suspended", "suspended", "running")
    said: list[str] = []
    report = kernel_side.suspend_device(shell, told=lambda r: said.append(r.ending), helper=helper)
    assert report.ending == "suspended"
    assert kernel_side.suspended()
    assert not kernel_side.came_back()
    assert kernel_side.suspend_device(shell, helper=helper).sentence == "It is suspended already."
    done = shell.run_cell("ran = 1")
    assert done.success
    assert shell.user_ns["ran"] == 1
    assert said == ["suspended", "running"]  # the reason why it waits comes once
    assert helper.asked[1] == {
        "goal": "restore", "pid": os.getpid(), "devices": ("GPU-a",), "footprint_bytes": 10 * GIB
    }  # fmt: skip
    assert kernel_side.came_back()
    assert shell.run_cell("ran = 2").success
    assert len(helper.asked) == 4


def test_a_cell_without_its_device_does_not_run(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver failed, or the person interrupted the wait: the cell is refused, with one sentence."""
    helper = Helper("suspended", "failed", "interrupt", "running")
    kernel_side.suspend_device(shell, helper=helper)
    for words in ("It is failed.", "still suspended"):
        done = shell.run_cell("ran = 1")
        assert not done.success
        assert "ran" not in shell.user_ns
        out = "".join(capsys.readouterr())
        assert words in out
        assert "Traceback" not in out
    assert shell.run_cell("ran = 3").success


@pytest.mark.parametrize("ending", ["refused", "running", "gone"])
def test_nothing_is_held_after_a_suspension_that_was_none(shell: InteractiveShell, ending: str) -> None:
    kernel_side.suspend_device(shell, helper=Helper(ending))
    assert not kernel_side.suspended()
    assert shell.run_cell("ran = 1").success


def test_a_cell_that_begins_meanwhile_waits_for_the_suspension(shell: InteractiveShell) -> None:
    begun, go_on = threading.Event(), threading.Event()
    helper = Helper("suspended", "running")

    def slow(told: dict[str, Any]) -> SuspendReport:
        if told["goal"] == "suspend":
            begun.set()
            assert go_on.wait(10)
        return helper(told)

    worker = threading.Thread(target=kernel_side.suspend_device, args=(shell,), kwargs={"helper": slow})
    worker.start()
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    assert shell.run_cell("ran = 1").success
    worker.join()
    assert [asked["goal"] for asked in helper.asked] == ["suspend", "restore"]


def test_widgets_wait_too(shell: InteractiveShell) -> None:
    """A callback that asks the device while it is away would wait for ever, and the next cell behind it."""

    class Kernel:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.shell_handlers = {"comm_msg": self.seen.append, "execute_request": self.seen.append}

    plain = Kernel()
    before = dict(plain.shell_handlers)
    shell.kernel = plain  # type: ignore[attr-defined]
    helper = Helper("suspended", "running")
    kernel_side.suspend_device(shell, helper=helper)
    plain.shell_handlers["comm_msg"]("moved")
    assert plain.seen == ["moved"]
    assert not kernel_side.suspended()
    assert plain.shell_handlers == before
    assert len(helper.asked) == 2
