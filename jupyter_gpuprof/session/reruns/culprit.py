"""Which part of an object it is that cannot be sent to another process."""

from __future__ import annotations

import io
import socket
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import cloudpickle

#: Why an object cannot be pickled; None if it can.
Why = Callable[[object], Exception | None]

_DEEPEST = 30
_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((socket.socket,), "an open socket"),
    ((io.TextIOWrapper, io.BufferedIOBase, io.RawIOBase), "an open file"),
    ((types.GeneratorType,), "a generator"),
    ((types.CoroutineType, types.AsyncGeneratorType), "a coroutine"),
    ((Executor,), "a pool of threads or processes"),
    ((threading.Thread,), "a thread"),
    ((threading.Event, threading.Condition, threading.Semaphore, threading.local), "a lock"),
    ((type(threading.Lock()), type(threading.RLock())), "a lock"),
)
#: The same by the class's name, for what is not imported here.
_NAMES = (
    ("Connection", "a connection"),
    ("Cursor", "a cursor of a database"),
    ("DataLoaderIter", "a running iterator of a DataLoader"),
    ("Pool", "a pool of threads or processes"),
    ("Process", "a process"),
    ("Popen", "a process"),
)


def find_culprit(value: object, path: str, why: Why) -> tuple[str, str]:
    """Follow `value` down to what cannot be pickled in it.

    Args:
        value: an object for which `why` gives a reason.
        path: how the person calls it.
        why: tries one object.

    Returns:
        The path to the culprit, as Python would write it, and what it is.
    """
    seen: set[int] = set()
    for _ in range(_DEEPEST):
        seen.add(id(value))
        kind = _kind(value)
        if kind:
            return path, kind
        for child_path, child in _parts(value, path):
            if id(child) not in seen and why(child) is not None:
                path, value = child_path, child
                break
        else:
            break
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return path, f"a {name} ({first_line(why(value))})"


def first_line(error: Exception | None) -> str:
    """What an error says, short."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")


def _kind(value: object) -> str:
    for types_, words in _KINDS:
        if issubclass(type(value), types_):
            return words
    for kind in type(value).__mro__:
        for end, words in _NAMES:
            if kind.__name__.endswith(end):
                return words
    return ""


def _parts(value: Any, path: str) -> Iterator[tuple[str, object]]:
    """What pickle would look at next, with the way there."""
    match value:
        case dict():
            yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"{path}[{number}]", item) for number, item in enumerate(value))
        case types.MethodType():
            yield path, value.__self__
        case types.FunctionType():
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
            yield from ((name, cell.cell_contents) for name, cell in cells if cell != types.CellType())
            names = cloudpickle.cloudpickle._extract_code_globals(value.__code__)
            yield from ((name, value.__globals__[name]) for name in names if name in value.__globals__)
            yield path, value.__defaults__
        case type():
            yield from ((f"{path}.{name}", item) for name, item in vars(value).items())
        case _:
            yield from _reduced_parts(value, path)


def _reduced_parts(value: Any, path: str) -> Iterator[tuple[str, object]]:
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        reduced = (None, (), getattr(value, "__dict__", {}))
    if isinstance(reduced, str):
        return
    _, args, state, items, pairs = (*reduced, None, None, None)[:5]
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            yield from ((f"{path}.{name}", item) for name, item in part.items())
        elif part is not None:
            yield path, part
    yield from ((path, item) for item in args)
    yield from ((f"{path}[{number}]", item) for number, item in enumerate(items or ()))
    yield from ((f"{path}[{key!r}]", item) for key, item in pairs or ())
