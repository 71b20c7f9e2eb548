"""What the variables of a notebook lead to, with the way there as a person would write it.

The garbage collector tells what an object refers to, so nothing of the person's is called: no property, no
``__getattr__``, no ``__iter__``. The walk stops at modules, at classes other than the notebook's own, and
at the machinery of Jupyter, from which everything could be reached.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    ModuleType,
    TracebackType,
)
from typing import Any

#: After so many objects the walk gives up.
MOST_OBJECTS = 1_000_000
#: What IPython keeps in the namespace for itself, and leads to all of it.
_OF_THE_SHELL = frozenset({"get_ipython", "exit", "quit", "open", "In", "_ih", "_dh", "Out"})
_MACHINERY = frozenset(
    {"IPython", "ipykernel", "traitlets", "zmq", "tornado", "asyncio", "logging", "jupyter_gpuprof"}
)
_ENDS = (ModuleType, CodeType, FrameType, TracebackType, BuiltinFunctionType)
#: Attributes of modules of torch that are left out of a path.
_UNSAID = frozenset({"_parameters", "_buffers", "_modules"})

#: One step of a path: how ("attribute", "key", "index", "closure", "inside" or "") and which.
Label = tuple[str, Any]
More = Callable[[Any], Iterable[tuple[Label, Any]]]


class Walk:
    """A walk over the objects that a namespace leads to, the shortest way to each first.

    Args:
        namespace: the notebook's variables.
        wanted: the objects that are looked for.
        more: what a wanted object leads to that the garbage collector does not tell.
    """

    def __init__(
        self, namespace: Mapping[str, Any], wanted: Callable[[Any], bool], more: More = lambda thing: ()
    ) -> None:
        self._namespace = dict(namespace)
        self._wanted = wanted
        self._more = more
        self._things: list[Any] = []
        self._steps: list[tuple[int, Label]] = []  # from which object, and how
        self._seen = {id(namespace), id(self._things), id(self._steps), id(self._namespace)}
        self._names: dict[int, int] = {}  # of wanted objects: where they are among the things
        self.complete = True

    def __iter__(self) -> Iterator[tuple[str, str, Any]]:
        """The variable's name, the path that begins with it, and the wanted object; each object once."""
        for name in sorted(self._namespace, key=self._rank):
            if name in _OF_THE_SHELL or not isinstance(name, str):
                continue
            begin = len(self._things)
            self._visit(-1, ("", name), self._namespace[name])
            at = begin
            while at < len(self._things):
                if at > MOST_OBJECTS:
                    self.complete = False
                    return
                thing = self._things[at]
                if self._wanted(thing):
                    self._names[id(thing)] = at
                    yield name, self._path(at), thing
                    for label, child in self._more(thing):
                        self._visit(at, label, child)
                for label, child in _children(thing):
                    self._visit(at, label, child)
                at += 1

    def _rank(self, name: str) -> tuple[bool, int]:
        """Modules of torch name their parameters, not optimizers; what begins with _ comes last."""
        thing = self._namespace[name]
        is_module = any(kind.__qualname__ == "Module" for kind in type(thing).__mro__)
        return str(name).startswith("_"), 0 if is_module else 1 if self._wanted(thing) else 2

    def _visit(self, parent: int, label: Label, thing: Any) -> None:
        if id(thing) in self._seen or not gc.is_tracked(thing) or _ends(thing):
            return
        self._seen.add(id(thing))
        self._things.append(thing)
        self._steps.append((parent, label))

    def _path(self, at: int) -> str:
        labels = []
        while at >= 0:
            at, label = self._steps[at]
            labels.append(label)
        path, unsaid = str(labels[-1][1]), False
        for how, which in reversed(labels[:-1]):
            if how == "attribute" and which in _UNSAID:
                unsaid = True
                continue
            if how == "key" and unsaid and not str(which).isdigit():
                how = "attribute"
            elif how == "key" and unsaid:
                how = "index"
            unsaid = False
            path += self._words(how, which)
        return path

    def _words(self, how: str, which: Any) -> str:
        if how == "attribute":
            return f".{which}"
        if how == "index":
            return f"[{which}]"
        if how == "closure":
            return f"[closure {which}]"
        if how == "key" and isinstance(which, (str, int, float)):
            return f"[{which!r}]" if len(repr(which)) <= 40 else "[...]"
        if how == "key" and id(which) in self._names:
            return f"[{self._path(self._names[id(which)])}]"
        return "" if how == "inside" else "[...]"


def _ends(thing: Any) -> bool:
    kind = type(thing)
    if isinstance(thing, _ENDS):
        return True
    if isinstance(thing, type):
        return thing.__module__ != "__main__"
    return kind.__module__.partition(".")[0] in _MACHINERY if isinstance(kind.__module__, str) else False


def _children(thing: Any) -> Iterator[tuple[Label, Any]]:
    kind = type(thing)
    if issubclass(kind, dict):
        for key, value in list(dict.items(thing)):
            yield ("key", key), value
            yield ("", None), key
    elif issubclass(kind, (list, tuple)):
        for index, value in enumerate(
            list.__iter__(thing) if issubclass(kind, list) else tuple.__iter__(thing)
        ):
            yield ("index", index), value
    elif kind is FunctionType:
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False):
            yield ("closure", name), cell
        yield ("", None), thing.__defaults__
        yield ("", None), thing.__kwdefaults__
        yield ("", None), thing.__dict__
        return
    elif kind is CellType:
        try:
            yield ("inside", None), thing.cell_contents
        except ValueError:  # nothing in it yet
            pass
        return
    elif issubclass(kind, BaseException):
        yield from _locals(thing)
    state = _state(thing)
    if state is not None:
        for name, value in list(state.items()):
            yield ("attribute", name), value
    if kind not in (dict, list, tuple):
        for child in gc.get_referents(thing):
            if child is not state:
                yield ("", None), child


def _state(thing: Any) -> dict[str, Any] | None:
    """The instance's own dict, asked without its class having a say."""
    try:
        state = object.__getattribute__(thing, "__dict__")
    except Exception:
        return None
    return state if type(state) is dict and not isinstance(thing, type) else None


def _locals(error: BaseException) -> Iterator[tuple[Label, Any]]:
    """The variables of the functions that an exception came through."""
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if frame.f_code.co_name != "<module>":
            for name, value in list(frame.f_locals.items()):
                yield ("attribute", f"__traceback__[{frame.f_code.co_name}].{name}"), value
        step = step.tb_next
