"""Two trails of the same loop, one of them resumed: where it went on, and where it differs first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_gpuprof.records.resumeaudit import SeenStep

#: What a loop shows at a step, in the order in which one thing leads to the next.
VISIBLE = ("samples", "rates", "content", "losses")
#: What was digested beside it, as evidence.
HIDDEN = ("weights", "moments", "random")


@dataclass(frozen=True)
class Comparison:
    """A resumed trail against the straight one.

    Args:
        after: the step after which it went on, as far as that can be told.
        compared: steps that both have.
        first: the index of the first resumed step that differs; None if none does.
        differs: which of `VISIBLE` differ there.
        restored: which of `HIDDEN` differ at the first resumed step, before it changed anything.
    """

    after: int
    compared: int
    first: int | None
    differs: tuple[str, ...]
    restored: tuple[str, ...]


def repeatable(one: Sequence[SeenStep], other: Sequence[SeenStep]) -> frozenset[str]:
    """What two straight runs agree on at each step: nothing else can be asked of a resumed one."""
    pairs = list(zip(one, other, strict=False))
    return frozenset(name for name in VISIBLE + HIDDEN if all(same(name, a, b) for a, b in pairs))


def same(name: str, a: SeenStep, b: SeenStep) -> bool:
    """Whether two steps agree in one thing; what is not known of one of them does not differ."""
    if name == "samples" and a.indexed != b.indexed:
        return True
    left, right = getattr(a, name), getattr(b, name)
    return not left or not right or bool(left == right)


def differing(names: Iterable[str], a: SeenStep, b: SeenStep) -> tuple[str, ...]:
    """Those of the names in which two steps differ; other samples have another content anyhow."""
    found = [name for name in names if not same(name, a, b)]
    return tuple(name for name in found if name != "content" or "samples" not in found)


def compare_trails(
    straight: Sequence[SeenStep],
    resumed: Sequence[SeenStep],
    asked: frozenset[str],
    candidates: Sequence[int],
) -> Comparison:
    """Find out after which step the resumed trail went on, and compare.

    The most likely is the candidate after which nothing differs; else the one whose next step agrees in most;
    of several, the latest.

    Args:
        straight: all steps of the straight run.
        resumed: those of the resumed process.
        asked: what can be compared (`repeatable`).
        candidates: steps after which it may have gone on; 0 is the beginning.
    """
    best = max(sorted(candidates), key=lambda after: _likeness(straight, resumed, asked, after))
    visible = [name for name in VISIBLE if name in asked]
    pairs = list(zip(straight[best:], resumed, strict=False))
    first, differs = None, tuple[str, ...]()
    for index, (a, b) in enumerate(pairs):
        if differs := differing(visible, a, b):
            first = index
            break
    hidden = [name for name in HIDDEN if name in asked]
    restored = differing(hidden, *pairs[0]) if pairs else ()
    return Comparison(best, len(pairs), first, differs, restored)


def _likeness(
    straight: Sequence[SeenStep], resumed: Sequence[SeenStep], asked: frozenset[str], after: int
) -> tuple[int, int, int]:
    pairs = list(zip(straight[after:], resumed, strict=False))
    if not pairs:
        return -1, 0, after
    visible = [name for name in VISIBLE if name in asked]
    whole = not any(differing(visible, a, b) for a, b in pairs)
    state = [name for name in ("samples", "rates", "weights", "moments") if name in asked]
    return int(whole), len(state) - len(differing(state, *pairs[0])), after
