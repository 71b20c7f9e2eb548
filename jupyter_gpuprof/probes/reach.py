"""Every object that can be reached from some objects, without asking any of them for anything."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

#: They lead to everything that is loaded.
_NOT_INTO = (types.ModuleType, type, types.FrameType, types.CodeType, types.BuiltinFunctionType)


def reachable(roots: Iterable[object], most: int = 1_000_000, seen: set[int] | None = None) -> Iterator[Any]:
    """The roots and what they hold, nearest first; no modules and classes, nor what only those hold.

    Args:
        roots: where to begin.
        most: stop after so many objects.
        seen: ids of objects to leave out; those that come are added. They must stay alive meanwhile.
    """
    seen = set() if seen is None else seen
    level = [root for root in roots if not isinstance(root, _NOT_INTO)]
    while level:
        following: list[object] = []
        for thing in level:
            if id(thing) in seen:
                continue
            if len(seen) >= most:
                return
            seen.add(id(thing))
            yield thing
            following.extend(_held(thing))
        level = following


def _held(thing: object) -> Iterator[object]:
    if isinstance(thing, types.FunctionType):  # not its globals
        held: Iterable[object] = (
            thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__,
        )  # fmt: skip
    else:
        held = gc.get_referents(thing)
    return (part for part in held if gc.is_tracked(part) and not issubclass(type(part), _NOT_INTO))
