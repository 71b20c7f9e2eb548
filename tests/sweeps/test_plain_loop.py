"""Plain loops in real time: stopped at a report, interrupted in a sleep, restarted in another process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from jupyter_gpuprof import SweepBudget
from jupyter_gpuprof.errors import OptionError, SweepOver, UsageError
from jupyter_gpuprof.session.sweeps.stopping import Interrupter, TrialStopped

S = 1 / 3600


def test_a_loop_within_its_budget(tmp_path: Path):
    budget = SweepBudget(gpu_hours=1.2 * S, study="loop", direction="maximize", devices=2)
    saved, ended = [], []
    began = time.perf_counter()
    for width in (1, 2, 3, 4):
        if budget.is_over:
            break
        with budget.trial({"width": width}) as trial:
            trial.on_stop(lambda: saved.append(width))  # noqa: B023
            for epoch in range(4 if width == 1 else 1000):
                time.sleep(0.02)
                trial.report(epoch, width * epoch)
            ended.append(width)
    assert 0.6 <= time.perf_counter() - began < 6  # 1.2 device seconds of two devices
    assert ended == [1]
    assert saved == [2]
    assert "is spent" in trial.why_stopped
    with pytest.raises(SweepOver, match="is spent"), budget.trial({}):
        pytest.fail("it ran")
    sweep = budget.sweep()
    assert [(t.number, t.state, t.params) for t in sweep.trials] == [
        (0, "completed", "width=1"),
        (1, "stopped", "width=2"),
    ]
    assert sweep.direction == "maximize"
    assert sweep.trials[0].value == 3.0
    assert budget.spent_gpu_hours == pytest.approx(1.2 * S, rel=0.8)


def test_a_sleep_of_the_main_thread_is_cut_short_and_the_signal_is_given_back():
    budget = SweepBudget(gpu_hours=0.2 * S)
    before = signal.getsignal(signal.SIGURG)
    began = time.perf_counter()
    with budget.trial() as trial:
        assert signal.getsignal(signal.SIGURG) is not before
        time.sleep(60)
    assert time.perf_counter() - began < 20
    assert trial.why_stopped
    assert signal.getsignal(signal.SIGURG) is before


def test_an_interrupt_and_an_error_leave_nothing_behind():
    budget = SweepBudget(gpu_hours=1)
    with pytest.raises(KeyboardInterrupt), budget.trial():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), budget.trial():
        raise ZeroDivisionError
    assert [t.state for t in budget.sweep().trials] == ["failed", "failed"]
    assert not [t for t in threading.enumerate() if "gpuprof" in t.name]


def test_an_interrupter_is_silent_once_it_is_closed():
    """In a thread the exception waits for the next instruction: closing drops what has not come yet."""
    outcome = []

    def work() -> None:
        for _ in range(200):
            interrupter = Interrupter(TrialStopped)
            poker = threading.Thread(target=interrupter.interrupt)
            try:
                poker.start()
                sum(n for n in range(100))
            except TrialStopped:
                pass
            finally:
                interrupter.close()
            poker.join()
        outcome.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert outcome == ["done"]


def test_another_process_goes_on_with_the_study():
    program = """
import time
from jupyter_gpuprof import SweepBudget
budget = SweepBudget(gpu_hours=1 / 3600, expires="1h", study="again")
with budget.trial({"i": 0}) as trial:
    time.sleep(0.4)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    budget = SweepBudget(study="again")
    assert budget.why == ""
    assert 0.4 <= budget.spent_gpu_hours / S <= 0.9
    with budget.trial({"i": 1}) as trial:
        for step in range(1000):
            time.sleep(0.01)
            trial.report(step, 1.0)
    assert trial.number == 1
    assert trial.why_stopped
    assert 0.9 <= budget.spent_gpu_hours / S < 5


@pytest.mark.slow
def test_a_checkpoint_is_written_before_the_stop(tmp_path: Path):
    torch = pytest.importorskip("torch")
    from jupyter_gpuprof import Checkpointer

    model = torch.nn.Linear(2, 2)
    budget = SweepBudget(gpu_hours=0.2 * S)
    with Checkpointer(tmp_path / "saved", model=model) as ck:
        with budget.trial() as trial:
            trial.on_stop(ck.save)
            for step in range(1000):
                time.sleep(0.01)
                ck.step()
                trial.report(step, 1.0)
        assert trial.why_stopped
        assert ck.newest
        steps = ck.step_count
    with Checkpointer(tmp_path / "saved", model=model) as again:
        assert again.resume().step == steps


def test_a_trial_in_a_trial_and_a_trial_that_is_over():
    budget = SweepBudget(gpu_hours=1)
    saved = []
    with budget.trial() as outer:
        with budget.trial() as inner, pytest.raises(UsageError, match="runs already"), inner:
            pytest.fail("it began twice")
        budget.on_stop(lambda: saved.append(1))  # of the outer one, again
        with pytest.raises(UsageError, match="whole number"):
            outer.report("first", 1.0)
        outer.report(0, 1.0)
    with pytest.raises(UsageError, match="does not run"):
        outer.report(1, 1.0)
    with pytest.raises(UsageError, match="does not run"):
        budget.trial().report(0, 1.0)
    assert [(t.number, len(t.points)) for t in budget.sweep().trials] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("hours", ["3", True, 0, -1, float("nan"), [1]])
def test_a_budget_that_is_none(hours):
    with pytest.raises(OptionError, match="number of GPU-hours above 0"):
        SweepBudget(gpu_hours=hours)


def test_a_span_and_what_is_no_time():
    assert not SweepBudget(expires=timedelta(hours=1)).is_over
    assert SweepBudget(expires=timedelta(hours=-1)).is_over
    with pytest.raises(OptionError, match="is no time"):
        SweepBudget(expires=5)
