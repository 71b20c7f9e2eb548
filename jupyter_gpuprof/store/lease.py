"""Who of several servers on one machine accounts for its devices, so that no second is counted twice."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path

from jupyter_gpuprof.store.database import connect, database_path, identity

#: A server that has not renewed it for so long, in seconds, has ended or hangs.
LASTS_S = 15.0
_RENEW_S = 5.0
_TAKE = """
INSERT INTO leases (host, owner, until_unix_s) VALUES (?1, ?2, ?3)
ON CONFLICT (host) DO UPDATE SET owner = ?2, until_unix_s = ?3 WHERE owner = ?2 OR until_unix_s < ?4
"""


class Lease:
    """The right to account for the devices of this machine in a ledger file.

    Args:
        path: another file than `database_path`.
        owner: who asks; by default this process.
    """

    def __init__(self, path: Path | None = None, owner: str = "") -> None:
        self._path = path or database_path()
        self._owner = owner or f"{os.getpid()}"
        self._host = platform.node()
        self._mine = False
        self._asked_unix_s = float("-inf")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def mine(self, now_unix_s: float) -> bool:
        """Whether it is ours now; while the file cannot be read, what was so last stands.

        Args:
            now_unix_s: the date, in seconds since 1970.
        """
        if 0 <= now_unix_s - self._asked_unix_s < _RENEW_S:
            return self._mine
        values = (self._host, self._owner, now_unix_s + LASTS_S, now_unix_s)
        try:
            with self._connected() as connection:
                self._mine = connection.execute(_TAKE, values).rowcount > 0
            self._asked_unix_s = now_unix_s
        except (sqlite3.Error, OSError):
            self._disconnect()
            # Alone with a file that cannot be read: the seconds wait in memory until it can.
            self._mine = self._mine or self._asked_unix_s == float("-inf")
        return self._mine

    def release(self) -> None:
        """Let another one have it at once, and close the file."""
        try:
            if self._mine:
                with self._connected() as connection:
                    connection.execute(
                        "DELETE FROM leases WHERE host = ? AND owner = ?", (self._host, self._owner)
                    )
        except (sqlite3.Error, OSError):
            pass  # it runs out
        finally:
            self._mine = False
            self._disconnect()

    def _connected(self) -> sqlite3.Connection:
        """The open file; opened anew if it was moved aside meanwhile."""
        if self._connection is not None and self._file != identity(self._path):
            self._disconnect()
        if self._connection is None:
            self._connection = connect(self._path, timeout_s=0.25, any_thread=True)
            self._file = identity(self._path)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
