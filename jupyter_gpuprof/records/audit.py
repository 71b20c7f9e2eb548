"""What was done to whom, and why: the rows that stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Missing, Number

#: How it ended.
Outcome = Literal[
    "done",
    "would be done",  # a dry run
    "cancelled",  # something changed between the decision and the action
    "failed",
    "released",  # done, and the device's memory was seen to be free
    "not released",  # done, and it was not
]


@dataclass(frozen=True)
class AuditRow:
    """One thing that was done, or was about to be.

    Args:
        at: ISO 8601, UTC.
        holder_id: a kernel's id or an orphan's.
        path: its notebook, "" if unknown.
        action: an action of the reaper, "keep", "release", "end descendants" or "verify".
        by: "reaper", or the person who asked.
        sentence: what happened and why.
        evidence: the numbers behind it, worded.
        device_uuids: the devices it held.
        freed_bytes: how much less of them is in use.
        audit_id: its number; 0 before it is kept.
    """

    at: str
    holder_id: str
    path: str
    action: str
    by: str
    outcome: Outcome
    sentence: str
    evidence: tuple[str, ...] = ()
    device_uuids: tuple[str, ...] = ()
    freed_bytes: Number = Missing("not measured")
    audit_id: int = 0
