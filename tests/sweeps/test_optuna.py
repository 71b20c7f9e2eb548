"""Real Optuna with its SQLite storage: short trials in real time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof import SweepBudget
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.sweeps.report import sweep_reader, sweep_report

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)

S = 1 / 3600  # a device second in GPU-hours


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sweep.db'}"


def study_of(storage: str | None = None, name: str = "s", pruner: Any = None, **options: Any) -> Any:
    chosen = pruner or optuna.pruners.NopPruner()
    return optuna.create_study(
        storage=storage, study_name=name, pruner=chosen, load_if_exists=True, **options
    )


def stepping(pace_s: float, steps: int = 10) -> Any:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(steps):
            time.sleep(pace_s)
            trial.report(x, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    return objective


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_a_cap_of_three_seconds_with_trials_of_one(storage: str):
    study = study_of(storage)
    pruner = study.pruner
    guard = SweepBudget(gpu_hours=3 * S).optuna(study)
    began = time.perf_counter()
    guard.optimize(stepping(0.1), n_trials=20)
    wall_s = time.perf_counter() - began
    assert wall_s < 8  # 20 on a quiet machine without us
    assert study.pruner is pruner
    assert 1 <= len(study.trials) <= 3
    spent_s = sum(t.user_attrs["gpuprof"]["device_s"] for t in study.trials)
    measured_s = sum((t.datetime_complete - t.datetime_start).total_seconds() for t in study.trials)
    assert spent_s == pytest.approx(measured_s, rel=0.3, abs=0.3)
    assert spent_s < 3 + 1.5
    with pytest.warns(UserWarning, match="no trial was begun"):
        guard.optimize(stepping(0.1), n_trials=20)


def test_a_trial_is_stopped_inside_and_saves_before(storage: str):
    study = study_of(storage)
    budget = SweepBudget(gpu_hours=0.5 * S)
    saved = []

    def objective(trial: Any) -> float:
        budget.on_stop(lambda: saved.append(threading.get_ident()))
        return stepping(0.05, 400)(trial)

    budget.optuna(study).optimize(objective, n_trials=5)
    assert states(study) == ["PRUNED"]
    assert saved == [threading.get_ident()]
    assert "is spent" in study.trials[0].user_attrs["gpuprof"]["stopped"]
    report = sweep_report(sweep_reader(f"{storage}::s"))
    assert report.sweep.trials[0].state == "stopped"
    assert report.sweep.trials[0].points[0].step == 0
    with pytest.raises(UsageError, match="No trial runs"):
        budget.on_stop(print)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_trial_that_hangs_does_not_hold_the_budget(jobs: int):
    """The main thread is woken from its sleep; other threads at their next Python instruction."""
    study = study_of()

    def hangs(trial: Any) -> float:
        if jobs == 1:
            time.sleep(60)
        for _ in range(6000):
            time.sleep(0.01)
        return 0.0

    began = time.perf_counter()
    SweepBudget(gpu_hours=0.5 * S).optuna(study).optimize(hangs, n_trials=6, n_jobs=jobs)
    assert time.perf_counter() - began < 20
    assert set(states(study)) == {"PRUNED"}


def test_another_process_and_a_restart_go_on_with_what_is_left(storage: str, tmp_path: Path):
    """The first process is killed in a trial; the next has what is left, by the study's own storage alone."""
    program = f"""
import os, time, optuna
from jupyter_gpuprof import SweepBudget
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage={storage!r}, study_name="s", pruner=optuna.pruners.NopPruner())
guard = SweepBudget(gpu_hours={2.5 * S}, expires="1h").optuna(study)
def objective(trial):
    for step in range(100):
        time.sleep(0.05)
        trial.report(1.0, step)
        trial.should_prune()
        if trial.number == 1 and guard.spent_gpu_hours * 3600 > 2:
            guard._guard.beat()
            os._exit(9)
        if trial.number == 0 and step == 9:
            return 1.0
guard.optimize(objective, n_trials=5)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60)
    assert done.returncode == 9
    study = study_of(storage)
    assert states(study) == ["COMPLETE", "RUNNING"]
    guard = SweepBudget(stop_losing=False, study="s").optuna(study)  # asks for nothing of its own
    why = guard.why
    assert guard.spent_gpu_hours / S == pytest.approx(2.1, abs=0.3)
    if not why:
        guard.optimize(stepping(0.05, 200), n_trials=5)
    assert guard.why
    assert len(study.trials) <= 3
    kept = study.user_attrs["gpuprof"]
    assert kept["gpu_hours"] == 2.5 * S
    assert kept["expires_unix_s"] == pytest.approx(kept["began_unix_s"] + 3600)


@pytest.mark.slow
def test_two_processes_on_one_study_keep_one_budget(storage: str, tmp_path: Path):
    study = study_of(storage)
    program = f"""
import time, json, optuna
from jupyter_gpuprof import SweepBudget
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(storage={storage!r}, study_name="s", pruner=optuna.pruners.NopPruner())
def objective(trial):
    for step in range(400):
        time.sleep(0.05)
        trial.report(1.0, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return 1.0
SweepBudget(gpu_hours={6 * S}).optuna(study).optimize(objective, n_trials=5)
"""
    children = [subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) for _ in range(2)]
    assert [child.wait(90) for child in children] == [0, 0]
    spent_s = sum(t.user_attrs["gpuprof"]["device_s"] for t in study.trials)
    assert 6 <= spent_s < 6 + 2 * 3  # each may be one beat late, and the machine is noisy
    assert all(t.user_attrs["gpuprof"]["stopped"] for t in study.trials)


def test_an_expiry_in_the_past_runs_nothing(storage: str):
    study = study_of(storage)
    with pytest.warns(UserWarning, match="expired"):
        SweepBudget(expires="2020-01-01").optuna(study).optimize(stepping(0.01), n_trials=3)
    assert study.trials == []


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_optunas_own_pruner_stops_what_loses(direction: str):
    study = study_of(direction=direction)
    guard = SweepBudget(stop_losing=True).optuna(study)
    assert isinstance(guard.pruner.inner, optuna.pruners.MedianPruner)

    def objective(trial: Any) -> float:
        worse = trial.number >= 6
        value = float("nan") if trial.number == 7 else (2.0 if worse == (direction == "minimize") else 1.0)
        for step in range(3):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    guard.optimize(objective, n_trials=8)
    assert states(study) == ["COMPLETE"] * 6 + ["PRUNED"] * 2
    report = sweep_report(sweep_reader("x", {"x": study}))
    assert [t.state for t in report.sweep.trials][-2:] == ["pruned"] * 2
    assert report.losses[6].losing_from == 0
    assert isinstance(report.sweep.trials[7].points[0].value, Missing)
    assert report.losses[7].losing_from == 0
    json.dumps(report.to_dict(), allow_nan=False)


def test_asha_keeps_its_rungs_and_wilcoxon_its_word():
    halving = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=2)
    guard = SweepBudget(gpu_hours=1, stop_losing=halving).optuna(study_of())
    assert guard._guard._asked.rungs[:3] == (2, 4, 8)
    study = guard.study
    guard.optimize(stepping(0.0, 9), n_trials=12)
    assert "PRUNED" in states(study)
    wilcoxon = optuna.pruners.WilcoxonPruner()
    assert SweepBudget(stop_losing=wilcoxon).optuna(study_of()).pruner.inner is wilcoxon


def test_a_pruner_that_raises_stops_no_trial():
    class Broken(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            raise ValueError("no")

    study = study_of(pruner=Broken())
    with pytest.warns(UserWarning, match="Broken failed") as caught:
        SweepBudget(gpu_hours=1).optuna(study).optimize(stepping(0.0, 3), n_trials=2)
    assert len([w for w in caught if "Broken" in str(w.message)]) == 1
    assert states(study) == ["COMPLETE", "COMPLETE"]


def test_an_interrupt_and_an_error_go_through_and_are_counted(storage: str):
    study = study_of(storage)
    guard = SweepBudget(gpu_hours=1).optuna(study)

    def interrupted(trial: Any) -> float:
        time.sleep(0.1)
        raise KeyboardInterrupt

    def fails(trial: Any) -> float:
        raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt):
        guard.optimize(interrupted, n_trials=2)
    with pytest.raises(ZeroDivisionError):
        guard.optimize(fails, n_trials=2)
    guard.optimize(fails, n_trials=1, catch=(ZeroDivisionError,))
    assert states(study) == ["FAIL"] * 3
    assert study.trials[0].user_attrs["gpuprof"]["device_s"] >= 0.1
    assert study.trials[0].user_attrs["gpuprof"]["closed"]


def test_callback_and_pruner_alone_count_too(storage: str):
    """For a program that calls study.optimize by itself."""
    study = study_of(storage)
    guard = SweepBudget(gpu_hours=0.6 * S).optuna(study)
    study.pruner = guard.pruner
    study.optimize(stepping(0.05, 100), n_trials=4, callbacks=[guard])
    assert states(study) == ["PRUNED"]
    report = sweep_report(sweep_reader("g", {"g": guard}))
    trial = study.trials[0]
    lasted_s = (trial.datetime_complete - trial.datetime_start).total_seconds()
    assert report.spent_s == pytest.approx(lasted_s, rel=0.3, abs=0.2)


def test_a_study_without_a_budget_is_counted_from_its_dates():
    study = study_of()
    study.optimize(stepping(0.02, 5), n_trials=6)
    report = sweep_report(sweep_reader("study", {"study": study}), cap_hours=0.25 * S)
    lasted_s = sum((t.datetime_complete - t.datetime_start).total_seconds() for t in study.trials)
    assert report.spent_s == pytest.approx(lasted_s)
    assert "6 of 6 trials ran without a budget" in report.sweep.notes[0]
    assert report.judged_s == pytest.approx(report.losses[5].judged_s)
    assert not isinstance(report.cap, Missing)
    assert report.cap.spent_s == pytest.approx(0.25, rel=0.2)


def test_a_study_of_several_objectives_is_counted():
    study = optuna.create_study(directions=["minimize", "maximize"])
    SweepBudget(gpu_hours=1).optuna(study).optimize(lambda trial: (1.0, 2.0), n_trials=2)
    report = sweep_report(sweep_reader("study", {"study": study}))
    assert "several objectives" in report.sentence
    assert len(report.losses) == 2
