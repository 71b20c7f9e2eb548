"""What kernels say of themselves, in the ledger file: the devices they use, and that they are to be kept.

The driver may list a kernel by the pid of another namespace, or not at all; what the kernel says counts then.
"""

from __future__ import annotations

import math
import platform
import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpuprof.records.processes import KernelReport, ProcessId
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.store.database import connect, database_path

#: What is older is of a kernel that is long gone.
_KEEP_S = 30 * 86400.0
NOT_MEASURED = Missing("no run measures it")


@dataclass(frozen=True)
class KeptKernel:
    """A kernel that asks to be left alone; `until_unix_s` is infinite where it has no end."""

    id: ProcessId
    since_unix_s: float
    until_unix_s: float
    why: str


class KernelReports:
    """The reports of this machine's kernels. It may be used from any thread.

    Args:
        path: another file than `database_path`.
        timeout_s: how long to wait for other writers.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = 0.25) -> None:
        self._path = path or database_path()
        self._timeout_s = timeout_s
        self._host = platform.node()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def write(
        self, me: ProcessId, reports: Iterable[KernelReport], keep: KeptKernel | None, now_unix_s: float
    ) -> None:
        """Say what is so now; what was said before is forgotten.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        who = (self._host, me.pid, me.started_s)
        rows = [
            (*who, r.device_uuid, r.device_index, _plain(r.allocated_bytes), _plain(r.reserved_bytes),
             int(r.training_active), now_unix_s, r.run_id, _plain_ratio(r.input_ratio), r.study, r.trial)
            for r in reports
        ]  # fmt: skip
        with self._lock:
            database = self._connected()
            with database:
                for table in ("kernel_reports", "kernel_keeps"):
                    database.execute(f"DELETE FROM {table} WHERE host = ? AND pid = ? AND started_s = ?", who)
                database.execute("DELETE FROM kernel_reports WHERE at_unix_s < ?", (now_unix_s - _KEEP_S,))
                database.execute("DELETE FROM kernel_keeps WHERE since_unix_s < ?", (now_unix_s - _KEEP_S,))
                database.executemany(
                    "INSERT INTO kernel_reports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
                )
                if keep is not None:
                    until = keep.until_unix_s if math.isfinite(keep.until_unix_s) else None
                    values = (*who, keep.since_unix_s, until, keep.why)
                    database.execute("INSERT INTO kernel_keeps VALUES (?, ?, ?, ?, ?, ?)", values)

    def read(self) -> tuple[tuple[KernelReport, ...], tuple[KeptKernel, ...]]:
        """All that is said; kernels that are gone are among it.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with self._lock:
            database = self._connected()
            reports = database.execute(
                "SELECT pid, started_s, device_uuid, device_index, allocated_bytes, reserved_bytes, training,"
                " at_unix_s, run_id, input_ratio, study, trial FROM kernel_reports WHERE host = ?",
                (self._host,),
            ).fetchall()
            keeps = database.execute(
                "SELECT pid, started_s, since_unix_s, until_unix_s, why FROM kernel_keeps WHERE host = ?",
                (self._host,),
            ).fetchall()
        return (
            tuple(
                KernelReport(
                    ProcessId(pid, began),
                    uuid,
                    index,
                    _number(a),
                    _number(r),
                    bool(trains),
                    at,
                    run_id,
                    NOT_MEASURED if ratio is None else ratio,
                    study,
                    trial,
                )
                for pid, began, uuid, index, a, r, trains, at, run_id, ratio, study, trial in reports
            ),
            tuple(
                KeptKernel(ProcessId(pid, began), since, math.inf if until is None else until, why)
                for pid, began, since, until, why in keeps
            ),
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        """The open file; opened anew if somebody moved it aside meanwhile."""
        if self._connection is not None and self._file != self._identity():
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = connect(self._path, timeout_s=self._timeout_s, any_thread=True)
            self._file = self._identity()
        return self._connection

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _plain_ratio(ratio: Number) -> float | None:
    return None if isinstance(ratio, Missing) else float(ratio)


def _plain(size: Number) -> int | None:
    return None if isinstance(size, Missing) else int(size)


def _number(size: int | None) -> Number:
    return Missing("the kernel could not tell") if size is None else size
