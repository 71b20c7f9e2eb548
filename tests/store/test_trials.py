"""Trials and curves come back as they were."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import LedgerError, NewerSchemaError, RunNotFound
from jupyter_gpuprof.records.batch import BatchCurve
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.scaling import Scaling, ScalingFit, ScalingVerdict
from jupyter_gpuprof.store.database import MIGRATIONS, open_database
from jupyter_gpuprof.store.runs import find_run, save_run
from jupyter_gpuprof.store.trials import (
    find_curve,
    find_trial,
    recent_curves,
    recent_trials,
    save_curve,
    save_trial,
)
from tests.rerun_records import a_curve, a_trial
from tests.store.test_runs import make_run

_NO = Missing("not measured")


def a_scaling(scaling_id: str = "2026-12-01-dddddd") -> Scaling:
    return Scaling(
        scaling_id, "2026-12-01-bbbbbb", "a", "2026-12-01T12:00:00+00:00", "weak", "local", "devices", "H200",
        False, 20, (), ScalingFit(_NO, _NO, _NO), _NO, "rule", (), ScalingVerdict("unclear", "why"),
    )  # fmt: skip


@pytest.mark.parametrize("predicted", [2.6, Missing("no remedy names it")])
def test_a_trial_comes_back_equal(predicted: object) -> None:
    trial = a_trial(predicted=predicted)
    assert save_trial(trial) == ""
    assert find_trial(trial.trial_id) == trial
    assert recent_trials() == [trial]


def test_trials_are_found_by_id_run_and_last() -> None:
    older = a_trial()
    newer = a_trial(trial_id="2026-12-02-aaaaaa", run_id="r", started_at="2026-12-02T10:00:00+00:00")
    save_trial(newer)
    save_trial(older)
    assert find_trial("2026-12-01") == older
    assert find_trial(older.run_id) == older
    assert find_trial("r") == newer
    assert find_trial("last") == newer
    assert recent_trials() == [newer, older]
    assert recent_trials(1) == [newer]


def test_all_trials_where_there_is_no_limit() -> None:
    trials = [a_trial(trial_id=f"t{i:02}", started_at=f"2026-12-01T10:{i:02}:00+00:00") for i in range(25)]
    for trial in trials:
        save_trial(trial)
    assert len(recent_trials()) == 20
    assert recent_trials(None) == trials[::-1]


@pytest.mark.parametrize("wanted", ["last", "zzz", "%"])
def test_nothing_of_that_name(wanted: str) -> None:
    with pytest.raises(RunNotFound, match="gpuprof try"):
        find_trial(wanted)
    with pytest.raises(RunNotFound, match="gpuprof batch"):
        find_curve(BatchCurve, wanted)


def test_curves_of_both_kinds_share_a_table_and_do_not_mix() -> None:
    batch, scaling = a_curve(), a_scaling()
    save_curve(batch)
    save_curve(scaling)
    assert find_curve(BatchCurve, "last") == batch
    assert find_curve(Scaling, "last") == scaling
    assert recent_curves(BatchCurve) == [batch]
    assert recent_curves(Scaling) == [scaling]
    with pytest.raises(RunNotFound, match="gpuprof scale"):
        find_curve(Scaling, batch.curve_id)


def test_saving_again_replaces() -> None:
    save_curve(a_curve())
    save_curve(a_curve(run_name="renamed"))
    assert [curve.run_name for curve in recent_curves(BatchCurve)] == ["renamed"]


def test_newer_records_are_left_out_and_named() -> None:
    save_trial(a_trial())
    body = json.dumps(a_trial().to_dict() | {"schema_version": 99})
    with open_database() as database:
        database.execute("INSERT INTO trials VALUES ('newer', 'r', '2027', ?)", (body,))
        database.execute("INSERT INTO curves VALUES ('broken', 'batch', 'r', '2027', 'no JSON')")
    assert recent_trials() == [a_trial()]
    assert recent_curves(BatchCurve) == []
    with pytest.raises(NewerSchemaError):
        find_trial("newer")
    with pytest.raises(LedgerError):
        find_curve(BatchCurve, "broken")


def test_a_ledger_from_before_trials_keeps_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    run = make_run()
    with sqlite3.connect(path) as database:
        database.executescript(MIGRATIONS[0])
        database.execute("PRAGMA user_version = 1")
        row = (run.run_id, run.name, run.started_at, run.verdict.label, json.dumps(run.to_dict()))
        database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", row)
    save_trial(a_trial(), path)
    save_run(make_run("2026-12-05-ffffff"), path)
    assert find_run(run.run_id, path) == run
    assert find_trial("last", path) == a_trial()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
