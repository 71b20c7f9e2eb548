"""The SQLite file: where it is, its schema, and what happens when it is broken."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpuprof import clock

#: Another place for the ledger file (tests, shared machines).
ENVIRONMENT_VARIABLE = "JUPYTER_GPUPROF_DATABASE"

#: Each migration takes the schema one version up; the position is the version. Never edit an old one.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        started_at TEXT NOT NULL,
        label TEXT NOT NULL,
        body TEXT NOT NULL  -- the run's JSON, see docs/run.md
    );
    CREATE INDEX runs_by_time ON runs (started_at);
    """,
)


def database_path() -> Path:
    """The ledger file, under the Jupyter data directory."""
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    if override:
        return Path(override)
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "gpuprof" / "ledger.db"


@contextmanager
def open_database(path: Path | None = None, remarks: list[str] | None = None) -> Iterator[sqlite3.Connection]:
    """The database, made or migrated as needed; commits at the end, rolls back on an exception.

    A file that is no database (or a damaged one) is moved aside and a new one begun.

    Args:
        path: another file than `database_path`.
        remarks: what a person should know is appended here.

    Raises:
        OSError, sqlite3.Error: the file cannot be written.
    """
    path = path or database_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        connection = _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise  # locked, read-only, disk full: not broken
        aside = _move_aside(path)
        if remarks is not None:
            remarks.append(
                f"The ledger was damaged ({error}); it is kept as {aside.name}, a new one was begun."
            )
        connection = _connect(path)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10.0)
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if answer != "ok":
            raise sqlite3.DatabaseError(answer.splitlines()[-1])
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version >= len(MIGRATIONS):
        return  # ours, or a newer one whose tables hold at least ours
    connection.execute("BEGIN IMMEDIATE")  # two kernels may start at once
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _move_aside(path: Path) -> Path:
    stamp = clock.utc_now().replace(":", "").replace("+0000", "Z")
    aside = path.with_name(f"{path.name}.broken-{stamp}")
    path.replace(aside)
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside
