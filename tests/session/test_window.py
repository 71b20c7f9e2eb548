"""The kernel window in a live run, on the CPU: what it measures, and that it leaves nothing."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from jupyter_gpuprof import profile
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.analysis.window import agreement, apply_window
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.probes import kernelwindow
from jupyter_gpuprof.probes.kernelwindow import KernelWindow, quiet_stderr
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.session.window import parse_kernels
from tests.session.live import steady


class Slow(Dataset):
    def __init__(self, n: int, ms: float) -> None:
        self.n, self.ms = n, ms

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(self.ms / 1e3)
        return torch.randn(256, 256)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(steps: int, *, loader_ms: float = 5, host_ms: float = 10, each: Any = None) -> None:
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for i, x in enumerate(DataLoader(Slow(steps, loader_ms), batch_size=None)):
        time.sleep(host_ms / 1e3)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if each is not None:
            each(i)


@steady
def test_a_window_tells_host_gap_from_compute() -> None:
    with profile("window", kernels=8, save=False) as p:
        train(60)
    run = p.run
    shares = run.shares.present()
    mean_ms = 1e3 * float(run.steps.mean_s)
    assert shares["host_gap"].value == pytest.approx(10.3 / mean_ms, abs=0.06)
    assert shares["exposed_input"].value == pytest.approx(5.3 / mean_ms, abs=0.06)
    assert sum(share.value for share in shares.values()) == pytest.approx(1.0, abs=1e-3)
    assert run.verdict.label == "host-bound"
    assert run.ops.steps == 8
    assert "agree" in run.ops.agreement
    # 8 steps, one more before them, and one until the loop has settled are left out of the timing.
    assert run.steps.counted + run.steps.warmup == 60 - 10
    assert any("kernel window took" in note for note in run.notes)


def test_no_window_on_a_cpu_unless_asked_for_and_none_when_off() -> None:
    for kernels in (None, 0):
        with profile("none", kernels=kernels, save=False) as p:
            train(40, loader_ms=1, host_ms=0)
        assert p.run.steps.counted + p.run.steps.warmup == 40
        assert "missing" in p.run.to_dict()["ops"]


def test_the_users_own_profiler_keeps_its_events() -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    theirs = torch_profile(activities=[ProfilerActivity.CPU])
    p = profile("refused", kernels=5, save=False)
    with quiet_stderr(), theirs, p:
        train(40, loader_ms=0, host_ms=0)
    assert len(theirs.events()) > 100
    assert any("another profiler is on" in note for note in p.run.notes)
    assert "another profiler" in p.run.ops.reason


def test_an_interrupt_inside_the_window_leaves_no_profiler_on() -> None:
    def interrupt(step: int) -> None:
        if step == 19:
            assert torch.autograd._profiler_enabled()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), profile("stopped", kernels=10, save=False) as p:
        train(60, loader_ms=1, host_ms=0, each=interrupt)
    assert not torch.autograd._profiler_enabled()
    assert p.run.steps.counted > 0


def test_live_window_and_exported_trace_of_it_give_the_same_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "window.json"
    read = KernelWindow._read

    def read_and_export(window: KernelWindow, profiler: Any) -> Any:
        profiler.export_chrome_trace(str(exported))
        return read(window, profiler)

    monkeypatch.setattr(KernelWindow, "_read", read_and_export)
    window = KernelWindow("cpu")
    window.start()

    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = iter(DataLoader(Slow(13, 5), batch_size=None))
    for _ in range(12):
        window.begin_step()
        window.begin_fetch()
        x = next(loader)
        window.end_fetch()
        time.sleep(0.005)
        for _ in range(20):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    live = window.stop()
    assert live is not None
    (stored,) = read_traces([exported]).ranks
    ours = breakdown(live)
    theirs = breakdown(replace(stored, steps=live.steps))  # the same steps of the same window
    assert ours.steps == theirs.steps == 10
    difference = ours.table.seconds.sum(axis=0) - theirs.table.seconds.sum(axis=0)
    assert abs(difference / ours.table.total_s).max() < 0.01


@pytest.mark.slow
def test_windows_do_not_grow_the_process() -> None:
    model, x = torch.nn.Linear(64, 64), torch.randn(8, 64)
    process, sizes = psutil.Process(), []
    for i in range(40):
        window = KernelWindow("cpu")
        window.start()
        for _ in range(4):
            window.begin_step()
            model(x).sum().backward()
        assert window.stop() is not None
        if i in (9, 39):
            sizes.append(process.memory_info().rss)
    assert sizes[1] - sizes[0] < 6 * 2**20


def test_chatter_of_c_code_is_kept_from_the_cell_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_stderr():
        os.write(2, b"USDT:2026 1:1 SyncActivityProfilerHandler.cpp:52] profiler_start\nmine\n")
    assert capfd.readouterr().err == "mine\n"
    window = KernelWindow("cpu")
    window.start()
    window.stop()
    assert capfd.readouterr().err == ""


def test_a_cpu_window_leaves_the_process_suspendable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelwindow, "_used_device_tracing", False)
    window = KernelWindow("cpu")
    window.start()
    window.stop()
    assert kernelwindow.suspendable()


@pytest.mark.parametrize(("text", "steps"), [("auto", None), ("off", 0), ("7", 7)])
def test_the_option(text: str, steps: int | None) -> None:
    assert parse_kernels(text) == steps


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_the_option_refuses(text: str) -> None:
    with pytest.raises(OptionError, match="auto, off or a number"):
        parse_kernels(text)


def table(**seconds: float) -> Any:
    import numpy as np

    from jupyter_gpuprof.records.timing import StepTable

    row = np.zeros((30, len(Part)))
    for name, value in seconds.items():
        row[:, Part[name]] = value
    return StepTable(row, 1)


def test_the_window_divides_the_inside_of_a_step_and_leaves_the_rest() -> None:
    by_events = table(COMPUTE=8, INPUT=1, OTHER=1, VALIDATION=5)
    in_window = table(COMPUTE=4, COMMUNICATION=2, COPIES=1, HOST_GAP=2, INPUT=1)
    both = apply_window(by_events, in_window)
    # The gap of the window holds the host work after the step: 1 of 10 seconds.
    assert both.seconds[0, [Part.COMPUTE, Part.COMMUNICATION, Part.COPIES, Part.HOST_GAP]] == pytest.approx(
        [4, 2, 1, 1]
    )
    assert both.total_s == pytest.approx(by_events.total_s)
    assert both.part_s(Part.VALIDATION) == by_events.part_s(Part.VALIDATION)


def test_disagreement_is_said() -> None:
    agree, words = agreement(table(COMPUTE=8, INPUT=2), table(COMPUTE=2, INPUT=8))
    assert not agree
    assert "disagree" in words
    assert agreement(table(COMPUTE=8, INPUT=2), table(COMPUTE=4, INPUT=1))[0]
