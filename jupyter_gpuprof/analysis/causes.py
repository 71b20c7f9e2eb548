"""From sampled stacks to what a batch, or the host's part of a step, consists of.

Each stack is one activity (analysis/stacks.py). A share is the part of the samples, with Wilson's
interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from jupyter_gpuprof.analysis.frames import place
from jupyter_gpuprof.analysis.stacks import (
    around_backward,
    host_activity,
    input_activity,
    is_idle,
    takes_over,
    waits_for_workers,
)
from jupyter_gpuprof.records.causes import Causes, CauseShare, HotLine
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.samples import Frame, Samples, StackCount

#: Fewer samples say nothing; with fewer than `ROUGH_SAMPLES` the shares are rough.
FEWEST_SAMPLES, ROUGH_SAMPLES = 20, 100
MOST_LINES = 5

_Z95 = 1.959964
_TEXT_WIDTH = 120

#: Activity and own line of some samples, and how many.
Classified = list[tuple[str, Frame | None, int]]


def wilson(count: int, total: int) -> Estimate:
    """A share of samples with Wilson's score interval of 95 % (Wilson 1927)."""
    share, z2 = count / total, _Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return Estimate(share, min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half)))


def input_causes(
    training: Samples | None,
    workers: Samples | None,
    batches: int,
    names: Mapping[str, str] | None = None,
) -> Causes | Missing:
    """What making a batch consists of.

    With workers their busy samples tell; what the training thread itself needs to take over a batch
    (unpickling, pinning) is handing over, weighted by its part of that thread's fetching.

    Args:
        training: stacks of the training thread.
        workers: stacks of the loader's worker processes; None (or no stacks) where there are none.
        batches: how many batches were made while sampling.
        names: what to call files, by their path ("cell [3]").
    """
    fetching = [stack for stack in training.stacks if stack.where == "fetch"] if training else []
    if workers is not None and workers.stacks:
        return _of_workers(workers, fetching, training, batches, names or {})
    if training is None:
        return Missing("the stacks were not sampled")
    waiting = sum(stack.count for stack in fetching if waits_for_workers(stack.frames))
    if 2 * waiting > sum(stack.count for stack in fetching):
        why = "".join(f"; {remark}" for remark in workers.remarks[:1]) if workers else ""
        return Missing(f"the loader's workers make the batches, and they were not sampled{why}")
    made = [
        (*input_activity(stack.frames), stack.count)
        for stack in fetching
        if not waits_for_workers(stack.frames)
    ]
    causes = _causes("input", made, "fetching a batch", names or {})
    if isinstance(causes, Missing):
        return causes
    return replace(
        causes,
        batch_s=_per(batches, causes.samples * training.period_s, "batch"),
        cpu_ratio=Missing("read for the whole of the training thread"),
        how=_how(training, "the training thread while it fetched"),
        hints=(*causes.hints, *training.remarks),
    )


def host_causes(
    training: Samples | None, steps: int, names: Mapping[str, str] | None = None
) -> Causes | Missing:
    """What the training thread does outside of fetching.

    Args:
        training: its stacks.
        steps: how many steps were made while sampling.
        names: what to call files, by their path.
    """
    if training is None:
        return Missing("the stacks were not sampled")
    stepped = [stack for stack in training.stacks if stack.where == "step"]
    whole = set().union(*(around_backward(stack.frames) for stack in stepped))
    stepping = [(*host_activity(stack.frames, whole), stack.count) for stack in stepped]
    causes = _causes("host", stepping, "the training thread outside of fetching", names or {})
    if isinstance(causes, Missing):
        return causes
    return replace(
        causes,
        batch_s=_per(steps, causes.samples * training.period_s, "step"),
        cpu_ratio=Missing("read for the whole of the training thread"),
        how=_how(training, "the training thread outside of fetching"),
        hints=(*causes.hints, *training.remarks),
    )


def _of_workers(
    workers: Samples,
    fetching: list[StackCount],
    training: Samples | None,
    batches: int,
    names: Mapping[str, str],
) -> Causes | Missing:
    classified = [
        ((*input_activity(stack.frames), stack.count), stack)
        for stack in workers.stacks
        if not is_idle(stack.frames)
    ]
    busy = [made for made, stack in classified if stack.where == "fetch" or made[0] == "handing over"]
    causes = _causes("input", busy, "busy workers", names)
    if isinstance(causes, Missing):
        return causes
    work_s, cpu_ratio = _work(causes.samples * workers.period_s, workers)
    causes = replace(
        causes,
        batch_s=_per(batches, work_s, "batch"),
        cpu_ratio=cpu_ratio,
        how=_how(workers, f"{workers.threads} loader worker{'s' if workers.threads != 1 else ''}"),
        hints=(*causes.hints, *workers.remarks),
    )
    fetches = sum(stack.count for stack in fetching)
    taken = sum(stack.count for stack in fetching if takes_over(stack.frames))
    if not taken or training is None:
        return causes
    serial_s = _per(batches, taken * training.period_s, "batch")
    return replace(_with_taking_over(causes, wilson(taken, fetches)), serial_s=serial_s)


def _work(busy_s: float, workers: Samples) -> tuple[float, Number]:
    """Seconds of work in busy ones, and the part of them on a processor.

    Standing in line for a core is no work: with a core of its own a worker would be done earlier.
    """
    if isinstance(workers.cpu_s, Missing):
        return busy_s, workers.cpu_s
    if busy_s <= 0:
        return 0.0, Missing("no time was sampled")
    cpu_s = min(busy_s, max(0.0, float(workers.cpu_s)))
    waited_s = 0.0 if isinstance(workers.core_wait_s, Missing) else max(0.0, float(workers.core_wait_s))
    work_s = max(cpu_s, busy_s - waited_s)
    return work_s, cpu_s / work_s if work_s > 0 else 0.0


def _with_taking_over(causes: Causes, taken: Estimate) -> Causes:
    """The shares where a part of the fetch is the training thread's own taking over of the batch."""

    def less(share: Estimate) -> Estimate:
        return Estimate(
            share.value * (1 - taken.value), share.low * (1 - taken.high), share.high * (1 - taken.low)
        )

    def more(share: Estimate) -> Estimate:
        return Estimate(
            taken.value + share.value * (1 - taken.value),
            taken.low + share.low * (1 - taken.low),
            taken.high + share.high * (1 - taken.high),
        )

    parts = [replace(part, share=less(part.share)) for part in causes.parts if part.name != "handing over"]
    parts.append(CauseShare("handing over", more(_seen(causes, "handing over"))))
    lines = tuple(replace(line, share=less(line.share)) for line in causes.lines)
    return replace(causes, parts=_ordered(parts), lines=lines)


def _seen(causes: Causes, name: str) -> Estimate:
    return next((part.share for part in causes.parts if part.name == name), Estimate(0.0, 0.0, 0.0))


def _ordered(parts: Iterable[CauseShare]) -> tuple[CauseShare, ...]:
    return tuple(sorted(parts, key=lambda part: -part.share.value))


def _causes(
    of: Literal["input", "host"], classified: Classified, what: str, names: Mapping[str, str]
) -> Causes | Missing:
    total = sum(count for _, _, count in classified)
    if total < FEWEST_SAMPLES:
        return Missing(f"only {total} samples of {what}, {FEWEST_SAMPLES} are needed: run longer")
    counts: Counter[str] = Counter()
    lines: dict[tuple[str, int], Counter[tuple[str, Frame]]] = {}
    for activity, own, count in classified:
        counts[activity] += count
        if own is not None:
            lines.setdefault((own.file, own.line), Counter())[activity, own] += count
    parts = _ordered(CauseShare(name, wilson(count, total)) for name, count in counts.items() if count)
    costly = sorted(lines.values(), key=lambda seen: -seen.total())[:MOST_LINES]
    rough = f"The shares are rough: they rest on {total} samples."
    return Causes(
        of=of,
        samples=total,
        parts=parts,
        lines=tuple(_line(seen, total, names) for seen in costly),
        hints=(rough,) if total < ROUGH_SAMPLES else (),
    )


def _line(seen: Counter[tuple[str, Frame]], total: int, names: Mapping[str, str]) -> HotLine:
    """What is told of one line: its most frequent activity, in the words of that."""
    activities: Counter[str] = Counter()
    for (activity, _), count in seen.items():
        activities[activity] += count
    ((cause, _),) = activities.most_common(1)
    own = max((key for key in seen if key[0] == cause), key=lambda key: seen[key])[1]
    text = " ".join(own.text.split())
    text = text if len(text) <= _TEXT_WIDTH else text[: _TEXT_WIDTH - 1] + "…"
    return HotLine(place(own, names), text, cause, wilson(seen.total(), total))


def _per(count: int, seconds: float, of: str) -> Number:
    return seconds / count if count > 0 else Missing(f"no {of} was counted")


def _how(samples: Samples, what: str) -> str:
    outside = " by py-spy" if samples.source == "py-spy" else ""
    return f"sampling {what}{outside} every {1e3 * samples.period_s:.0f} ms"
