"""A resume audit: whether an interrupted run goes on as it would have gone on, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spot import Audit

RESUME_AUDIT_SCHEMA_VERSION = 1

#: What one interruption showed.
CaseOutcome = Literal[
    "identical",
    "order identical, augmentation differs",
    "differs",
    "not tested",
]
#: The state that is likely missing, or what is likely wrong with how it is written.
MissingState = Literal[
    "",
    "loader position",
    "shuffle",
    "sampler or generator state",
    "random states",
    "augmentation's random state",
    "learning rate schedule",
    "model",
    "optimizer",
    "second resume",
    "resuming",
    "pointer before data",
    "removed before written",
    "half-written file",
    "parts of two saves",
    "unknown",
]


@dataclass(frozen=True)
class SeenStep:
    """What was seen of one training step; floats are as ``float.hex`` writes them, with all their bits.

    Args:
        epoch: passes over the loader that were begun in this process before this one.
        samples: the identity of each sample of the batch; empty where that is not known.
        indexed: whether these are the sampler's numbers; else digests of the samples' own content.
        content: digest of the batch as it was delivered; "" where that is not known.
        rates: the learning rate of each parameter group, as the optimizer used it.
        losses: what each backward pass began at.
        weights: digest of the parameters before the optimizer stepped.
        moments: digest of the optimizer's state then.
        random: digest of the process's random states then.
    """

    epoch: int
    samples: tuple[str, ...]
    indexed: bool
    content: str
    rates: tuple[str, ...]
    losses: tuple[str, ...]
    weights: str
    moments: str
    random: str


@dataclass(frozen=True)
class Case:
    """One way of being interrupted.

    Args:
        name: which.
        kills: each interruption, in words.
        went_on_after: the step after which the last process went on.
        compared: steps that were compared after it.
        outcome: what it showed.
        first_step: the first step that differs from the straight run.
        differs: what differs there.
        missing: what that makes likely.
        sentence: all of it in a sentence.
    """

    name: str
    kills: tuple[str, ...]
    went_on_after: Number
    compared: int
    outcome: CaseOutcome
    first_step: Number = Missing("no step differs")
    differs: tuple[str, ...] = ()
    missing: MissingState = ""
    sentence: str = ""


@dataclass(frozen=True)
class ResumeAudit:
    """What ``%gpuprof audit`` found.

    Args:
        cell_digest: of the cell's text, by which ``%gpuprof spot`` knows it again.
        how: who saves and loads: "the cell itself", or the names of the person's functions.
        steps: of the straight run.
        epoch_steps: steps of its first epoch, where it came to the end of that.
        cases: each way of being interrupted.
        outcome: of all of them together.
        sentence: what follows, in one sentence.
    """

    audit_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    cell_digest: str
    how: str
    steps: int
    epoch_steps: Number
    cases: tuple[Case, ...]
    outcome: CaseOutcome
    sentence: str
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=RESUME_AUDIT_SCHEMA_VERSION)

    @property
    def audit(self) -> Audit:
        """What it means for interruptible capacity."""
        if self.outcome == "not tested":
            return "never ran"
        return "failed" if self.outcome == "differs" else "passed"

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> ResumeAudit:
        """The audit of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of an audit (NewerSchemaError: of a newer version).
        """
        return decode(ResumeAudit, data, newest=RESUME_AUDIT_SCHEMA_VERSION)
