"""Which variables and attributes were read, and what they held, to see when they get another object."""

from __future__ import annotations

import builtins
import types
from collections.abc import Mapping
from typing import Any

from jupyter_gpuprof.session.cache.lookups import installed


class Watch:
    """What was read, each once.

    Attributes:
        watched: (dictionary, name, value).
    """

    def __init__(self) -> None:
        self.watched: list[tuple[Mapping[str, Any], str, Any]] = []
        self._known: set[tuple[int, str]] = set()
        self._classes: dict[type, Mapping[str, Any]] = {}

    def name(self, held: Mapping[str, Any], name: str, value: Any) -> None:
        """A name in a dictionary, and what it holds now."""
        if held is not vars(builtins) and (id(held), name) not in self._known:
            self._known.add((id(held), name))
            self.watched.append((held, name, value))

    def attribute(self, owner: Any, name: str) -> None:
        """An attribute of an object, and of its classes where they have it."""
        held = getattr(owner, "__dict__", None)
        if type(held) is dict:
            self.name(held, name, held.get(name))
        if isinstance(owner, types.ModuleType) or (held is not None and name in held):
            return
        for kind in getattr(owner, "__mro__", type(owner).__mro__):
            if name in vars(kind) and not installed(kind.__module__):
                self._classes.setdefault(kind, vars(kind))
                self.name(self._classes[kind], name, vars(kind)[name])
                return
