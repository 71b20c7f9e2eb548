"""From a replay to its outcome, from the records to theirs, and from two outcomes to the verdict.

The verdict is on two numbers together: what a useful GPU-hour costs, and the queue wait that nine of ten jobs
stay within. Cost down and wait flat is a result; cost down and wait up is a cut, and says so. The wait's
interval is a bootstrap over weeks (days, where there are few weeks): jobs of one week are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jupyter_gpuprof.planning.claimtime import claim_bound_s
from jupyter_gpuprof.planning.fleetstate import Played
from jupyter_gpuprof.planning.gangless import replay_without_gang
from jupyter_gpuprof.planning.replay import replay
from jupyter_gpuprof.planning.survival import waits_of
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.fleetreplay import FleetLabel, FleetVerdict, Outcome, Waits
from jupyter_gpuprof.records.reading import Estimate, Missing, Number

#: A wait is flat that is longer by no more than the larger of these two.
FLAT_RATIO, FLAT_S = 1.05, 60.0
#: A saving below this is none.
SAVING_RATIO = 0.99
_WEEK_S, _DAY_S = 7 * 86400.0, 86400.0
#: So many weeks, or else days, are needed to resample them.
_FEWEST_BLOCKS = 4
_RESAMPLES = 400

_Floats = np.ndarray[Any, np.dtype[np.float64]]


def play(works: Sequence[Work], policy: FleetPolicy, *, seed: int = 0) -> Played:
    """Replay the jobs with or without gang scheduling, as the policy says."""
    return replay(works, policy, seed=seed) if policy.gang else replay_without_gang(works, policy)


def recorded(works: Sequence[Work]) -> Played:
    """The records themselves as if they were a replay."""
    start = [work.start_s for work in works]
    wait = [work.start_s - work.submit_s for work in works]
    end = [work.start_s + work.run_s for work in works]
    held_s = sum(work.gpus * work.run_s for work in works)
    return Played(wait, start, end, [0] * len(works), held_s=held_s)


def outcome_of(works: Sequence[Work], played: Played, policy: FleetPolicy, name: str = "") -> Outcome:
    """What came of it, in the figures that a person compares."""
    ends = [end for end in played.end_s if not math.isnan(end)]
    first_s = works[0].submit_s if works else 0.0
    makespan_s = max(ends, default=first_s) - first_s
    done = [not math.isnan(end) for end in played.end_s]
    useful_s = sum(work.gpus * work.run_s for work, is_done in zip(works, done, strict=True) if is_done)
    paid_s = policy.gpus * makespan_s + played.spot_s
    return Outcome(
        policy=name or policy.name,
        gpus=policy.gpus,
        spot_gpus=policy.spot.gpus,
        jobs=len(works),
        waits=_waits("", works, played, lambda _: True),
        by_team=_grouped(works, played, lambda work: work.team),
        by_class=_grouped(works, played, lambda work: work.priority_class),
        never=done.count(False),
        makespan_s=makespan_s,
        used_ratio=(played.held_s - played.spot_s) / (policy.gpus * makespan_s)
        if policy.gpus * makespan_s
        else Missing("nothing ran"),
        useful_gpu_hours=useful_s / 3600,
        paid_gpu_hours=paid_s / 3600,
        lost_gpu_hours=played.lost_s / 3600,
        overhead_gpu_hours=played.overhead_s / 3600,
        stopped=sum(played.preempted),
        claims=len(played.claims_s),
        slowest_claim_s=max(played.claims_s) if played.claims_s else Missing("nothing had to be reclaimed"),
        bound_s=claim_bound_s(policy),
        money_per_useful_hour=_money(policy, makespan_s, played.spot_s, useful_s),
    )


def _money(policy: FleetPolicy, makespan_s: float, spot_s: float, useful_s: float) -> Number:
    if not useful_s:
        return Missing("no job finished")
    price = 1.0 if isinstance(policy.price, Missing) else policy.price
    spot = policy.spot.price
    if spot_s and (isinstance(spot, Missing) or isinstance(policy.price, Missing)):
        return Missing("the prices of stable and spot capacity were not both given")
    spot_money = 0.0 if isinstance(spot, Missing) else spot * spot_s
    return (price * policy.gpus * makespan_s + spot_money) / useful_s


def _waits(key: str, works: Sequence[Work], played: Played, takes: Callable[[Work], bool]) -> Waits:
    last_s = max((end for end in played.end_s if not math.isnan(end)), default=0.0)
    waits: list[float] = []
    started: list[bool] = []
    for work, wait in zip(works, played.wait_s, strict=True):
        if takes(work):
            waits.append(max(last_s - work.submit_s, 0.0) if math.isnan(wait) else wait)
            started.append(not math.isnan(wait))
    return waits_of(key, waits, started)


def _grouped(works: Sequence[Work], played: Played, key: Callable[[Work], str]) -> tuple[Waits, ...]:
    names = sorted({key(work) for work in works})
    if names in ([""], []):
        return ()
    return tuple(_waits(name, works, played, lambda work: key(work) == name) for name in names)  # noqa: B023


def limit_of(p90_s: float) -> float:
    """The longest wait that counts as flat, against one of `p90_s`."""
    return max(p90_s * FLAT_RATIO, p90_s + FLAT_S)


def verdict_of(
    works: Sequence[Work], before: tuple[Outcome, Played], after: tuple[Outcome, Played], *, seed: int = 0
) -> FleetVerdict:
    """Whether the change is a result or a cut."""
    old, new = before[0], after[0]
    cost = _ratio(new.money_per_useful_hour, old.money_per_useful_hour)
    p90, change = (old.waits.p90_s, new.waits.p90_s), _change(works, before[1], after[1], seed)
    if isinstance(p90[0], Missing) or isinstance(p90[1], Missing):
        why = "the wait of nine of ten jobs is not reached"
        return FleetVerdict("unclear", f"unclear: {why}", cost, Missing(why))
    room = limit_of(float(p90[0])) - float(p90[0])
    low, high = (change.low, change.high) if isinstance(change, Estimate) else (None, None)
    longer_s = float(p90[1] - p90[0])
    label: FleetLabel = "unclear"
    if not isinstance(cost, Missing) and cost >= SAVING_RATIO:
        label = "no saving"
    elif longer_s > room and (low is None or low > 0):
        label = "cut"
    elif longer_s <= room and (high is None or high <= room) and not isinstance(cost, Missing):
        label = "result"
    words = f"{_article(label)}: {_cost_words(cost)}, and {_wait_words(p90[0], p90[1], room)}"
    if label == "unclear" and low is not None and high is not None:
        words += f"; other weeks like these would change it by {_span(low)} to {_span(high)}"
    return FleetVerdict(label, words, cost, change)


def _article(label: FleetLabel) -> str:
    return f"a {label}" if label in ("result", "cut") else label


def _ratio(new: Number, old: Number) -> Number:
    if isinstance(new, Missing):
        return new
    if isinstance(old, Missing):
        return old
    return new / old if old else Missing("nothing was paid before")


def _cost_words(cost: Number) -> str:
    if isinstance(cost, Missing):
        return f"the cost is not known ({cost.reason})"
    change = 100 * (cost - 1)
    if abs(change) < 1:
        return "a useful GPU-hour costs the same"
    return f"a useful GPU-hour costs {abs(change):.0f} % {'less' if change < 0 else 'more'}"


def _wait_words(old: Number, new: Number, room: float) -> str:
    assert not isinstance(old, Missing)
    assert not isinstance(new, Missing)
    ends = f"{_span(old)} before, {_span(new)} after"
    if new - old > room:
        by = f"{new / old:.1f}x" if old > 0 else _span(new)
        return f"p90 queue wait is up by {by} ({ends})"
    if old - new > room:
        return f"p90 queue wait is down ({ends})"
    return f"p90 queue wait is flat ({ends})"


def _span(seconds: float) -> str:
    size = abs(seconds)
    if size < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if size < 7200 else f"{seconds / 3600:.1f} h"


def _change(works: Sequence[Work], before: Played, after: Played, seed: int) -> Estimate | Missing:
    """The change of p90 with an interval of 95 %."""
    submit = np.array([work.submit_s for work in works])
    old, new = np.array(before.wait_s), np.array(after.wait_s)
    seen = ~np.isnan(old) & ~np.isnan(new)
    if not seen.any():
        return Missing("no job started under both policies")
    submit, old, new = submit[seen], old[seen], new[seen]
    value = _p90(new) - _p90(old)
    blocks = _blocks(submit)
    if len(blocks) < _FEWEST_BLOCKS:
        return Missing(f"the records span fewer than {_FEWEST_BLOCKS} days, too few to resample")
    draw = np.random.default_rng(seed)
    changes = []
    for _ in range(_RESAMPLES):
        rows = np.concatenate([blocks[i] for i in draw.integers(0, len(blocks), len(blocks))])
        changes.append(_p90(new[rows]) - _p90(old[rows]))
    low, high = np.quantile(changes, [0.025, 0.975])
    return Estimate(value, min(float(low), value), max(float(high), value))


def _blocks(submit: _Floats) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
    """The jobs of each week, or of each day where there are fewer than four weeks."""
    for length_s in (_WEEK_S, _DAY_S):
        numbers = np.floor((submit - submit[0]) / length_s)
        names = np.unique(numbers)
        if len(names) >= _FEWEST_BLOCKS or length_s == _DAY_S:
            break
    return [np.nonzero(numbers == name)[0] for name in names]


def _p90(waits: _Floats) -> float:
    rank = math.ceil(0.9 * len(waits)) - 1
    return float(np.partition(waits, rank)[rank])
