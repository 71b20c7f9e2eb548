"""Runs in the ledger file, and runs in files of their own."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from jupyter_gpuprof.errors import RunFileError, RunNotFound
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.store.database import open_database, readable


def new_run_id(started_at: str) -> str:
    """A unique id that begins with the date.

    Args:
        started_at: ISO 8601.
    """
    return f"{started_at[:10]}-{secrets.token_hex(3)}"


def save_run(run: Run, path: Path | None = None) -> str:
    """Keep a run in the ledger.

    Returns:
        What a person should know about the database, or "".
    """
    remarks: list[str] = []
    with open_database(path, remarks) as database:
        database.execute(
            "INSERT OR REPLACE INTO runs (run_id, name, started_at, label, body) VALUES (?, ?, ?, ?, ?)",
            (run.run_id, run.name, run.started_at, run.verdict.label, json.dumps(run.to_dict())),
        )
    return " ".join(remarks)


def recent_runs(limit: int = 20, path: Path | None = None) -> list[Run]:
    """The last runs, newest first; those of a newer schema are left out."""
    with readable(), open_database(path) as database:
        rows = database.execute(
            "SELECT body FROM runs ORDER BY started_at DESC, rowid DESC LIMIT ?", (limit,)
        ).fetchall()
    found = []
    for (body,) in rows:
        try:
            found.append(Run.from_dict(json.loads(body)))
        except (RunFileError, ValueError):
            continue
    return found


def find_run(wanted: str, path: Path | None = None) -> Run:
    """The run of that id (or its beginning), or the last one of that name; "last" is the last of all.

    Raises:
        RunNotFound: there is none.
        RunFileError: it was written by a newer version.
    """
    with readable(), open_database(path) as database:
        row = database.execute(
            "SELECT body FROM runs WHERE ?1 = 'last' OR run_id = ?1 OR name = ?1"
            " OR substr(run_id, 1, length(?1)) = ?1"
            " ORDER BY (run_id = ?1) DESC, (name = ?1 AND ?1 <> 'last') DESC,"
            " started_at DESC, rowid DESC LIMIT 1",
            (wanted,),
        ).fetchone()
    if row is None:
        raise RunNotFound(
            "No run was saved yet." if wanted == "last" else f"The ledger holds no run {wanted!r}."
        )
    with readable():
        return Run.from_dict(json.loads(row[0]))


def write_run(run: Run, path: Path) -> None:
    """Write a run as a JSON file.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps(run.to_dict(), indent=2) + "\n", encoding="utf-8")


def read_run(path: Path) -> Run:
    """The run of a JSON file.

    Raises:
        RunFileError: the file cannot be read, or holds no run (NewerSchemaError: of a newer version).
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFileError(f"{path} cannot be read ({error.strerror}).") from error
    except ValueError as error:
        raise RunFileError(f"{path} is no JSON file.") from error
    return Run.from_dict(data)


def load_run(wanted: str | Path) -> Run:
    """A finished run, from a JSON file or from the ledger.

    Args:
        wanted: a file, a run id (or its beginning), a name (its last run), or "last".

    Raises:
        RunNotFound: there is no such file and no such run.
        RunFileError: the file holds no run.
    """
    path = Path(wanted)
    if path.suffix == ".json" or path.is_file():
        return read_run(path)
    return find_run(str(wanted))
