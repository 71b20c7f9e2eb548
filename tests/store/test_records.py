"""Anything that was saved is found by one name, and a list of curves is read at a glance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import RunFileError, RunNotFound
from jupyter_gpuprof.store.records import load_record
from jupyter_gpuprof.store.runs import save_run
from jupyter_gpuprof.store.trials import save_curve, save_trial
from jupyter_gpuprof.views.record import record_page, record_text
from jupyter_gpuprof.views.scaling_list import scalings_html, scalings_text
from tests.rerun_records import a_curve, a_trial
from tests.scaled_curve import a_scaling
from tests.store.test_runs import make_run


def test_by_id_by_command_and_by_file(tmp_path: Path) -> None:
    run, trial, batch, scaling = make_run(), a_trial(), a_curve(), a_scaling()
    with pytest.raises(RunNotFound, match="No run was saved yet"):
        load_record("last")
    save_trial(trial)
    save_curve(batch)
    save_curve(scaling)
    assert load_record("scale") == load_record(scaling.scaling_id) == scaling
    assert load_record("batch") == load_record(batch.curve_id) == batch
    assert load_record("try") == load_record(trial.trial_id) == trial
    save_run(replace(run, name="scale"))
    assert load_record("scale").name == "scale"  # a run of that name comes first
    assert load_record("last").run_id == run.run_id
    with pytest.raises(RunNotFound, match="'nothing'"):
        load_record("nothing")
    for record in (run, trial, batch, scaling):
        file = tmp_path / "record.json"
        file.write_text(json.dumps(record.to_dict()))
        assert load_record(file) == record
        assert record_text(record)
        assert record_page(record).startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("text", ["[]", "{}", "no json", '{"scaling_id": 1}'])
def test_a_file_that_holds_nothing_of_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RunFileError):
        load_record(tmp_path / "x.json")


def test_a_list_of_curves() -> None:
    assert scalings_text([]) == scalings_html([]) == ""
    scaling = a_scaling(run_name="<b>vgg")
    heads, line = scalings_text([scaling]).splitlines()
    assert heads.split() == ["scaling", "when", "name", "mode", "verdict", "worth", "it"]
    assert line.startswith(scaling.scaling_id)
    assert line.endswith("4")
    assert "&lt;b&gt;vgg" in scalings_html([scaling])
