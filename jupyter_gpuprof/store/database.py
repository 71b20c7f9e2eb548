"""The SQLite file: where it is, its schema, and what happens when it is broken."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.store.filesystem import is_local

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
    """
    CREATE TABLE trials (
        trial_id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        started_at TEXT NOT NULL,
        body TEXT NOT NULL  -- the trial's JSON
    );
    CREATE INDEX trials_by_time ON trials (started_at);
    CREATE TABLE curves (
        curve_id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,  -- "batch" or "scaling"
        run_id TEXT NOT NULL,
        started_at TEXT NOT NULL,
        body TEXT NOT NULL  -- the JSON of the curve's record
    );
    CREATE INDEX curves_by_time ON curves (kind, started_at);
    """,
    """
    CREATE TABLE device_seconds (
        hour INTEGER NOT NULL,  -- whole hours since 1970, UTC
        device_uuid TEXT NOT NULL,
        state TEXT NOT NULL,
        user TEXT NOT NULL,  -- '' in this and the following columns: nobody, or nothing that we know of
        notebook TEXT NOT NULL,
        run_id TEXT NOT NULL,
        study TEXT NOT NULL,
        trial TEXT NOT NULL,
        measure TEXT NOT NULL,  -- how busy was measured
        device_name TEXT NOT NULL,
        seconds REAL NOT NULL,
        samples INTEGER NOT NULL,
        PRIMARY KEY (hour, device_uuid, state, user, notebook, run_id, study, trial, measure)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE audit (
        audit_id INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,  -- ISO 8601, UTC
        holder_id TEXT NOT NULL,
        path TEXT NOT NULL,
        action TEXT NOT NULL,
        actor TEXT NOT NULL,  -- "reaper", or the person who asked
        outcome TEXT NOT NULL,
        sentence TEXT NOT NULL,
        evidence TEXT NOT NULL,  -- JSON, as the next two
        device_uuids TEXT NOT NULL,
        freed_bytes TEXT NOT NULL
    );
    """,
    """
    CREATE TABLE kernel_reports (
        host TEXT NOT NULL,  -- of several machines that share the file
        pid INTEGER NOT NULL,
        started_s REAL NOT NULL,  -- with the pid it is this very process
        device_uuid TEXT NOT NULL,
        device_index INTEGER,
        allocated_bytes INTEGER,
        reserved_bytes INTEGER,
        training INTEGER NOT NULL,
        at_unix_s REAL NOT NULL,
        run_id TEXT NOT NULL,  -- the profiled run that is on, or ''
        input_ratio REAL  -- NULL: not measured
    );
    CREATE INDEX kernel_reports_by_process ON kernel_reports (host, pid, started_s);
    CREATE TABLE kernel_keeps (
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        started_s REAL NOT NULL,
        since_unix_s REAL NOT NULL,
        until_unix_s REAL,  -- NULL: without an end
        why TEXT NOT NULL,
        PRIMARY KEY (host, pid, started_s)
    );
    CREATE TABLE leases (
        host TEXT PRIMARY KEY,
        owner TEXT NOT NULL,  -- the server that accounts for the devices of this machine
        until_unix_s REAL NOT NULL
    );
    """,
    """
    ALTER TABLE kernel_reports ADD COLUMN study TEXT NOT NULL DEFAULT '';
    ALTER TABLE kernel_reports ADD COLUMN trial TEXT NOT NULL DEFAULT '';
    CREATE TABLE sweeps (
        study TEXT PRIMARY KEY,
        body TEXT NOT NULL  -- JSON: what it may cost
    );
    CREATE TABLE sweep_trials (
        study TEXT NOT NULL,
        number INTEGER NOT NULL,
        body TEXT NOT NULL,  -- JSON: what it has cost, and what it reported
        PRIMARY KEY (study, number)
    );
    """,
)


#: (device, inode) of the files that this process has looked through.
_checked: set[tuple[int, int]] = set()


class _Connection(sqlite3.Connection):
    """After a transaction that found damage, the file is looked through again when it is next opened."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if isinstance(error, sqlite3.DatabaseError) and type(error) in _DAMAGE:
            _checked.clear()
        return super().__exit__(kind, error, trace)


#: What sqlite3 raises for a file that is damaged or none of its own; the others are not the file's fault.
_DAMAGE = (sqlite3.DatabaseError, sqlite3.InternalError)


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
    connection = connect(path or database_path(), remarks)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def connect(
    path: Path, remarks: list[str] | None = None, *, timeout_s: float = 10.0, any_thread: bool = False
) -> sqlite3.Connection:
    """A connection for the caller to commit and close; see `open_database`.

    Args:
        path: the file.
        remarks: what a person should know is appended here. With it the file is looked through for damage
            at each call, without it only at the first one of this process.
        timeout_s: how long to wait for other writers.
        any_thread: allow it in other threads than this one, one at a time.

    Raises:
        OSError, sqlite3.Error: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _connect(path, timeout_s, any_thread, remarks is not None)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise  # locked, read-only, disk full: not broken
        aside = _move_aside(path)
        if remarks is not None:
            remarks.append(
                f"The ledger was damaged ({error}); it is kept as {aside.name}, a new one was begun."
            )
        return _connect(path, timeout_s, any_thread, True)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file that is now, as (device, inode); None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def readable() -> Iterator[None]:
    """Whatever is wrong with the ledger file is one sentence.

    Raises:
        LedgerError: it cannot be read.
    """
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        raise LedgerError(f"The ledger cannot be read: {error}.") from error


def _connect(path: Path, timeout_s: float, any_thread: bool, look: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=timeout_s, check_same_thread=not any_thread, factory=_Connection
    )
    try:
        file = identity(path)
        if look or file not in _checked:
            answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if answer != "ok":
                raise sqlite3.DatabaseError(answer.splitlines()[-1])
            if file is not None:
                _checked.add(file)
        _set_journal(connection, path)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_journal(connection: sqlite3.Connection, path: Path) -> None:
    """A write-ahead log on a local disk, so that nobody waits for readers; a plain journal elsewhere.

    The log needs memory that all processes share, which network file systems do not give.
    """
    wanted = "wal" if is_local(path) else "delete"
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        with suppress(sqlite3.OperationalError):  # somebody else has it open: it stays as it is
            connection.execute(f"PRAGMA journal_mode = {wanted}")
    if wanted == "wal":  # without waiting for the disk: what a power cut may lose is whole transactions
        connection.execute("PRAGMA synchronous = NORMAL")


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
