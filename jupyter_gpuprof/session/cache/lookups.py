"""What names and attributes stand for, without running the person's code."""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
import sysconfig
import types
from typing import Any

import numpy as np

from jupyter_gpuprof.analysis.codekey import Read

NOTHING = object()
#: What an object does when it is used as a data set or a transform.
ENTRIES = ("__call__", "forward", "__getitem__")
C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    np.ufunc,
)
_INSTALLED = tuple(
    os.path.join(os.path.realpath(path), "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)


def place_of(function: types.FunctionType, line: int) -> str:
    """File and line; of a notebook's cell, whose file nobody knows, the function and its line there."""
    file = os.path.basename(function.__code__.co_filename)
    in_cell = file.startswith("<") or file.partition(".")[0].isdecimal()
    return f"{function.__qualname__}, line {line}" if in_cell else f"{file}:{line}"


def attribute_of(thing: Any, name: str) -> Any:
    """An attribute without running code of the person's; properties as they are."""
    if isinstance(thing, (types.ModuleType, type)):
        return getattr(thing, name, NOTHING)
    held = getattr(thing, "__dict__", {})
    found = inspect.getattr_static(type(thing), name, NOTHING)
    if isinstance(found, (property, functools.cached_property)):
        return found
    if name in held:
        return held[name]
    if found is NOTHING:  # what torch's modules keep apart
        for group in ("_modules", "_parameters", "_buffers"):
            if name in held.get(group, {}):
                return held[group][name]
        return NOTHING
    if isinstance(found, types.FunctionType):
        return types.MethodType(found, thing)
    return getattr(thing, name, found)


def holder_of(read: Read, function: types.FunctionType) -> dict[str, Any] | None:
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


def getter_of(thing: Any) -> Any:
    """What a property calls; None of anything else."""
    return getattr(thing, "fget", None) or getattr(thing, "func", None)


def python_method(kind: type, name: str) -> Any:
    """The function that a class has under a name; None where it has none written in Python."""
    found = inspect.getattr_static(kind, name, None)
    found = getattr(found, "__func__", found)
    return found if isinstance(found, types.FunctionType) else None


def entries_of(kind: type) -> list[Any]:
    """The methods of `ENTRIES` that the person wrote."""
    methods = (python_method(kind, name) for name in ENTRIES)
    return [method for method in methods if method and not installed(method.__module__)]


def full_name(thing: Any) -> str:
    """Module and name of a function, class or module; "" of anything else."""
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    if isinstance(thing, (type, types.FunctionType, *C_FUNCTIONS)):
        module = getattr(thing, "__module__", None) or getattr(
            getattr(thing, "__self__", None), "__name__", ""
        )
        return f"{module}.{thing.__qualname__}" if module else ""
    return ""


@functools.lru_cache(maxsize=4096)
def _is_installed_file(file: str) -> bool:
    return os.path.realpath(file).startswith(_INSTALLED)


def installed(module: str | None) -> bool:
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
def version_of(package: str) -> str:
    """The version of a package; Python's for a part of it, "" where none is known."""
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
