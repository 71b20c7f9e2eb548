"""Runs come back as they were, whatever happened to the file meanwhile."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import NewerSchemaError, RunFileError, RunNotFound
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import (
    Between,
    Device,
    Memory,
    Overhead,
    Remedy,
    Run,
    Shares,
    Steps,
    Verdict,
)  # fmt: skip
from jupyter_gpuprof.store.database import MIGRATIONS, open_database
from jupyter_gpuprof.store.runs import find_run, load_run, read_run, recent_runs, save_run, write_run

NOTHING = Missing("not measured")


def make_run(
    run_id: str = "2026-12-01-aaaaaa", name: str = "a", started_at: str = "2026-12-01T10:00:00+00:00"
) -> Run:
    part = Estimate(0.5, 0.4, 0.6)
    return Run(
        run_id=run_id,
        name=name,
        started_at=started_at,
        device=Device("cpu", "CPU", 2, NOTHING, False),
        clock="host",
        steps=Steps(50, 5, 0, 55, 0.1, 0.2, 10.0, 1.0),
        shares=Shares(part, NOTHING, part, NOTHING, NOTHING, Between(part, NOTHING, NOTHING, NOTHING)),
        verdict=Verdict("input-bound", "strong", "why", ("r",), ("host-bound",), ("n",), ("d",)),
        remedies=(Remedy("id", "title", 0.1, "how"), Remedy("id2", "title", NOTHING, "how")),
        overhead=Overhead(1e-6, 1e-5),
        memory=Memory(NOTHING, 7),
    )


def test_a_run_comes_back_equal(tmp_path: Path) -> None:
    run = make_run()
    save_run(run)
    assert find_run(run.run_id) == run
    write_run(run, tmp_path / "r.json")
    assert read_run(tmp_path / "r.json") == run
    assert load_run(tmp_path / "r.json") == run


def test_runs_are_found_by_id_prefix_name_and_last() -> None:
    older, newer = make_run(), make_run("2026-12-02-bbbbbb", "b", "2026-12-02T10:00:00+00:00")
    save_run(newer)
    save_run(older)
    assert load_run("a") == older
    assert load_run("2026-12-02") == newer
    assert load_run("last") == newer
    assert recent_runs() == [newer, older]
    assert recent_runs(1) == [newer]


@pytest.mark.parametrize("wanted", ["last", "zzz", "%", "_"])
def test_no_such_run(wanted: str) -> None:
    if wanted != "last":
        save_run(make_run())
    with pytest.raises(RunNotFound):
        load_run(wanted)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", RunFileError),
        ("[]", RunFileError),
        ('{"a": 1}', RunFileError),
        ('{"schema_version": "1"}', RunFileError),
        ('{"schema_version": 1}', RunFileError),
        ('{"schema_version": 999}', NewerSchemaError),
    ],
)
def test_files_that_are_no_runs(tmp_path: Path, text: str, error: type[Exception]) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(error):
        load_run(tmp_path / "r.json")


def test_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="cannot be read"):
        load_run(tmp_path / "nowhere.json")


@pytest.mark.parametrize("field", ["steps", "shares", "verdict", "device"])
def test_a_run_with_a_wrong_field_names_it(field: str) -> None:
    data = make_run().to_dict()
    data[field] = 3
    with pytest.raises(RunFileError, match=field):
        Run.from_dict(data)


def test_unknown_fields_are_ignored() -> None:
    data = make_run().to_dict() | {"added_later": 1}
    assert Run.from_dict(json.loads(json.dumps(data))) == make_run()


def test_newer_runs_in_the_ledger_are_left_out_of_history(tmp_path: Path) -> None:
    save_run(make_run())
    body = json.dumps(make_run("2027-01-01-cccccc").to_dict() | {"schema_version": 99})
    with open_database() as database:
        database.execute("INSERT INTO runs VALUES ('2027-01-01-cccccc', 'c', '2027', 'x', ?)", (body,))
    assert [run.run_id for run in recent_runs()] == ["2026-12-01-aaaaaa"]
    with pytest.raises(NewerSchemaError, match="Upgrade"):
        load_run("2027-01-01-cccccc")


@pytest.mark.parametrize("damage", ["garbage", "header", "middle"])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.db"
    for i in range(200):
        save_run(make_run(f"2026-12-01-{i:06d}"), path)
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"no database" * 1000)
    elif damage == "header":
        content[:20] = b"\0" * 20
    else:
        content[8192:20000] = b"\xff" * (20000 - 8192)
    path.write_bytes(content)
    remark = save_run(make_run("2026-12-03-dddddd"), path)
    assert "damaged" in remark
    assert "broken" in remark
    assert find_run("2026-12-03-dddddd", path).name == "a"
    (aside,) = tmp_path.glob("*.broken-*")
    assert aside.read_bytes() == bytes(content)


def test_a_database_of_a_newer_version_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    save_run(make_run(), path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 5}")
    save_run(make_run("2026-12-04-eeeeee", "new"), path)
    assert find_run("new", path).run_id == "2026-12-04-eeeeee"


def test_a_folder_in_the_ledgers_place_is_an_error_and_nothing_is_moved(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        save_run(make_run(), tmp_path)
    assert tmp_path.is_dir()
