"""Device seconds in the ledger file: one short transaction a tick, by several writers at once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from jupyter_gpuprof.records.ledger import By, LedgerRow, LedgerSum
from jupyter_gpuprof.store.database import connect, database_path, open_database, readable

#: How long the device seconds are kept, and how much room they may take, unless told otherwise.
KEEP_DAYS = 400
MOST_BYTES = 64 * 2**20
#: What a row takes in the file, as measured by benchmarks/ledger.py.
ROW_BYTES = 140
#: How many different rows wait in memory at most while the file cannot be written.
_MOST_WAITING = 20_000

_ADD = """
INSERT INTO device_seconds
    (hour, device_uuid, state, user, notebook, run_id, study, trial, measure, device_name, seconds, samples)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hour, device_uuid, state, user, notebook, run_id, study, trial, measure) DO UPDATE SET
    device_name = excluded.device_name,
    seconds = seconds + excluded.seconds,
    samples = samples + excluded.samples
"""
_KEYS: dict[By, str] = {
    "notebook": "notebook",
    "device": "device_name || ', ' || device_uuid",
    "user": "user",
    "day": "''",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class LedgerWriter:
    """Adds device seconds to the ledger, and goes on whatever happens to the file.

    What cannot be written (disk full, file locked) waits in memory and goes with the next tick; a file
    that is damaged is moved aside and a new one begun. It may be used from any thread.

    Args:
        path: another file than `database_path`.
        timeout_s: how long a tick waits for other writers.

    Attributes:
        trouble: why the last tick could not be written, or "".
        remarks: what a person should know, for good.
        lost_s: device seconds that had to be dropped, since too much waited.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = 0.25) -> None:
        self.path = path or database_path()
        self.trouble = ""
        self.remarks: list[str] = []
        self.lost_s = 0.0
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._waiting: dict[tuple[object, ...], tuple[str, float, int]] = {}

    def add(self, rows: Iterable[LedgerRow]) -> bool:
        """Add the rows of a tick to what is there, in one transaction.

        Returns:
            Whether they are in the file; if not, `trouble` says why, and they are tried again.
        """
        with self._lock:
            for row in rows:
                self._wait(row)
            try:
                self._write()
                self.trouble = ""
            except (sqlite3.Error, OSError) as error:
                self.trouble = f"The ledger cannot be written ({error}); {len(self._waiting)} rows wait."
                if not isinstance(error, sqlite3.OperationalError) or "locked" not in str(error):
                    self._disconnect()  # looked at from the start at the next tick
            return not self.trouble

    def prune(self, now_unix_s: float, *, keep_days: float = KEEP_DAYS, most_bytes: int = MOST_BYTES) -> int:
        """Delete what is too old, and of the rest the oldest hours that take too much room.

        Args:
            now_unix_s: the date, in seconds since 1970.
            keep_days: for how long seconds are kept.
            most_bytes: room for all of them.

        Returns:
            How many rows were deleted.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        with self._lock:
            connection = self._connected()
            with connection:
                oldest = int((now_unix_s - keep_days * 86400) // 3600)
                cursor = connection.execute("DELETE FROM device_seconds WHERE hour < ?", (oldest,))
                deleted = cursor.rowcount
                row = connection.execute(
                    "SELECT hour FROM device_seconds ORDER BY hour DESC LIMIT 1 OFFSET ?",
                    (most_bytes // ROW_BYTES,),
                ).fetchone()
                if row is not None:
                    cursor = connection.execute("DELETE FROM device_seconds WHERE hour <= ?", row)
                    deleted += cursor.rowcount
            return deleted

    def close(self) -> None:
        """Close the file; what still waits is lost."""
        with self._lock:
            self._disconnect()

    def _wait(self, row: LedgerRow) -> None:
        key = (
            row.hour, row.device_uuid, row.state, row.user, row.notebook, row.run_id, row.study, row.trial,
            row.measure,
        )  # fmt: skip
        _, seconds, samples = self._waiting.get(key, ("", 0.0, 0))
        if key in self._waiting or len(self._waiting) < _MOST_WAITING:
            self._waiting[key] = (row.device_name, seconds + row.seconds, samples + row.samples)
        else:
            self.lost_s += row.seconds

    def _write(self) -> None:
        connection = self._connected()
        with connection:
            connection.executemany(_ADD, [(*key, *values) for key, values in self._waiting.items()])
        self._waiting.clear()

    def _connected(self) -> sqlite3.Connection:
        """The open file; opened anew if another process has moved it aside meanwhile."""
        if self._connection is not None and self._file != self._identity():
            self._disconnect()
        if self._connection is None:
            self._connection = connect(self.path, self.remarks, timeout_s=self._timeout_s, any_thread=True)
            self._file = self._identity()
        return self._connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _disconnect(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass
        self._connection = None


def ledger_sums(
    by: By, *, since_unix_s: float = 0.0, until_unix_s: float | None = None, path: Path | None = None
) -> tuple[list[LedgerSum], int]:
    """The sums of the ledger by key, day and state, and how many devices they are about.

    Args:
        by: what to sum by.
        since_unix_s: from the hour of this moment on, in seconds since 1970.
        until_unix_s: up to the hour of this moment, that hour included.
        path: another file than `database_path`.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    first = int(since_unix_s // 3600)
    last = 2**40 if until_unix_s is None else int(until_unix_s // 3600)
    with readable(), open_database(path) as database:
        rows = database.execute(
            f"SELECT hour / 24, {_KEYS[by]} AS who, state, measure, SUM(seconds), SUM(samples)"
            " FROM device_seconds WHERE hour BETWEEN ? AND ? GROUP BY 1, 2, 3, 4",
            (first, last),
        ).fetchall()
        (devices,) = database.execute(
            "SELECT COUNT(DISTINCT device_uuid) FROM device_seconds WHERE hour BETWEEN ? AND ?", (first, last)
        ).fetchone()
    days = {row[0]: (_EPOCH + timedelta(days=row[0])).date().isoformat() for row in rows}
    return [
        LedgerSum(days[day] if by == "day" else who, days[day], state, measure, seconds, samples)
        for day, who, state, measure, seconds, samples in rows
    ], devices
