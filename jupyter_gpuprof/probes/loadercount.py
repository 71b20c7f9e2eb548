"""Iterators that tell how many batches they have handed out, of the same class as before to the eye."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jupyter_gpuprof.errors import UsageError


class Position(Protocol):
    """Who is told (`jupyter_gpuprof.probes.loaderposition.LoaderPosition`)."""

    name: str
    batch: int

    def begin(self, make: Callable[[], Any]) -> Any:
        """The loop iterates."""

    def end_pass(self, iterator: Any) -> None:
        """The loop has read all of it."""


def counted(iterator: Any, position: Position) -> Any:
    """The iterator, or one around it, that tells the position of each batch."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    if not isinstance(iterator, _BaseDataLoaderIter):
        iterator = Passed(iterator)
    else:
        iterator.__class__ = _told(type(iterator), "__next__", _next_of)
    iterator._gpuprof_position = position
    return iterator


class Passed:
    """Around any other iterator."""

    _gpuprof_position: Position

    def __init__(self, iterator: Any) -> None:
        self._next = iterator.__next__
        self._own = iterator

    def __iter__(self) -> Passed:
        return self

    def __next__(self) -> Any:
        try:
            batch = self._next()
        except StopIteration:
            self._gpuprof_position.end_pass(self)
            raise
        self._gpuprof_position.batch += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


_kinds: dict[type, type] = {}


def _told(kind: type, name: str, method_of: Callable[[type], Any]) -> type:
    """A class that is `kind` but for one method, and has its name."""
    if kind in _kinds.values():
        return kind
    if kind not in _kinds:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        _kinds[kind] = made = type(kind.__name__, (kind,), names)
        setattr(made, name, method_of(made))
    return _kinds[kind]


def _iter_of(made: Any) -> Any:
    def __iter__(loader: Any) -> Any:
        position: Position = vars(loader)["_gpuprof_position"]
        return position.begin(super(made, loader).__iter__)

    return __iter__


def _next_of(made: Any) -> Any:
    kind = made.__base__  # cheaper to ask than super(), and a profiler may put its own in there any time

    def __next__(iterator: Any) -> Any:
        try:
            batch = kind.__next__(iterator)
        except StopIteration:
            iterator._gpuprof_position.end_pass(iterator)
            raise
        iterator._gpuprof_position.batch += 1
        return batch

    return __next__


def count_in(position: Position, loader: Any) -> None:
    """Let a loader tell a position when it is iterated; it stays the same object, of the same name.

    Raises:
        UsageError: its class cannot be changed.
    """
    try:
        loader.__class__ = _told(type(loader), "__iter__", _iter_of)
    except TypeError:
        raise UsageError(
            f"The passes over {position.name}, a {type(loader).__name__}, cannot be counted.",
            "Give it as a DataLoader, or as an object of a class of your own with an __iter__.",
        ) from None
    vars(loader)["_gpuprof_position"] = position


def count_out(position: Position, loader: Any) -> None:
    """Leave it as it was, unless another position counts in it by now."""
    if vars(loader).get("_gpuprof_position") is position:
        del vars(loader)["_gpuprof_position"]
        loader.__class__ = type(loader).__mro__[1]
