"""Checkpoints and interruptible capacity: what a save costs, and whether the job is safe there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import decode, encode
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Device

CHECKPOINT_SCHEMA_VERSION = 1
SPOT_SCHEMA_VERSION = 1

How = Literal["yours", "torch.save", "asynchronous"]
#: What a resume audit of this job came to.
Audit = Literal["passed", "failed", "never ran"]
SpotLabel = Literal["spot-ready", "spot-ready at interval", "stable capacity"]

NOT_GIVEN = Missing("not given")


@dataclass(frozen=True)
class Range:
    """A number with what it may be; any of the three may be unknown (only a bound, no value)."""

    value: Number
    low: Number
    high: Number

    @staticmethod
    def of(value: float) -> Range:
        """A number without doubt."""
        return Range(value, value, value)


@dataclass(frozen=True)
class SaveTimes:
    """One way of saving, timed over `repeats` real saves.

    Percentiles are by nearest rank: times that a save really took. `blocking_s` is how long training stands
    still (median, and 99th percentile), `durable_s` how long from the save's begin until it is safe on the
    storage (each repeat in `durable_each_s`), `load_s` how long reading it back takes.
    """

    how: How
    repeats: int
    size_bytes: Number
    blocking_s: float
    blocking_p99_s: float
    durable_s: float
    durable_p99_s: float
    load_s: Number
    durable_each_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class StatePart:
    """One object whose state belongs into a checkpoint, by the variable that leads to it."""

    name: str
    kind: str  # "model", "optimizer", "schedule", "scaler", "random states" or "other"
    state_bytes: int  # of its tensors


@dataclass(frozen=True)
class CheckpointCost:
    """What ``%gpuprof checkpoint`` measured.

    Args:
        folder: where it was saved, as the person named it.
        parts: what the checkpoint holds; empty where the person's own function saves.
        parameter_bytes: of the models' parameters.
        ways: each way of saving that was timed, the one to go by first.
        sentence: what follows, in one sentence.
    """

    cost_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    device: Device
    folder: str
    parts: tuple[StatePart, ...]
    parameter_bytes: Number
    ways: tuple[SaveTimes, ...]
    sentence: str
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=CHECKPOINT_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The cost as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> CheckpointCost:
        """The cost of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a cost (NewerSchemaError: of a newer version).
        """
        return decode(CheckpointCost, data, newest=CHECKPOINT_SCHEMA_VERSION)


@dataclass(frozen=True)
class Interruptions:
    """How often this job is interrupted: the mean time between two of them, in seconds.

    Where it was observed, the range is that of 95 %; with no interruption at all it has only a lower bound,
    which is one-sided. Where it was given, it has no doubt.
    """

    mean_s: Range
    count: Number = Missing("the rate was given")
    observed_s: Number = Missing("the rate was given")

    @property
    def is_bound(self) -> bool:
        """No interruption was seen: all that is known is that they are rarer than this."""
        return isinstance(self.mean_s.value, Missing)

    @property
    def planned_s(self) -> float:
        """The mean time to plan with: the bound where there is nothing better."""
        known = self.mean_s.low if self.is_bound else self.mean_s.value
        assert not isinstance(known, Missing)
        return float(known)


@dataclass(frozen=True)
class SpotFigures:
    """What a decision rests on.

    Args:
        blocking_s: training stands still for one checkpoint.
        restart_s: from an interruption until training runs again: queue, start, load.
        interruptions: of this job.
        async_blocking_s: the same as `blocking_s`, saved in the background, and
        async_durable_s: until such a save is safe.
        durable_p99_s: the longest that a save takes until it is safe, but for one in a hundred.
        notice_s: warning before an interruption.
        in_time_ratio: how probably an emergency save is done within the notice.
        price_ratio: the spot price over the on-demand price.
        price_per_device_hour: on demand, in any currency.
        work_s: computing that is left to do.
        deadline_s: how long until it must be done.
        today_s: the interval between the checkpoints of the loop as it is.
        step_s: the mean step.
        is_release: the run is one that must not be disturbed.
        audit: what a resume audit of the job came to.
    """

    blocking_s: float
    restart_s: float
    interruptions: Interruptions
    async_blocking_s: Number = NOT_GIVEN
    async_durable_s: Number = NOT_GIVEN
    durable_p99_s: Number = NOT_GIVEN
    notice_s: Number = NOT_GIVEN
    in_time_ratio: Number = NOT_GIVEN
    price_ratio: Number = NOT_GIVEN
    price_per_device_hour: Number = NOT_GIVEN
    devices: int = 1
    work_s: Number = NOT_GIVEN
    deadline_s: Number = NOT_GIVEN
    today_s: Range | Missing = NOT_GIVEN
    step_s: Number = NOT_GIVEN
    is_release: bool = False
    audit: Audit = "never ran"


@dataclass(frozen=True)
class SpotPlan:
    """One way of saving on spot capacity, at its own best interval.

    Intervals are seconds of computing between two checkpoints. Ranges come from the doubt about the
    interruptions.

    Args:
        optimum_s: the interval of the lowest cost.
        flat_low_s, flat_high_s: between these the cost is within one percent of the lowest.
        interval_s: a round one in there.
        lost_s: what one interruption costs on average, the restart included.
        overhead_ratio: the share of the time that goes to saving.
        wall_ratio: wall time over computing, all in.
        loss_ratio: the share of the wall time that is not computing.
        cost_ratio: the money over that of the same work on demand.
    """

    name: Literal["saving as measured", "saving in the background", "saving at the notice, too"]
    optimum_s: Range
    flat_low_s: float
    flat_high_s: float
    interval_s: float
    lost_s: float
    overhead_ratio: float
    wall_ratio: Range
    loss_ratio: Range
    cost_ratio: Range | Missing


@dataclass(frozen=True)
class Law:
    """What a formula of the literature says for the same figures."""

    name: str
    interval_s: float
    wall_ratio: float


@dataclass(frozen=True)
class CurvePoint:
    """Wall time over computing at one interval."""

    interval_s: float
    wall_ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Today:
    """The loop with the interval that it uses today; `more_ratio` is what it costs above the optimum."""

    interval_s: Range
    wall_ratio: float
    more_ratio: float
    is_flat: bool  # it is as good as the optimum


@dataclass(frozen=True)
class SpotDecision:
    """What ``%gpuprof spot`` says.

    Args:
        figures: what it rests on.
        plans: by the way of saving; the first is the one of the verdict.
        laws: other formulas for the first plan.
        curve: of the first plan.
        interval_steps: the first plan's interval in steps, where the step is known.
        break_even_ratio: the share of lost time at which spot costs as much as on demand.
        break_even_s: the mean time between interruptions at which it does so at its best interval.
        stable_money, spot_money: for `SpotFigures.work_s` of computing, else for an hour of it.
        finish_s: wall time until the work is done: mean, and with 95 % probability.
        label: the verdict, with `sentence` for why and `reasons` with the numbers.
    """

    decision_id: str
    run_id: str
    run_name: str
    started_at: str  # UTC, ISO 8601
    figures: SpotFigures
    plans: tuple[SpotPlan, ...]
    laws: tuple[Law, ...]
    curve: tuple[CurvePoint, ...]
    today: Today | Missing
    interval_steps: Number
    break_even_ratio: Number
    break_even_s: Number
    stable_money: Number
    spot_money: Range | Missing
    finish_s: Range | Missing
    label: SpotLabel
    sentence: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=SPOT_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded

    @staticmethod
    def from_dict(data: object) -> SpotDecision:
        """The decision of `to_dict`'s values.

        Raises:
            RunFileError: the values are not those of a decision (NewerSchemaError: of a newer version).
        """
        return decode(SpotDecision, data, newest=SPOT_SCHEMA_VERSION)
