"""Who asks for a suspension: the kernel's own reaper, the server, the magic; what they may do meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_gpuprof import clock
from jupyter_gpuprof.notebook.asked import asked
from jupyter_gpuprof.probes import suspendable
from jupyter_gpuprof.session.devices import kernelreports
from jupyter_gpuprof.session.devices import suspend as kernel_side
from jupyter_gpuprof.session.devices.kernelreaper import KernelReaper, kernel_policy
from jupyter_gpuprof.session.devices.releasehooks import forget_release, on_release
from jupyter_gpuprof.views.release_text import note_line
from tests.session.test_kernelreaper import World
from tests.session.test_suspend import Helper


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Helper]:
    """Stands for the fresh process that does it."""
    helper = Helper()
    monkeypatch.setattr(kernel_side, "_Helper", lambda: helper)
    monkeypatch.setattr(kernel_side, "_came_back", False)
    yield helper
    assert not kernel_side.suspended()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    return shell


def ask(action: str) -> Any:
    return json.loads(asked(action, clock.unix_ns() * 1e-9 + 60))


def test_what_the_server_asks_of_a_suspended_kernel(helper: Helper, shell: InteractiveShell) -> None:
    saved: list[bool] = []
    hook = on_release(lambda: saved.append(True))
    try:
        helper.endings = ["refused", "suspended", "running"]
        assert ask("suspend")["refused"] == "Suspend (experimental): It is refused."
        said = ask("suspend")
        assert (said["freed_bytes"], said["remarks"]) == (
            10 << 30,
            ["Suspend (experimental): It is suspended."],
        )
        # Whatever asks the device now would wait for ever, also what a person saves.
        for action in ("free", "offload", "suspend"):
            assert "on the host already" in ask(action)["refused"]
        assert "on the host already" in ask("shutdown")["remarks"][0]
        assert "refused" not in ask("shutdown")  # a suspended kernel may be ended
        assert not saved
        assert shell.run_cell("1").success
        assert "was suspended once" in ask("shutdown")["refused"]
        assert saved
    finally:
        forget_release(hook)


def test_a_suspended_kernel_reports_that_it_holds_nothing(
    helper: Helper, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []

    class File:
        def write(self, me: Any, reports: Any, kept: Any, now: float) -> None:
            written.append(reports)

    from jupyter_gpuprof.records.processes import KernelReport, ProcessId

    report = KernelReport(ProcessId(1, 1.0), "GPU-a", 0, 5, 7, False, 0.0)
    monkeypatch.setattr(kernelreports, "own_reports", lambda at_s: (report,))
    monkeypatch.setattr(kernelreports, "_said", [])
    helper.endings = ["suspended", "running"]
    kernelreports.report_now(File())  # type: ignore[arg-type]
    kernel_side.suspend_device(shell)
    kernelreports.report_now(File())  # type: ignore[arg-type]
    shell.run_cell("1")
    kernelreports.report_now(File())  # type: ignore[arg-type]
    assert [len(reports) for reports in written] == [1, 0, 1]


def test_the_reaper_in_the_kernel(helper: Helper) -> None:
    world = World("suspend")
    try:
        helper.endings = ["suspended", "running"]
        world.run(120)
        assert world.steps == ["warn", "suspend"]
        assert "it is suspended" in note_line(world.notes[0])
        assert "experimental" in note_line(world.notes[1])
        looks = len(world.asked)
        world.run(300)
        assert len(world.asked) == looks  # the device is not asked while it is away
        world.shell.begin()
        world.shell.end()
        assert not kernel_side.suspended()
        # Now it is back, and a reaper that shuts down lets it live.
        reaper = KernelReaper(
            kernel_policy(100.0, "shutdown"), world.shell, tell=world.notes.append, work=world.work,
            now_s=world.now_s, end=lambda: pytest.fail("ended"),
        )  # fmt: skip
        reaper.start(inside_cell=False, thread=False)
        try:
            for _ in range(30):
                world.clock.advance(10)
                reaper.tick()
        finally:
            reaper.stop()
        assert "It is not ended" in note_line(world.notes[-1])
    finally:
        world.reaper.stop()


def test_what_a_process_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    before = suspendable.own_facts()
    assert (before["distributed"], before["mps_variables"]) == (False, [])
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/x")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/x")
    facts = suspendable.own_facts()
    assert "cupy" in facts["other_libraries"]
    assert facts["mps_variables"] == ["CUDA_MPS_PIPE_DIRECTORY"]
    assert "CUDA_INJECTION64_PATH" in facts["profiling"]
