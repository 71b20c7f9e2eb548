"""Whether results can be kept, and under which key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.determinism import Hazard
from jupyter_gpuprof.errors import CacheRefused
from jupyter_gpuprof.probes.drawing import drawn_by, states_kept
from jupyter_gpuprof.probes.itemlayout import Packed, pack
from jupyter_gpuprof.session.cache.codewalk import CodeWalk
from jupyter_gpuprof.store.derivedinputs import identity_by_content, identity_by_status

#: Raised whenever results are written differently, or a key is made differently.
FORMAT = 2
#: So many results are computed twice before anything is kept.
SAMPLES = 8
_MARK = "Mark it with deterministic=True if it is meant to be kept."


@dataclass(frozen=True)
class Plan:
    """What results depend on.

    Args:
        name: of the function or data set.
        parts: what they depend on, with its digest or version.
        hazards: what gives something else each time, by the code.
        watched: what was read, to see when it changes: (dictionary, name, value).
    """

    name: str
    parts: dict[str, str]
    hazards: tuple[Hazard, ...] = ()
    watched: tuple[tuple[Mapping[str, Any], str, Any], ...] = field(default=(), repr=False, compare=False)

    @property
    def key(self) -> str:
        """The digest of all parts and of the cache's format."""
        found = hashlib.sha256(f"format {FORMAT}".encode())
        for name, digest in sorted(self.parts.items()):
            found.update(f"\0{name}\0{digest}".encode("utf-8", "surrogatepass"))
        return found.hexdigest()[:40]

    @property
    def is_current(self) -> bool:
        """Whether every variable and attribute that was read still holds the same object."""
        for held, name, value in self.watched:  # noqa: SIM110  asked at each read
            if held.get(name) is not value:
                return False
        return True

    def refuse_hazards(self, hint: str = "") -> None:
        """Raise for what gives something else each time.

        Raises:
            CacheRefused: naming the call.
        """
        if self.hazards:
            first, more = self.hazards[0], len(self.hazards) - 1
            others = f" (and {more} more)" if more else ""
            raise CacheRefused(f"{self.name} cannot be cached: {first}{others}.", hint or _MARK)


def plan_of(thing: Any, name: str, *, by_content: bool = False, brief: bool = False) -> Plan:
    """The plan of a function, or of an object that is called or indexed.

    Args:
        thing: what is called or indexed.
        name: what to call it.
        by_content: tell files by their content, not by path, size and date.
        brief: leave out the content of data and files.
    """
    walk = CodeWalk(identity_by_content if by_content else identity_by_status, brief=brief)
    walk.follow(thing, name)
    return Plan(name, walk.parts, tuple(walk.hazards), tuple(walk.watched))


def inside_of(thing: Any, name: str) -> dict[str, str]:
    """What its results depend on in this process: no files, and nothing that its code sets itself.

    Args:
        thing: what is called or indexed.
        name: what to call it.
    """
    walk = CodeWalk(lambda text: None)
    walk.follow(thing, name)
    return {part: digest for part, digest in walk.parts.items() if not part.startswith("now ")}


def check_twice(name: str, compute: Callable[[int], Any], numbers: Sequence[int], hint: str = "") -> float:
    """Compute some results twice, from different seeds, and compare.

    Args:
        name: what is checked.
        compute: gives the result of a number.
        numbers: which.
        hint: what to do if they differ.

    Returns:
        Mean seconds that a result takes.

    Raises:
        CacheRefused: random numbers were drawn, the results differ, or are no plain data.
    """
    began_s = clock.now_s()
    with states_kept():
        first, drew = drawn_by(lambda: [_packed(compute, n) for n in numbers], 1)
        item_s = (clock.now_s() - began_s) / max(1, len(numbers))
        second, _ = drawn_by(lambda: [_packed(compute, n) for n in numbers], 2)
    if drew:
        raise CacheRefused(f"{name} cannot be cached: it draws random numbers from {drew[0]}.", hint or _MARK)
    for number, one, other in zip(numbers, first, second, strict=True):
        if one != other:
            raise CacheRefused(
                f"{name} cannot be cached: result {number} was another one when it was computed again.",
                hint or _MARK,
            )
    return item_s


def _packed(compute: Callable[[int], Any], number: int) -> Packed:
    return pack(compute(number))


def spread(count: int) -> list[int]:
    """Some numbers below `count`, evenly spread."""
    return (
        sorted({i * count // SAMPLES for i in range(min(count, SAMPLES))})
        if count > SAMPLES
        else list(range(count))
    )


def name_of(thing: Any) -> str:
    """What to call a function or an object."""
    name = getattr(thing, "__qualname__", "") or type(thing).__qualname__
    return name.replace(".<locals>", "") if isinstance(name, str) else type(thing).__qualname__
