"""From a live function or object to everything its result depends on: code, values, versions, and hazards.

Code of the person's own project is followed; of installed packages the version counts. Of an object only
those attributes count that the code reads: a logger or an id that it merely carries changes nothing.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from jupyter_gpuprof.analysis.codekey import Read, code_digest, reads_of
from jupyter_gpuprof.analysis.determinism import Hazard, Kind, draws, is_random_method, kind_of_call
from jupyter_gpuprof.probes.valuedigest import Unreadable, ValueDigest
from jupyter_gpuprof.session.cache.lookups import (
    C_FUNCTIONS,
    ENTRIES,
    NOTHING,
    attribute_of,
    entries_of,
    full_name,
    getter_of,
    holder_of,
    installed,
    place_of,
    python_method,
    version_of,
)
from jupyter_gpuprof.session.cache.watch import Watch

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event)
#: What else Python calls of an object that is handed on.
_OPERATORS = ("__len__", "__iter__", "__next__", "__contains__", "__getattr__", "__enter__")
#: Where a library's transforms draw.
_SCANNED = (*ENTRIES, "get_params", "make_params", "apply")


class CodeWalk:
    """Goes through code and what it reads, from what `follow` is given.

    Args:
        of_path: the identity of the file or folder that a text names; None if it names none.
        brief: leave out the content of data and files: what is done, not what it is done to.

    Attributes:
        parts: what the result depends on, and the digest or version of each.
        hazards: what gives something else each time.
        watched: (dictionary, name, value) of each variable and attribute that was read, to see changes.
    """

    def __init__(self, of_path: Callable[[str], bytes | None], *, brief: bool = False) -> None:
        self.parts: dict[str, str] = {}
        self.hazards: list[Hazard] = []
        self._watch = Watch()
        self.watched = self._watch.watched
        self._values = ValueDigest(self._stands_for, of_path, brief=brief)
        self._done: set[tuple[int, int]] = set()
        self._objects: dict[int, bytes] = {}
        self._alive: list[Any] = []  # so that no id is used twice
        self._labels: dict[str, list[Any]] = {}
        self._handed_on: list[tuple[Any, str]] = []  # objects with code, of which others may use any part
        self._asked: set[str] = set()  # attributes taken of local variables: whose they are is not known
        self._members: set[tuple[int, str]] = set()
        self._first: Any = None

    def follow(self, thing: Any, path: str) -> None:
        """Add a function, a method, or an object that is called or indexed.

        Args:
            thing: what.
            path: what to call it.
        """
        self._first = thing
        self._end(thing, path, "")
        before = -1
        while before != len(self._members):
            before = len(self._members)
            for held, where in tuple(self._handed_on):
                for name in (*_OPERATORS, *sorted(self._asked)):
                    self._member(held, name, where)

    def _member(self, thing: Any, name: str, path: str) -> None:
        """What somebody who was handed an object may use of it."""
        if (id(thing), name) in self._members:
            return
        self._members.add((id(thing), name))
        method = python_method(type(thing), name)
        if name in _OPERATORS:
            if method is not None and not installed(method.__module__):
                self._function(method, thing, path)
        elif method is not None or name in getattr(thing, "__dict__", ()) or hasattr(type(thing), name):
            self._chain(thing, path, (name,), "")

    def hazard(self, call: str, kind: Kind, place: str = "") -> None:
        """Add what gives something else each time, once."""
        if all(known.call != call for known in self.hazards):
            self.hazards.append(Hazard(call, kind, place))

    # -- code ------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, owner: Any, path: str) -> None:
        key = id(function), id(owner)
        if key in self._done:
            return
        self._done.add(key)
        self._alive += (function, owner)
        name = f"{function.__module__}.{function.__qualname__}"
        where = f"code {name}" + (f" of {path}" if owner is not None else "")
        label = self._label(where, function.__code__)
        if label is not None:
            self.parts[label] = code_digest(function.__code__)
        for place, value in enumerate(function.__defaults__ or ()):
            self._value(value, f"{name}, default {place}")
        for word, value in (function.__kwdefaults__ or {}).items():
            self._value(value, f"{name}, default {word}")
        reads = reads_of(function.__code__)
        moving = self._moving(function, owner, set()) if owner is not None else set()
        for read in reads.reads:
            if read.root == "global" and read.name in reads.sets_globals:
                self._moved(function.__globals__, read.name, read.name)
                self._asked.update(read.attributes)
            elif self._is_self(read, function, owner) and read.attributes and read.attributes[0] in moving:
                self._moved(getattr(owner, "__dict__", {}), read.attributes[0], path)
                self._asked.update(read.attributes[1:])
            else:
                self._read(read, function, owner, path)

    def _moved(self, held: dict[str, Any], name: str, path: str) -> None:
        """What the code sets itself: as it is now, unless that cannot be told (a file once it is open)."""
        value = held.get(name)
        label = self._label(f"now {path}.{name}", value)
        if label is not None:
            self.parts[label] = ""
            if value is not None and not isinstance(value, np.memmap):
                before = len(self.parts), len(self.hazards)
                try:
                    self.parts[label] = self._values.digest(value, f"{path}.{name}")
                except Unreadable:
                    for part in list(self.parts)[before[0] :]:
                        del self.parts[part]
                    del self.hazards[before[1] :]

    def _moving(self, function: types.FunctionType, owner: Any, seen: set[Any]) -> set[str]:
        """Attributes that the methods reached set themselves: files opened when needed, counters."""
        seen.add(function.__code__)
        reads = reads_of(function.__code__)
        me = function.__code__.co_varnames[:1]
        found = {attribute for name, attribute in reads.stores if (name,) == me}
        for read in reads.reads:
            if self._is_self(read, function, owner) and read.attributes:
                method = inspect.getattr_static(type(owner), read.attributes[0], None)
                method = getter_of(method) or method
                if isinstance(method, types.FunctionType) and method.__code__ not in seen:
                    found |= self._moving(method, owner, seen)
        return found

    def _is_self(self, read: Read, function: types.FunctionType, owner: Any) -> bool:
        code = function.__code__
        return owner is not None and read.root == "local" and (read.name,) == code.co_varnames[:1]

    def _read(self, read: Read, function: types.FunctionType, owner: Any, path: str) -> None:
        place = place_of(function, read.line)
        attributes = read.attributes
        if self._is_self(read, function, owner):
            if attributes:
                self._chain(owner, path, attributes, place)
            else:
                self._whole(owner, path)
        elif read.root == "local":
            self._asked.update(attributes)
            if attributes and is_random_method(attributes[-1]):
                self.hazard(f"{read.name}.{attributes[-1]}", "random", place)
        elif read.root == "super":
            self._super(function, owner, path, attributes)
        elif read.root == "import":
            module = sys.modules.get(read.name)
            if module is None:  # not yet imported, so by its name
                self._called(".".join((read.name, *attributes)), place)
            else:
                self._chain(module, read.name, attributes, place)
        else:
            holder = holder_of(read, function)
            if holder is None:
                self.parts[f"nothing {read.name}"] = "unbound"
                return
            value = holder[read.name]
            if read.root == "global":
                self._watch.name(holder, read.name, value)
            self._chain(value, read.name, attributes, place)

    def _super(
        self, function: types.FunctionType, owner: Any, path: str, attributes: tuple[str, ...]
    ) -> None:
        mine = [k for k in type(owner).__mro__ if function in vars(k).values()]
        following = type(owner).__mro__[type(owner).__mro__.index(mine[0]) + 1 :] if mine else ()
        for kind in following:
            method = vars(kind).get(attributes[0])
            method = getter_of(method) or getattr(method, "__func__", method)
            if isinstance(method, types.FunctionType) and not installed(method.__module__):
                self._function(method, owner, path)
                return
            if method is not None:
                self._version(kind.__module__)
                self._whole(owner, path)
                return

    def _chain(self, thing: Any, path: str, attributes: tuple[str, ...], place: str) -> None:
        """From a value along some attributes to what they end in."""
        name = full_name(thing)
        for nth, attribute in enumerate(attributes):
            if not isinstance(thing, types.ModuleType) and self._is_hazard(thing, name or path, place):
                return
            owner, thing = thing, attribute_of(thing, attribute)
            path, name = f"{path}.{attribute}", f"{name}.{attribute}" if name else ""
            if thing is NOTHING:
                self._called(name, place)
                if not isinstance(owner, types.ModuleType):
                    self._asked.update(attributes[nth:])
                    self._end(owner, path.rpartition(".")[0], place)
                return
            self._watch.attribute(owner, attribute)
            if isinstance(thing, (property, functools.cached_property)):
                self._asked.update(attributes[nth + 1 :])
                self._end(types.MethodType(getter_of(thing), owner), path, place)
                return
        if not self._is_hazard(thing, name or path, place):
            self._end(thing, path, place)

    def _is_hazard(self, thing: Any, name: str, place: str) -> bool:
        held = getattr(thing, "__self__", None)
        for each in (thing, held):
            kind = type(each)
            if draws(kind.__module__, kind.__qualname__):
                module = kind.__module__
                home = (module.rpartition(".")[0] or module) if each is held else ""
                call = f"{home}.{thing.__name__}" if home else name
                self.hazard(call, "random", place)
                return True
            if (kind.__module__, kind.__qualname__) == ("os", "_Environ"):
                self.hazard("os.environ", "environment", place)
                return True
        return self._called(name, place) or self._called(full_name(thing), place)

    def _called(self, name: str, place: str) -> bool:
        kind = kind_of_call(name)
        if kind is not None:
            self.hazard(name, kind, place)
        return kind is not None

    # -- what reads end in -------------------------------------------------------------------------

    def _end(self, thing: Any, path: str, place: str) -> None:
        wrapped = getattr(thing, "__wrapped__", None)
        if wrapped is not None and not isinstance(thing, types.ModuleType):
            bound = isinstance(thing, types.MethodType) and not isinstance(wrapped, types.MethodType)
            self._end(types.MethodType(wrapped, thing.__self__) if bound else wrapped, path, place)
            if not isinstance(getattr(thing, "__func__", thing), types.FunctionType):
                return
        if isinstance(thing, types.MethodType):
            owner, function = thing.__self__, thing.__func__
            where = path.rpartition(".")[0] or path
            if not isinstance(function, types.FunctionType):
                self._end(function, path, place)
            elif installed(function.__module__):
                self._version(function.__module__)
                self._whole(owner, where)
            else:
                self._function(function, owner, where)
        elif isinstance(thing, types.FunctionType):
            if installed(thing.__module__):
                self._library(thing, path)
            else:
                self._function(thing, None, path)
            registry = getattr(thing, "registry", None)  # of functools.singledispatch
            if isinstance(registry, types.MappingProxyType):
                for each in registry.values():
                    self._end(each, path, "")
        elif isinstance(thing, type):
            self._class(thing, path)
        elif isinstance(thing, types.ModuleType):
            self._version(thing.__name__)
        elif isinstance(thing, C_FUNCTIONS):
            held = getattr(thing, "__self__", None)
            if held is not None and not isinstance(held, (types.ModuleType, type)):
                self._value(held, path.rpartition(".")[0] or path)
            else:
                self._version(getattr(thing, "__module__", None) or "")
        else:
            self._value(thing, path)

    def _library(self, function: types.FunctionType, path: str) -> None:
        """A library's function; one that it made for the person's function calls that."""
        self._version(function.__module__)
        if (id(function), 0) in self._done:
            return
        self._done.add((id(function), 0))
        self._alive.append(function)
        for cell in function.__closure__ or ():
            with suppress(ValueError):
                if isinstance(cell.cell_contents, (types.FunctionType, types.MethodType)):
                    self._end(cell.cell_contents, path, "")

    def _class(self, kind: type, path: str) -> None:
        if installed(kind.__module__):
            self._version(kind.__module__)
            return
        for each in kind.__mro__:
            if installed(each.__module__):
                self._version(each.__module__)
                continue
            for name, value in vars(each).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, types.FunctionType):
                    self._function(function, None, path)
                elif not name.startswith("__") and not isinstance(function, C_FUNCTIONS):
                    self._value(value, f"{path}.{name}")

    def _label(self, label: str, thing: Any) -> str | None:
        """The name of a part, numbered where it is taken by something else; None for the same thing again."""
        known = self._labels.setdefault(label, [])
        if any(each is thing for each in known):
            return None
        known.append(thing)
        return label if len(known) == 1 else f"{label} #{len(known)}"

    def _value(self, value: Any, path: str) -> None:
        label = self._label(f"value {path}", value)
        if label is not None:
            self._put(label, value, path, lambda: self._values.digest(value, path))

    def _whole(self, owner: Any, path: str) -> None:
        """An object that goes somewhere as a whole: also what its own code does not read."""
        if not entries_of(type(owner)):
            self._value(owner, path)
            return
        label = self._label(f"state {path}", owner)
        if label is None:
            return
        moving: set[str] = set()
        for method in entries_of(type(owner)):
            moving |= self._moving(method, owner, set())
        self._handed_on.append((owner, path))
        self._put(label, owner, path, lambda: self._values.state(owner, path, without=moving).hex())
        held = getattr(owner, "__dict__", {})
        for name, value in held.items():
            if name not in moving:
                self._watch.name(held, name, value)

    def _put(self, label: str, value: Any, path: str, digest: Callable[[], str]) -> None:
        self.parts[label] = ""
        try:
            self.parts[label] = digest()
        except Unreadable as error:
            self.hazard(str(error), "unknown")
            self.parts[label] = f"a {type(value).__qualname__}"

    def _stands_for(self, thing: Any, path: str) -> bytes | None:
        """Of things with code of their own; None to have the state of all others looked at."""
        kind = type(thing)
        if isinstance(thing, (logging.Logger, logging.LoggerAdapter, *_LOCKS)):
            return kind.__qualname__.encode()
        code = (type, types.FunctionType, types.MethodType, types.ModuleType, *C_FUNCTIONS)
        if isinstance(thing, code):
            if not self._is_hazard(thing, full_name(thing) or path, ""):
                self._end(thing, path, "")
            return (full_name(thing) or kind.__qualname__).encode()
        if isinstance(thing, functools.partial):
            for part, name in ((thing.func, "func"), (thing.args, "args"), (thing.keywords, "keywords")):
                self._value(part, f"{path}.{name}")
            return b"partial"
        if self._is_hazard(thing, path, ""):
            return b"hazard"
        if id(thing) in self._objects:
            return self._objects[id(thing)]
        self._objects[id(thing)] = f"object {path}".encode()
        self._alive.append(thing)
        own = entries_of(kind)
        if own:
            if thing is not self._first:
                self._handed_on.append((thing, path))
            for method in own:
                self._function(method, thing, path)
            return f"{kind.__module__}.{kind.__qualname__}".encode()
        if installed(kind.__module__):
            self._version(kind.__module__)
            self._scan(thing, kind, [m for n in _SCANNED if (m := python_method(kind, n))])
        else:
            self._class(kind, path)
        return None

    def _scan(self, thing: Any, kind: type, methods: list[Any]) -> None:
        """A library's own transforms: only what they draw, not what they are."""
        for method in methods:
            for read in reads_of(method.__code__).reads:
                holder = holder_of(read, method) if read.root == "global" else None
                name = full_name(holder[read.name]) if holder is not None else ""
                full = ".".join((name, *read.attributes))
                found = kind_of_call(full) if name else None
                if found == "random" or (read.attributes and is_random_method(read.attributes[-1])):
                    self.hazard(kind.__qualname__, "random")

    def _version(self, module: str) -> None:
        package = module.partition(".")[0]
        if package and package not in ("builtins", "jupyter_gpuprof"):
            self.parts[f"version {package}"] = version_of(package)
