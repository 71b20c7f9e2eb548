"""What is likely missing in a checkpoint, from how a resumed run differs; never more than that shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.analysis.resumecompare import Comparison, same
from jupyter_gpuprof.records.resumeaudit import MissingState, SeenStep

#: So many steps in a row show that an order is the same as another one.
_IN_A_ROW = 3


@dataclass(frozen=True)
class Cause:
    """What is likely missing, and the evidence in words."""

    missing: MissingState
    words: str


def causes_of(
    straight: Sequence[SeenStep], resumed: Sequence[SeenStep], found: Comparison
) -> tuple[Cause, ...]:
    """Why a resumed run differs, the likeliest first; empty if it does not."""
    if found.first is None:
        return ()
    causes: list[Cause] = []
    if "samples" in found.differs:
        causes.append(_of_samples(straight, resumed, found))
    if "weights" in found.restored and "samples" not in found.differs:
        saved = [i for i, step in enumerate(straight) if step.weights == resumed[0].weights]
        if saved:
            words = f"the parameters are those after step {saved[-1]}, and the samples those of step "
            return (Cause("loader position", f"{words}{found.after + 1}"),)
    if "weights" in found.restored:
        causes.append(Cause("model", "the parameters were others before the first resumed step"))
    if "moments" in found.restored:
        words = "the optimizer's state was another one before the first resumed step"
        causes.append(Cause("optimizer", words))
    if "rates" in found.differs:
        causes.append(Cause("learning rate schedule", "the learning rate is another one"))
    if causes:
        return tuple(causes)
    if "content" in found.differs:
        words = "the samples are the same, and their content is not"
        return (Cause("augmentation's random state", words),)
    if "random" in found.restored:
        words = "the random states were others at the first resumed step (dropout draws from them)"
        return (Cause("random states", words),)
    words = "the loss differs, while samples, learning rate, parameters, optimizer and random states agreed"
    return (Cause("unknown", words),)


def only_augmentation(straight: Sequence[SeenStep], resumed: Sequence[SeenStep], found: Comparison) -> bool:
    """Whether order and restored state are the same, and nothing but the samples' content began to differ."""
    if found.first is None or "content" not in found.differs:
        return False
    if {"weights", "moments"} & set(found.restored):
        return False
    pairs = zip(straight[found.after :], resumed, strict=False)
    return all(a.samples and b.indexed and same("samples", a, b) and same("rates", a, b) for a, b in pairs)


def mixed_saves(straight: Sequence[SeenStep], first: SeenStep) -> tuple[int, int] | None:
    """The steps after which parameters and optimizer of a resumed run were saved, where these differ."""

    def after(name: str) -> set[int]:
        wanted = getattr(first, name)
        return {i for i, step in enumerate(straight) if wanted and getattr(step, name) == wanted}

    weights, moments = after("weights"), after("moments")
    if not weights or not moments or weights & moments or not (max(weights) and max(moments)):
        return None  # what is as in the beginning was not restored from any save
    return max(weights), max(moments)


def _of_samples(straight: Sequence[SeenStep], resumed: Sequence[SeenStep], found: Comparison) -> Cause:
    assert found.first is not None
    at = found.after + found.first
    begin = _begin_of_epoch(straight, at)
    rest = resumed[found.first :]
    again = _where(straight, rest)
    if begin < at and begin in again:
        return Cause("loader position", "the samples are those that the epoch began with")
    for earlier in again:
        if (
            straight[earlier].epoch < straight[at].epoch
            and earlier - _begin_of_epoch(straight, earlier) == at - begin
        ):
            words = f"the samples come in the order of epoch {straight[earlier].epoch} again"
            return Cause("shuffle", words)
    near = [other for other in again if straight[other].epoch == straight[at].epoch]
    if near:
        moved = near[0] - at
        words = f"the samples are those of {abs(moved)} batch{'es' if abs(moved) > 1 else ''}"
        return Cause("loader position", f"{words} {'later' if moved > 0 else 'earlier'}")
    ahead = [step for step in straight[at:] if step.epoch == straight[at].epoch]
    before = {sample for step in straight[begin:at] for sample in step.samples}
    got = [sample for step in rest[: len(ahead)] for sample in step.samples]
    if before & set(got):
        words = "samples that this epoch had before the interruption come again, in another order"
        return Cause("loader position", words)
    wanted = [sample for step in ahead for sample in step.samples]
    whole = min(len(got), len(wanted))
    if sorted(got) == sorted(wanted) or (whole and set(got) <= set(wanted)):
        words = "the same samples come in another order"
    else:
        words = "other samples come"
    if "random" in found.restored:
        return Cause("random states", f"{words}, and the random states were others at the first resumed step")
    return Cause("sampler or generator state", words)


def _begin_of_epoch(straight: Sequence[SeenStep], at: int) -> int:
    while at and straight[at - 1].epoch == straight[at].epoch:
        at -= 1
    return at


def _where(straight: Sequence[SeenStep], rest: Sequence[SeenStep]) -> list[int]:
    """Indices of straight steps from which on the samples are those of `rest`, a few in a row."""
    wanted = [step.samples for step in rest[:_IN_A_ROW]]
    if not wanted or not wanted[0]:
        return []
    found = []
    for i in range(len(straight)):
        epoch = straight[i].epoch
        there = [s.samples for s in straight[i : i + len(wanted)] if s.epoch == epoch]
        if there and there == wanted[: len(there)]:
            found.append(i)
    return found
