"""A sweep: many trials of one job, what each has cost in device time, and what that was good for.

A device second is one device held for one second. GPU-hours are device seconds over 3600.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Missing, Number

SWEEP_SCHEMA_VERSION = 1

Direction = Literal["minimize", "maximize"]

#: How a trial ended, if it did: "stopped" by its budget, "pruned" by a pruner.
TrialState = Literal["running", "completed", "failed", "stopped", "pruned"]

#: How it is known how many devices a trial has: given, seen in use by the process or in the scheduler's
#: resources, or neither, so that one is assumed and GPU-hours are device-hours.
Counted = Literal["given", "seen", "assumed"]

NOT_GIVEN = Missing("not given")


@dataclass(frozen=True)
class SweepTerms:
    """What a study may cost, kept with the study.

    Args:
        began_unix_s: when a budget was first put on it, in seconds since 1970.
        gpu_hours: for all its trials together.
        expires_unix_s: the moment after which no trial runs any more.
    """

    began_unix_s: float
    gpu_hours: Number = NOT_GIVEN
    expires_unix_s: Number = NOT_GIVEN


@dataclass(frozen=True)
class SweepPoint:
    """One report of a trial.

    Args:
        step: as the trial counts.
        value: what it reported; missing for NaN, which is worse than any number.
        at_unix_s: when.
        device_s: device seconds of the trial until then.
    """

    step: int
    value: Number
    at_unix_s: float
    device_s: float


@dataclass(frozen=True)
class SweepTrial:
    """One trial.

    Args:
        params: its configuration in words.
        device_s: device seconds until its end, or until now.
        end_unix_s: when it ended; missing while it runs.
        points: its reports, in the order of time.
        value: its final one; missing where there is none.
        why: of a trial that the budget stopped, one sentence.
    """

    number: int
    state: TrialState
    began_unix_s: float
    end_unix_s: Number
    device_s: Number
    params: str = ""
    counted: Counted = "assumed"
    points: tuple[SweepPoint, ...] = ()
    value: Number = Missing("it has no final value")
    why: str = ""


@dataclass(frozen=True)
class Sweep:
    """A study as it stands.

    Args:
        direction: which values are better; missing for a study of several objectives.
        terms: its budget; missing without one.
        notes: what a person should know.
    """

    study: str
    direction: Direction | Missing
    terms: SweepTerms | Missing
    trials: tuple[SweepTrial, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunningTrial:
    """What the decision about a running trial rests on.

    Args:
        step: of its last report; missing before the first.
        next_step: where it is done, or compared the next time; missing where that is not known.
        step_s: seconds from one report's step to the next.
    """

    number: int
    step: Number
    next_step: Number
    step_s: Number


@dataclass(frozen=True)
class BudgetDecision:
    """What a budget says at one moment.

    Args:
        starts: whether new trials may begin.
        stop: the numbers of the trials to stop now.
        finishing: of those that may still come to their next step of comparison, with the seconds they have.
        why: one sentence; "" while nothing is limited.
        wait_s: seconds until the limit is met if all goes on as now; missing without a limit.
    """

    starts: bool
    stop: tuple[int, ...] = ()
    finishing: tuple[tuple[int, float], ...] = ()
    why: str = ""
    wait_s: Number = NOT_GIVEN


@dataclass(frozen=True)
class TrialLoss:
    """What of one trial's device time went on after it was losing.

    Args:
        state, device_s, value: as of the trial.
        losing_s: device seconds in stretches that began with a report worse than the running median.
        judged_s: device seconds in stretches that could be judged at all.
        losing_from: the first such step; missing where it never lost, or nothing could be judged.
        saved_s: device seconds after the report at that step.
    """

    number: int
    params: str
    state: TrialState
    device_s: Number
    value: Number
    losing_s: float
    judged_s: float
    losing_from: Number
    saved_s: float


@dataclass(frozen=True)
class CapReplay:
    """The same study under a cap.

    Args:
        gpu_hours: the cap.
        spent_s: device seconds that the study would have taken.
        saved_s: those that it took beyond.
        finished, stopped, refused: how many trials.
        best: of the trials finished under the cap, and `best_seen` that of the study as it was.
        at_unix_s: when the cap would have been met; missing where it would not.
    """

    gpu_hours: float
    spent_s: float
    saved_s: float
    finished: int
    stopped: tuple[int, ...]
    refused: tuple[int, ...]
    best: Number
    best_seen: Number
    at_unix_s: Number


@dataclass(frozen=True)
class SweepReport:
    """What ``%gpuprof sweep`` says.

    Args:
        spent_s: device seconds of all trials.
        losing_s: of those, spent by trials that were losing; missing where nothing could be judged.
        judged_s: device seconds that could be judged.
        saved_s: device seconds after each trial's first losing report: what stopping there saves.
        best: number of the best trial.
        cap: the replay.
    """

    sweep: Sweep
    made_at: str  # UTC, ISO 8601
    counted: str
    spent_s: float
    losing_s: Number
    judged_s: float
    saved_s: Number
    best: Number
    losses: tuple[TrialLoss, ...]
    cap: CapReplay | Missing
    sentence: str
    reasons: tuple[str, ...] = ()
    schema_version: int = field(default=SWEEP_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> SweepReport:
        """The report of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a report (NewerSchemaError: of a newer version).
        """
        return decode(SweepReport, data, newest=SWEEP_SCHEMA_VERSION)


def hours(device_s: float) -> str:
    """GPU-hours in a sentence, three figures: ``12.3``, ``0.0123``, ``123``."""
    value = device_s / 3600
    if value <= 0:
        return "0"
    digits = min(max(2 - math.floor(math.log10(value)), 0), 9)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
