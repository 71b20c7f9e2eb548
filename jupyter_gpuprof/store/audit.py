"""The audit log in the ledger file: what was done to whom, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpuprof.records.audit import AuditRow
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.store.database import open_database, readable

#: How many rows are kept: some years of a busy server.
MOST_ROWS = 20_000
_COLUMNS = "at, holder_id, path, action, actor, outcome, sentence, evidence, device_uuids, freed_bytes"


def add_audit(row: AuditRow, path: Path | None = None) -> None:
    """Keep a row.

    Raises:
        OSError, sqlite3.Error: the file cannot be written.
    """
    values = (
        row.at, row.holder_id, row.path, row.action, row.by, row.outcome, row.sentence,
        json.dumps(row.evidence), json.dumps(row.device_uuids), json.dumps(encode(row.freed_bytes)),
    )  # fmt: skip
    with open_database(path) as database:
        marks = ", ".join("?" * len(values))
        cursor = database.execute(f"INSERT INTO audit ({_COLUMNS}) VALUES ({marks})", values)
        database.execute("DELETE FROM audit WHERE audit_id <= ?", ((cursor.lastrowid or 0) - MOST_ROWS,))


def recent_audit(limit: int = 100, path: Path | None = None) -> list[AuditRow]:
    """The last rows, newest first.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    with readable(), open_database(path) as database:
        rows = database.execute(
            f"SELECT {_COLUMNS}, audit_id FROM audit ORDER BY audit_id DESC LIMIT ?", (limit,)
        ).fetchall()
    return [_row(*row) for row in rows]


def _row(
    at: str, holder_id: str, path: str, action: str, by: str, outcome: Any, sentence: str,
    evidence: str, device_uuids: str, freed_bytes: str, audit_id: int,
) -> AuditRow:  # fmt: skip
    return AuditRow(
        at, holder_id, path, action, by, outcome, sentence, tuple(json.loads(evidence)),
        tuple(json.loads(device_uuids)), _number(freed_bytes), audit_id,
    )  # fmt: skip


def _number(text: str) -> Number:
    value: Any = json.loads(text)
    return Missing(str(value["missing"])) if isinstance(value, dict) else value
