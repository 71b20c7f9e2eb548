"""What interruptions of a loop showed: identical, or the first step that differs and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.analysis.resumecause import Cause, causes_of, mixed_saves, only_augmentation
from jupyter_gpuprof.analysis.resumecompare import Comparison, compare_trails
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.resumeaudit import Case, CaseOutcome, SeenStep

_SEEN = {
    "samples": "samples",
    "rates": "learning rate",
    "content": "content of the samples",
    "losses": "loss",
}
NOTHING_SAVED = "nothing had been saved when it was interrupted"
_UNKNOWN = Missing("it did not go on")


@dataclass(frozen=True)
class Straight:
    """The run that nobody interrupted.

    Args:
        steps: what it did.
        asked: what of them is the same in a second one (`jupyter_gpuprof.analysis.resumecompare.repeatable`).
        ended: whether the loop came to its own end.
    """

    steps: tuple[SeenStep, ...]
    asked: frozenset[str]
    ended: bool


@dataclass(frozen=True)
class Resumed:
    """A process that went on after an interruption.

    Args:
        steps: what it did.
        error: what it ended with, where that is an error of the cell.
        ended: whether the loop came to its own end.
        after: the step that was saved last, where that is known.
    """

    steps: tuple[SeenStep, ...]
    error: str = ""
    ended: bool = False
    after: int | None = None


@dataclass(frozen=True)
class WriteKill:
    """An interruption in the middle of a save.

    Args:
        what: what was about to happen to `path` ("open", "rename", "remove"), or had in part, if `cut`.
        path: the file.
        cut: whether half of the file was written.
        removed: whether this save had taken something away before.
    """

    what: str
    path: str
    cut: bool
    removed: bool


def conclude_case(
    name: str,
    kills: tuple[str, ...],
    straight: Straight,
    made: int,
    resumed: Sequence[Resumed],
    *,
    wrote: bool = True,
    in_save: WriteKill | None = None,
) -> Case:
    """Compare what went on after each interruption with the straight run.

    Args:
        name: of the case.
        kills: the interruptions in words.
        straight: the straight run.
        made: steps that the first process made.
        resumed: the processes after each of the interruptions.
        wrote: whether the first process had written anything before it was interrupted.
        in_save: where in a save the (one) interruption came.
    """
    outcome: CaseOutcome = "identical"
    after, compared, words = 0, 0, ""
    for number, one in enumerate(resumed):

        def differs(cause: Cause, found: Comparison | None, more: str = "", number: int = number) -> Case:
            return _different(name, kills, straight, found, cause, more, number)

        if not one.steps and made == len(straight.steps) and straight.ended and not one.error:
            after = made
            continue  # all was done
        if not one.steps:
            what = f"the resumed run failed: {one.error}" if one.error else "the resumed run made no step"
            return differs(_write_cause(in_save, what) or Cause("resuming", what), None)
        known = (
            range(made + 2) if one.after is None else [one.after]
        )  # the last save may be of a step not over
        found = compare_trails(straight.steps, one.steps, straight.asked, known)
        if found.after == 0 and found.first is None and made > 0:
            if not wrote:
                words = f"Not tested: {NOTHING_SAVED}, so it began anew."
                return Case(name, kills, 0, 0, "not tested", sentence=words)
            what = "it began anew, though it had saved"
            return differs(_write_cause(in_save, what) or Cause("resuming", what), found)
        if only_augmentation(straight.steps, one.steps, found):
            outcome = "order identical, augmentation differs"
        elif found.first is not None:
            mixed = mixed_saves(straight.steps, one.steps[0]) if in_save else None
            if mixed:
                what = (
                    f"parameters are those after step {mixed[0]}, the optimizer is that after step {mixed[1]}"
                )
                return differs(Cause("parts of two saves", what), found)
            if in_save and in_save.cut and "weights" in found.restored:
                return differs(
                    Cause("half-written file", f"{in_save.path} was read though half of it"), found
                )
            first, *others = causes_of(straight.steps, one.steps, found)
            return differs(first, found, "".join(f"; {other.words}" for other in others))
        if one.error:
            return differs(Cause("resuming", f"the resumed run failed: {one.error}"), found)
        if one.ended and found.after + len(one.steps) < len(straight.steps):
            what = (
                f"the resumed run ended after step {found.after + len(one.steps)}, the straight one did not"
            )
            return differs(Cause("resuming", what), found)
        if straight.ended and found.after + len(one.steps) > len(straight.steps):
            what = f"the straight run ended after step {len(straight.steps)}, the resumed one went on"
            return differs(Cause("resuming", what), found)
        made, after, compared = found.after + len(one.steps), found.after, compared + found.compared
    if outcome == "identical":
        words = f"Identical: it went on after step {after}, {_counted(compared)} compared."
    else:
        words = (
            f"Order identical, augmentation differs: it went on after step {after}, and what is drawn at "
            "random for the samples is not what it would have been."
        )
    return Case(name, kills, after, compared, outcome, sentence=words)


def conclude_audit(cases: Sequence[Case], straight: Straight) -> tuple[CaseOutcome, str]:
    """The outcome of all cases together, and what follows in one sentence."""
    failed = [case for case in cases if case.outcome == "differs"]
    tested = [case for case in cases if case.outcome not in ("differs", "not tested")]
    if failed:
        first = failed[0]
        count = f"{len(failed)} of {len(failed) + len(tested)} interruptions"
        return (
            "differs",
            f"{count} did not go on as the straight run. Interrupted {first.name}: {first.sentence}",
        )
    if not tested:
        words = (
            f"Cannot tell: {NOTHING_SAVED}. Let the loop save more often, or name functions with --save "
            "and --load."
        )
        return "not tested", words
    short = ""
    if not straight.ended and straight.steps[0].epoch == straight.steps[-1].epoch:
        short = f" No epoch ended within {len(straight.steps)} steps: what happens at its end was not tried."
    if any(case.outcome != "identical" for case in tested):
        return (
            "order identical, augmentation differs",
            f"Order identical, augmentation differs: after {len(tested)} ways of being interrupted the run "
            f"saw the same samples at the same learning rates, and other random draws for some.{short}",
        )
    what = ", ".join(_SEEN[name] for name in ("samples", "rates", "losses") if name in straight.asked)
    return "identical", (
        f"Identical: after {len(tested)} ways of being interrupted the run went on as the straight one "
        f"({what} of each step).{short}"
    )


def _different(
    name: str,
    kills: tuple[str, ...],
    straight: Straight,
    found: Comparison | None,
    cause: Cause,
    more: str,
    number: int,
) -> Case:
    missing = cause.missing
    second = ""
    if number:
        second, missing = "The first resume went on right, the second did not. ", "second resume"
    if found is None:
        return Case(
            name, kills, _UNKNOWN, 0, "differs", _UNKNOWN, (), missing,
            f"{second}{_capital(cause.words)}{_likely(cause)}.",
        )  # fmt: skip
    if found.first is None:
        return Case(
            name, kills, found.after, found.compared, "differs", Missing("no step differs"), (), missing,
            f"{second}{_capital(cause.words)}{_likely(cause)}.",
        )  # fmt: skip
    step = found.after + found.first + 1
    here = straight.steps[step - 1]
    begin = next(i for i, other in enumerate(straight.steps) if other.epoch == here.epoch)
    words = (
        f"The first step that differs is {step} (epoch {here.epoch}, batch {step - 1 - begin}) in its "
        f"{_and([_SEEN[name] for name in found.differs])}: {cause.words}{more}{_likely(cause)}."
    )
    return Case(
        name, kills, found.after, found.compared, "differs", step, found.differs, missing, second + words
    )


def _likely(cause: Cause) -> str:
    """What the evidence makes likely; some evidence is the finding itself."""
    words = {
        "loader position": "the position in the loader is likely missing",
        "shuffle": "the sampler's epoch or the random state it draws from is likely missing",
        "sampler or generator state": "the state of the sampler, or of its generator, is likely missing",
        "random states": "the random states are likely missing",
        "augmentation's random state": "the random state that augments is likely missing",
        "learning rate schedule": "the state of the schedule is likely missing",
        "model": "a part of the model's state is likely missing",
        "optimizer": "the optimizer's state is likely missing",
        "unknown": "what is missing cannot be told: a buffer, a scaler, or a variable of yours",
        "half-written file": "write to a temporary file, flush it, and rename it",
        "pointer before data": "write what points to the newest checkpoint last",
        "removed before written": "remove older checkpoints last",
        "parts of two saves": "write all files under a new name, and what points to them last",
    }.get(cause.missing, "")
    return f"; {words}" if words else ""


def _write_cause(kill: WriteKill | None, what: str) -> Cause | None:
    if kill is None:
        return None
    if kill.cut:
        return Cause("half-written file", f"half of {kill.path} was written, and {what}")
    if kill.removed:
        words = f"the save took something away before {kill.path} was written, and {what}"
        return Cause("removed before written", words)
    words = (
        f"the file {kill.path} was not written yet, and {what}: what was written before likely leads there"
    )
    return Cause("pointer before data", words)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _counted(steps: int) -> str:
    return f"{steps} step{'' if steps == 1 else 's'}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
