"""What was measured by rerunning a cell, in the ledger file: trials of a change, and curves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jupyter_gpuprof.errors import RunFileError, RunNotFound
from jupyter_gpuprof.records.batch import BatchCurve
from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.records.spot import CheckpointCost, SpotDecision
from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.store.database import open_database, readable

T = TypeVar("T")
Curve = TypeVar("Curve", BatchCurve, Scaling, CheckpointCost, SpotDecision, ResumeAudit)

_KINDS: dict[type, str] = {
    BatchCurve: "batch",
    Scaling: "scaling",
    CheckpointCost: "checkpoint",
    SpotDecision: "spot",
    ResumeAudit: "audit",
}
#: The field that holds the id, and what ``%gpuprof`` makes one with, by kind.
_IDS = {
    "batch": "curve_id",
    "scaling": "scaling_id",
    "checkpoint": "cost_id",
    "spot": "decision_id",
    "audit": "audit_id",
}
_COMMANDS = {"scaling": "scale"}
_EVERY = -1  # SQLite's LIMIT that is none


def save_trial(trial: Trial, path: Path | None = None) -> str:
    """Keep a trial in the ledger.

    Returns:
        What a person should know about the database, or "".
    """
    remarks: list[str] = []
    with open_database(path, remarks) as database:
        database.execute(
            "INSERT OR REPLACE INTO trials (trial_id, run_id, started_at, body) VALUES (?, ?, ?, ?)",
            (trial.trial_id, trial.run_id, trial.started_at, json.dumps(trial.to_dict())),
        )
    return " ".join(remarks)


def recent_trials(limit: int | None = 20, path: Path | None = None) -> list[Trial]:
    """The last trials (all of them without a limit), newest first; those of a newer schema are left out."""
    return _recent("trials", "?1 IS NULL", None, limit, Trial.from_dict, path)


def find_trial(wanted: str, path: Path | None = None) -> Trial:
    """The trial of that id (or its beginning), or the last one of that run; "last" is the last of all.

    Raises:
        RunNotFound: there is none.
        RunFileError: it was written by a newer version.
    """
    body = _find("trials", "trial_id", "?1 IS NULL", None, wanted, path)
    if body is None:
        raise RunNotFound(_nothing("trial", wanted), "%gpuprof try makes one.")
    with readable():
        return Trial.from_dict(json.loads(body))


def save_curve(
    curve: BatchCurve | Scaling | CheckpointCost | SpotDecision | ResumeAudit, path: Path | None = None
) -> str:
    """Keep a curve (or what a checkpoint costs, or a decision) in the ledger.

    Returns:
        What a person should know about the database, or "".
    """
    kind = _KINDS[type(curve)]
    remarks: list[str] = []
    with open_database(path, remarks) as database:
        database.execute(
            "INSERT OR REPLACE INTO curves (curve_id, kind, run_id, started_at, body) VALUES (?, ?, ?, ?, ?)",
            (getattr(curve, _IDS[kind]), kind, curve.run_id, curve.started_at, json.dumps(curve.to_dict())),
        )
    return " ".join(remarks)


def recent_curves(kind: type[Curve], limit: int | None = 20, path: Path | None = None) -> list[Curve]:
    """The last curves of a kind (all without a limit), newest first; those of a newer schema are left out."""
    return _recent("curves", "kind = ?1", _KINDS[kind], limit, kind.from_dict, path)


def find_curve(kind: type[Curve], wanted: str, path: Path | None = None) -> Curve:
    """The curve of that id (or its beginning), or the last one of that run; "last" is the last of its kind.

    Raises:
        RunNotFound: there is none.
        RunFileError: it was written by a newer version.
    """
    body = _find("curves", "curve_id", "kind = ?1", _KINDS[kind], wanted, path)
    if body is None:
        name = _KINDS[kind]
        raise RunNotFound(
            _nothing(f"{name} curve", wanted), f"%gpuprof {_COMMANDS.get(name, name)} makes one."
        )
    with readable():
        return kind.from_dict(json.loads(body))


def _recent(
    table: str,
    which: str,
    value: str | None,
    limit: int | None,
    from_dict: Callable[[object], T],
    path: Path | None,
) -> list[T]:
    """The records of the last rows that `which` picks with `value` as its ?1."""
    with readable(), open_database(path) as database:
        rows = database.execute(
            f"SELECT body FROM {table} WHERE {which} ORDER BY started_at DESC, rowid DESC LIMIT ?2",
            (value, _EVERY if limit is None else limit),
        ).fetchall()
    found = []
    for (body,) in rows:
        try:
            found.append(from_dict(json.loads(body)))
        except (RunFileError, ValueError):
            continue
    return found


def _find(table: str, key: str, which: str, value: str | None, wanted: str, path: Path | None) -> str | None:
    """The body of the wanted row among those that `which` picks with `value` as its ?1."""
    with readable(), open_database(path) as database:
        row = database.execute(
            f"SELECT body FROM {table} WHERE {which}"
            f" AND (?2 = 'last' OR run_id = ?2 OR substr({key}, 1, length(?2)) = ?2)"
            f" ORDER BY ({key} = ?2) DESC, started_at DESC, rowid DESC LIMIT 1",
            (value, wanted),
        ).fetchone()
    return None if row is None else str(row[0])


def _nothing(what: str, wanted: str) -> str:
    return f"No {what} was saved yet." if wanted == "last" else f"The ledger holds no {what} {wanted!r}."
