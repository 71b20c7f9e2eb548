"""From a live function or object to everything its result depends on: code, values, versions, and hazards.

Code of the person's own project is followed; of installed packages the version counts. Of an object only
those attributes count that the code reads: a logger or an id that it merely carries changes nothing.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import logging
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jupyter_gpuprof.analysis.codekey import Read, code_digest, reads_of
from jupyter_gpuprof.analysis.determinism import Hazard, Kind, draws, is_random_method, kind_of_call
from jupyter_gpuprof.probes.valuedigest import Unreadable, ValueDigest

_INSTALLED = tuple(
    os.path.join(os.path.realpath(path), "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event)
#: What an object does when it is used as a data set or a transform.
_ENTRIES = ("__call__", "forward", "__getitem__")
#: Where a library's transforms draw.
_SCANNED = (*_ENTRIES, "get_params", "make_params", "apply")
_C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    np.ufunc,
)


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
        self.watched: list[tuple[dict[str, Any], str, Any]] = []
        self._values = ValueDigest(self._stands_for, of_path, brief=brief)
        self._done: dict[tuple[Any, int], str] = {}
        self._objects: dict[int, bytes] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def follow(self, thing: Any, path: str) -> None:
        """Add a function, a method, or an object that is called or indexed.

        Args:
            thing: what.
            path: what to call it.
        """
        self._end(thing, path, "")

    def hazard(self, call: str, kind: Kind, place: str = "") -> None:
        """Add what gives something else each time, once."""
        if all(known.call != call for known in self.hazards):
            self.hazards.append(Hazard(call, kind, place))

    # -- code ------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType, owner: Any, path: str) -> None:
        key = function.__code__, id(owner)
        if key in self._done:
            return
        self._done[key] = path
        self._alive.append(owner)
        name = f"{function.__module__}.{function.__qualname__}"
        where = f"code {name}" + (f" of {path}" if owner is not None else "")
        self.parts[where] = code_digest(function.__code__)
        for place, value in enumerate(function.__defaults__ or ()):
            self._value(value, f"{name}, default {place}")
        for word, value in (function.__kwdefaults__ or {}).items():
            self._value(value, f"{name}, default {word}")
        reads = reads_of(function.__code__)
        moving = self._moving(function, owner, set()) if owner is not None else set()
        for read in reads.reads:
            if read.root == "global" and read.name in reads.sets_globals:
                continue
            if self._is_self(read, function, owner) and read.attributes and read.attributes[0] in moving:
                continue
            self._read(read, function, owner, path)

    def _moving(self, function: types.FunctionType, owner: Any, seen: set[Any]) -> set[str]:
        """Attributes that the methods reached set themselves: files opened when needed, counters."""
        seen.add(function.__code__)
        reads = reads_of(function.__code__)
        me = function.__code__.co_varnames[:1]
        found = {attribute for name, attribute in reads.stores if (name,) == me}
        for read in reads.reads:
            if self._is_self(read, function, owner) and read.attributes:
                method = inspect.getattr_static(type(owner), read.attributes[0], None)
                method = method.fget if isinstance(method, property) else method
                if isinstance(method, types.FunctionType) and method.__code__ not in seen:
                    found |= self._moving(method, owner, seen)
        return found

    def _is_self(self, read: Read, function: types.FunctionType, owner: Any) -> bool:
        code = function.__code__
        return owner is not None and read.root == "local" and (read.name,) == code.co_varnames[:1]

    def _read(self, read: Read, function: types.FunctionType, owner: Any, path: str) -> None:
        place = _place(function, read.line)
        attributes = read.attributes
        if self._is_self(read, function, owner):
            if attributes:
                self._chain(owner, path, attributes, place)
            else:  # it goes somewhere as a whole
                self._value(owner, path)
        elif read.root == "local":
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
            holder = _holder(read, function)
            if holder is None:
                self.parts[f"nothing {read.name}"] = "unbound"
                return
            value = holder[read.name]
            if read.root == "global":
                self._watch(holder, read.name, value)
            self._chain(value, read.name, attributes, place)

    def _super(
        self, function: types.FunctionType, owner: Any, path: str, attributes: tuple[str, ...]
    ) -> None:
        mine = [k for k in type(owner).__mro__ if function in vars(k).values()]
        following = type(owner).__mro__[type(owner).__mro__.index(mine[0]) + 1 :] if mine else ()
        for kind in following:
            method = vars(kind).get(attributes[0])
            if isinstance(method, types.FunctionType):
                if not _installed(method.__module__):
                    self._function(method, owner, path)
                return

    def _chain(self, thing: Any, path: str, attributes: Iterable[str], place: str) -> None:
        """From a value along some attributes to what they end in."""
        name = _full_name(thing)
        for attribute in attributes:
            if not isinstance(thing, types.ModuleType) and self._is_hazard(thing, name or path, place):
                return
            owner, thing = thing, _attribute(thing, attribute)
            path, name = f"{path}.{attribute}", f"{name}.{attribute}" if name else ""
            if thing is _NOTHING:
                self._called(name, place)
                if not isinstance(owner, types.ModuleType):
                    self._end(owner, path.rpartition(".")[0], place)
                return
            held = getattr(owner, "__dict__", None)
            if type(held) is dict and attribute in held and not isinstance(owner, types.ModuleType):
                self._watch(held, attribute, thing)
            if isinstance(thing, property):
                if isinstance(thing.fget, types.FunctionType) and not _installed(thing.fget.__module__):
                    self._function(thing.fget, owner, path.rpartition(".")[0])
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
        return self._called(name, place) or self._called(_full_name(thing), place)

    def _called(self, name: str, place: str) -> bool:
        kind = kind_of_call(name)
        if kind is not None:
            self.hazard(name, kind, place)
        return kind is not None

    # -- what reads end in -------------------------------------------------------------------------

    def _end(self, thing: Any, path: str, place: str) -> None:
        wrapped = getattr(thing, "__wrapped__", None)
        if wrapped is not None and not isinstance(thing, types.ModuleType):
            self._end(wrapped, path, place)
            if not isinstance(thing, types.FunctionType):
                return
        if isinstance(thing, types.MethodType):
            owner, function = thing.__self__, thing.__func__
            where = path.rpartition(".")[0] or path
            if isinstance(owner, type) or not isinstance(function, types.FunctionType):
                self._end(function, path, place)
            elif _installed(function.__module__):
                self._value(owner, where)
            else:
                self._function(function, owner, where)
        elif isinstance(thing, types.FunctionType):
            if _installed(thing.__module__):
                self._version(thing.__module__)
            else:
                self._function(thing, None, path)
        elif isinstance(thing, type):
            self._class(thing, path)
        elif isinstance(thing, types.ModuleType):
            self._version(thing.__name__)
        elif isinstance(thing, _C_FUNCTIONS):
            held = getattr(thing, "__self__", None)
            if held is not None and not isinstance(held, (types.ModuleType, type)):
                self._value(held, path.rpartition(".")[0] or path)
            else:
                self._version(getattr(thing, "__module__", None) or "")
        else:
            self._value(thing, path)

    def _class(self, kind: type, path: str) -> None:
        if _installed(kind.__module__):
            self._version(kind.__module__)
            return
        for each in kind.__mro__:
            if _installed(each.__module__):
                self._version(each.__module__)
                continue
            for name, value in vars(each).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(function, types.FunctionType):
                    self._function(function, None, path)
                elif not name.startswith("__") and not isinstance(function, _C_FUNCTIONS):
                    self._value(value, f"{path}.{name}")

    def _value(self, value: Any, path: str) -> None:
        label = f"value {path}"
        if label in self.parts:
            return
        self.parts[label] = ""
        try:
            self.parts[label] = self._values.digest(value, path)
        except Unreadable as error:
            self.hazard(str(error), "unknown")
            self.parts[label] = f"a {type(value).__qualname__}"

    def _stands_for(self, thing: Any, path: str) -> bytes | None:
        """Of things with code of their own; None to have the state of all others looked at."""
        kind = type(thing)
        if isinstance(thing, (logging.Logger, logging.LoggerAdapter, *_LOCKS)):
            return kind.__qualname__.encode()
        code = (type, types.FunctionType, types.MethodType, types.ModuleType, *_C_FUNCTIONS)
        if isinstance(thing, code):
            if not self._is_hazard(thing, _full_name(thing) or path, ""):
                self._end(thing, path, "")
            return (_full_name(thing) or kind.__qualname__).encode()
        if isinstance(thing, functools.partial):
            for part, name in ((thing.func, "func"), (thing.args, "args"), (thing.keywords, "keywords")):
                self._value(part, f"{path}.{name}")
            return b"partial"
        if self._is_hazard(thing, path, ""):
            return b"hazard"
        if id(thing) in self._objects:
            return self._objects[id(thing)]
        self._objects[id(thing)] = f"object {len(self._objects)}".encode()
        self._alive.append(thing)
        methods = {name: _python_method(kind, name) for name in _SCANNED}
        own = [methods[n] for n in _ENTRIES if methods[n] and not _installed(methods[n].__module__)]
        if own:
            for method in own:
                self._function(method, thing, path)
            return f"{kind.__module__}.{kind.__qualname__}".encode()
        if _installed(kind.__module__):
            self._version(kind.__module__)
            self._scan(thing, kind, [m for m in methods.values() if m])
        else:
            self._class(kind, path)
        return None

    def _scan(self, thing: Any, kind: type, methods: list[Any]) -> None:
        """A library's own transforms: only what they draw, not what they are."""
        for method in methods:
            for read in reads_of(method.__code__).reads:
                holder = _holder(read, method) if read.root == "global" else None
                name = _full_name(holder[read.name]) if holder is not None else ""
                full = ".".join((name, *read.attributes))
                found = kind_of_call(full) if name else None
                if found == "random" or (read.attributes and is_random_method(read.attributes[-1])):
                    self.hazard(kind.__qualname__, "random")

    def _watch(self, held: dict[str, Any], name: str, value: Any) -> None:
        if held is not vars(builtins):
            self.watched.append((held, name, value))

    def _version(self, module: str) -> None:
        package = module.partition(".")[0]
        if package and package not in ("builtins", "jupyter_gpuprof"):
            self.parts[f"version {package}"] = _version_of(package)


_NOTHING = object()


def _place(function: types.FunctionType, line: int) -> str:
    """File and line; of a notebook's cell, whose file nobody knows, the function and its line there."""
    file = os.path.basename(function.__code__.co_filename)
    in_cell = file.startswith("<") or file.partition(".")[0].isdecimal()
    return f"{function.__qualname__}, line {line}" if in_cell else f"{file}:{line}"


def _attribute(thing: Any, name: str) -> Any:
    """An attribute without running code of the person's; properties as they are."""
    if isinstance(thing, (types.ModuleType, type)):
        return getattr(thing, name, _NOTHING)
    held = getattr(thing, "__dict__", {})
    found = inspect.getattr_static(type(thing), name, _NOTHING)
    if name in held and not isinstance(found, property):
        return held[name]
    if isinstance(found, property):
        return found
    if found is _NOTHING:  # what torch's modules keep apart
        for group in ("_modules", "_parameters", "_buffers"):
            if name in held.get(group, {}):
                return held[group][name]
        return _NOTHING
    if isinstance(found, types.FunctionType):
        return types.MethodType(found, thing)
    return getattr(thing, name, found)


def _holder(read: Read, function: types.FunctionType) -> dict[str, Any] | None:
    """The dictionary that a global name or a closure's is in."""
    if read.root == "cell":
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        try:
            return {read.name: cells[read.name].cell_contents}
        except (KeyError, ValueError):
            return None
    if read.name in function.__globals__:
        return function.__globals__
    return vars(builtins) if hasattr(builtins, read.name) else None


def _python_method(kind: type, name: str) -> Any:
    found = inspect.getattr_static(kind, name, None)
    found = getattr(found, "__func__", found)
    return found if isinstance(found, types.FunctionType) else None


def _full_name(thing: Any) -> str:
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    if isinstance(thing, (type, types.FunctionType, *_C_FUNCTIONS)):
        module = getattr(thing, "__module__", None) or getattr(
            getattr(thing, "__self__", None), "__name__", ""
        )
        return f"{module}.{thing.__qualname__}" if module else ""
    return ""


@functools.lru_cache(maxsize=4096)
def _is_installed_file(file: str) -> bool:
    return os.path.realpath(file).startswith(_INSTALLED)


def _installed(module: str | None) -> bool:
    """Whether a module is a library's: of Python, of an installed package, or ours."""
    if not module or module == "__main__":
        return False
    if module.partition(".")[0] == "jupyter_gpuprof":
        return True
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if file:
        return _is_installed_file(file)
    return getattr(getattr(found, "__spec__", None), "origin", None) in ("built-in", "frozen")


@functools.lru_cache(maxsize=256)
def _version_of(package: str) -> str:
    if package in sys.stdlib_module_names:
        return f"python {sys.version_info[0]}.{sys.version_info[1]}"
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is None:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as of

        try:
            return of(package)
        except PackageNotFoundError:
            return ""
    return str(version)
