"""What the lost efficiency goes to: waiting for input or communication, by their growth.

The time per sample and device at n devices, in units of that at the smallest count, is 1/efficiency. A
part with the share p of the time then takes ``p/efficiency``, and what it grew by is its part of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jupyter_gpuprof.records.reading import Estimate, Missing, Share
from jupyter_gpuprof.records.scaling import ScalingLabel, ScalingPoint

#: A cause explains at least this share of the lost time.
EXPLAINS = 0.5
#: A second cause is named from this share on.
ALSO = 0.25


@dataclass(frozen=True)
class Cause:
    """Where the time goes that the efficiency lacks.

    Args:
        label: "not worth more" where nothing that was measured explains it.
        before: the smallest measured count.
        now: the count whose loss is looked at.
        input_ratio: what waiting for input explains of the lost time.
        communication_ratio: the same for communication.
        inferred: communication was not measured, it is what waiting for input leaves.
        mixed: both explain a part worth naming.
    """

    label: ScalingLabel
    before: ScalingPoint
    now: ScalingPoint
    input_ratio: Estimate | Missing
    communication_ratio: Estimate | Missing
    inferred: bool
    mixed: bool


def cause_of(before: ScalingPoint, now: ScalingPoint, ranks: Literal["devices", "CPU processes"]) -> Cause:
    """What explains the efficiency of `now` against the smallest count `before`."""
    from_input = _explained(before, now, before.exposed_input, now.exposed_input)
    communication = _explained(before, now, _alone(before), now.exposed_communication)
    inferred = isinstance(communication, Missing) and isinstance(from_input, Estimate) and ranks == "devices"
    if inferred:
        # CPU processes share their cores, so that there the rest may be anything.
        assert isinstance(from_input, Estimate)
        communication = Estimate(1 - from_input.value, 1 - from_input.high, 1 - from_input.low)
    parts: list[tuple[Estimate, ScalingLabel]] = []
    if isinstance(from_input, Estimate):
        parts.append((from_input, "input-bound"))
    if isinstance(communication, Estimate):
        parts.append((communication, "communication-bound"))
    parts.sort(key=lambda part: -part[0].value)
    label: ScalingLabel = "not worth more"
    if parts and parts[0][0].value >= EXPLAINS and parts[0][0].low > 0:
        label = parts[0][1]
    mixed = len(parts) == 2 and parts[1][0].value >= ALSO
    return Cause(label, before, now, from_input, communication, inferred, mixed)


def with_synthetic(
    points: Sequence[ScalingPoint], synthetic: Mapping[int, float]
) -> tuple[ScalingPoint, ...]:
    """The points with what they fall short of the throughput without loading as waiting for input."""
    return tuple(
        replace(p, exposed_input=_short_of(p, synthetic[p.count]))
        if p.count in synthetic and isinstance(p.exposed_input, Missing)
        else p
        for p in points
    )


def _short_of(point: ScalingPoint, without_loading: float) -> Share:
    ends = (point.throughput, point.high, point.low)
    if without_loading <= 0 or any(isinstance(end, Missing) for end in ends):
        return point.exposed_input
    value, low, high = (
        min(max(1 - end / without_loading, 0.0), 1.0) for end in ends if not isinstance(end, Missing)
    )
    return Estimate(value, low, high)


def _alone(point: ScalingPoint) -> Share:
    """A single device does not communicate."""
    if point.count == 1 and isinstance(point.exposed_communication, Missing):
        return Estimate(0.0, 0.0, 0.0)
    return point.exposed_communication


def _explained(
    before: ScalingPoint, now: ScalingPoint, share_before: Share, share_now: Share
) -> Estimate | Missing:
    """The share of the lost time that a part's growth explains."""
    for share in (share_now, share_before):
        if isinstance(share, Missing):
            return share
    assert isinstance(share_now, Estimate)
    assert isinstance(share_before, Estimate)
    efficiency = now.efficiency
    if isinstance(efficiency, Missing) or efficiency >= 1:
        return Missing("no efficiency was lost")
    time = 1 / efficiency
    return Estimate(
        *(
            (time * at_now - at_before) / (time - 1)
            for at_now, at_before in (
                (share_now.value, share_before.value),
                (share_now.low, share_before.high),
                (share_now.high, share_before.low),
            )
        )
    )
