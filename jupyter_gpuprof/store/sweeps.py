"""Sweeps of plain loops in the ledger file: what a study may cost, and what each of its trials has cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpuprof.store.database import open_database


class SweepFile:
    """One study in the ledger file; several processes may use it at once.

    Args:
        study: its name.
        path: another file than the ledger's.
    """

    def __init__(self, study: str, path: Path | None = None) -> None:
        self.study = study
        self._path = path

    def exists(self) -> bool:
        """Whether it has a budget or a trial.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with open_database(self._path) as database:
            found = database.execute(
                "SELECT 1 FROM sweeps WHERE study = ?1 UNION SELECT 1 FROM sweep_trials WHERE study = ?1",
                (self.study,),
            ).fetchone()
        return found is not None

    def facts(self) -> dict[str, Any]:
        """What was kept of the study; empty for a new one.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with open_database(self._path) as database:
            row = database.execute("SELECT body FROM sweeps WHERE study = ?", (self.study,)).fetchone()
        return {} if row is None else dict(json.loads(row[0]))

    def keep_facts(self, facts: dict[str, Any]) -> None:
        """Keep it.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        with open_database(self._path) as database:
            database.execute("INSERT OR REPLACE INTO sweeps VALUES (?, ?)", (self.study, json.dumps(facts)))

    def begin(self, body: dict[str, Any]) -> int:
        """A new trial; its number, which no other process gets.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        with open_database(self._path) as database:
            database.execute("BEGIN IMMEDIATE")
            (number,) = database.execute(
                "SELECT COALESCE(MAX(number) + 1, 0) FROM sweep_trials WHERE study = ?", (self.study,)
            ).fetchone()
            database.execute(
                "INSERT INTO sweep_trials VALUES (?, ?, ?)", (self.study, number, json.dumps(body))
            )
        return int(number)

    def write(self, number: int, body: dict[str, Any]) -> None:
        """What is known of a trial now.

        Raises:
            OSError, sqlite3.Error: the file cannot be written.
        """
        with open_database(self._path) as database:
            database.execute(
                "UPDATE sweep_trials SET body = ? WHERE study = ? AND number = ?",
                (json.dumps(body), self.study, number),
            )

    def trials(self) -> list[tuple[int, dict[str, Any]]]:
        """All trials with their numbers, in order.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with open_database(self._path) as database:
            rows = database.execute(
                "SELECT number, body FROM sweep_trials WHERE study = ? ORDER BY number", (self.study,)
            ).fetchall()
        return [(number, json.loads(body)) for number, body in rows]
