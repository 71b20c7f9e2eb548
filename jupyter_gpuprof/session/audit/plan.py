"""When an audit interrupts a loop, chosen from its straight run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from jupyter_gpuprof.analysis.resumeaudit import WriteKill
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.resumeaudit import SeenStep
from jupyter_gpuprof.session.audit.task import Write


@dataclass(frozen=True)
class Kill:
    """An interruption after so many steps of the run, or, if `write` is set, before that many files."""

    after: int
    how: str = "SIGKILL"
    write: int = 0
    in_save: WriteKill | None = None


@dataclass(frozen=True)
class Planned:
    """One case: its name, its interruptions in order, and what is changed for it."""

    name: str
    kills: tuple[Kill, ...]
    settings: tuple[str, ...] = ()


def epoch_steps(steps: Sequence[SeenStep], ended: bool) -> Number:
    """Steps of the first epoch."""
    first = sum(step.epoch == steps[0].epoch for step in steps)
    if first == len(steps) and not ended:
        return Missing(f"no epoch ended within {first} steps")
    return first


def planned(steps: int, epoch: Number, ended: bool, has_workers: bool) -> tuple[list[Planned], list[str]]:
    """The cases that the straight run is long enough for, and what it was too short for.

    Args:
        steps: of the straight run.
        epoch: steps of its first epoch.
        ended: whether the loop came to its own end.
        has_workers: whether the cell's own loader has workers.
    """
    length = steps if isinstance(epoch, Missing) else int(epoch)
    middle, third = max(1, length // 2), max(1, length // 3)
    cases = [Planned("in the middle of epoch 0", (Kill(middle),))]
    left = []
    if isinstance(epoch, Missing):
        left.append(f"An epoch's end and the next epoch were not tried: {epoch.reason}.")
    elif steps <= length:
        left.append("An epoch's end and the next epoch were not tried: the loop ends after one epoch.")
    else:
        cases.append(Planned("exactly at the end of epoch 0", (Kill(length),)))
    in_second = not isinstance(epoch, Missing) and steps > length + middle
    late = length + middle if in_second else middle
    if in_second:
        cases.append(Planned("in the middle of epoch 1", (Kill(late, "SIGTERM"),)))
    second = max(third + 1, 2 * length // 3)
    if second < steps:
        cases.append(Planned("twice within epoch 0", (Kill(third, "SIGTERM"), Kill(second))))
    else:
        left.append(f"Two interruptions of an epoch were not tried: it has {length} steps.")
    if not has_workers:
        cases.append(Planned("with 2 loader workers", (Kill(late, "SIGTERM"),), ("num_workers=2",)))
    return cases, left


def write_kills(writes: Sequence[Write], made: int) -> list[Planned]:
    """Interruptions in the middle of the last save of a process, if it is not the first.

    A file is cut in half as a kill in the middle of writing it would leave it; or the kill comes before the
    second, or the last, thing that the save does.

    Args:
        writes: what the process wrote, in order.
        made: the steps that it made.
    """
    saves = sorted({write.steps for write in writes if write.steps})
    if len(saves) < 2:
        return []
    numbers = [i for i, write in enumerate(writes, start=1) if write.steps == saves[-1]]
    opened = [i for i in numbers if writes[i - 1].what == "open"]
    found: dict[tuple[int, bool], None] = {}
    for number in (*opened[:1], *opened[-1:]):
        found[number, True] = None
    for number in (*numbers[1:2], *numbers[-1:]):
        found[number, False] = None
    cases = []
    for number, cut in found:
        write = writes[number - 1]
        removed = any(writes[i - 1].what in ("remove", "rmdir") for i in numbers if i < number)
        kill = WriteKill(write.what, write.path, cut, removed)
        where = (
            "writing"
            if cut
            else {"open": "before writing", "rename": "before renaming"}.get(
                write.what, f"before the {write.what} of"
            )
        )
        at = number + 1 if cut and number < len(writes) else (0 if cut else number)
        name = f"while it saves, {where} {PurePath(write.path).name}"
        cases.append(Planned(name, (Kill(saves[-1] if at else made, write=at, in_save=kill),)))
    return cases
