"""Anything that was saved: a run, a trial or a curve, from the ledger or from a JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import RunNotFound
from jupyter_gpuprof.records.batch import BatchCurve
from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.scaling import Scaling
from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.store.runs import find_run, read_run
from jupyter_gpuprof.store.trials import find_curve, find_trial

Record = Run | Trial | BatchCurve | Scaling | ResumeAudit
#: The record that a JSON file holds, by a field that no other has.
_KINDS: tuple[tuple[str, Any], ...] = (
    ("scaling_id", Scaling),
    ("curve_id", BatchCurve),
    ("trial_id", Trial),
    ("audit_id", ResumeAudit),
)


def load_record(wanted: str | Path) -> Record:
    """What was saved under a name.

    Args:
        wanted: a JSON file, an id (or its beginning), the name of a run, "last" for the last run, or
            "scale", "batch", "try" or "audit" for the last that these commands gave.

    Raises:
        RunNotFound: there is nothing of that name.
        RunFileError: the file holds nothing of ours, or what a newer version wrote.
    """
    path = Path(wanted)
    if path.suffix == ".json" or path.is_file():
        return _read(path)
    name = str(wanted)
    try:
        return find_run(name)
    except RunNotFound as error:
        nothing = error
    finders = (("scale", _scaling), ("batch", _batch), ("try", find_trial), ("audit", _audit))
    for command, find in finders:
        try:
            return find("last" if name == command else name)
        except RunNotFound:
            continue
    raise nothing


def _scaling(wanted: str) -> Scaling:
    return find_curve(Scaling, wanted)


def _batch(wanted: str) -> BatchCurve:
    return find_curve(BatchCurve, wanted)


def _audit(wanted: str) -> ResumeAudit:
    return find_curve(ResumeAudit, wanted)


def _read(path: Path) -> Record:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return read_run(path)  # it says what is wrong
    for field, kind in _KINDS:
        if isinstance(data, dict) and field in data:
            record: Record = kind.from_dict(data)
            return record
    return Run.from_dict(data)
