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
    elif not isinstance(iterator, CountedIterator):
        iterator.__class__ = _with(CountedIterator, type(iterator))
    iterator._gpuprof_position = position
    return iterator


class CountedLoader:
    """Put before a loader's class: its iterators are counted."""

    def __iter__(self) -> Any:
        position = vars(self)["_gpuprof_position"]
        return position.begin(super().__iter__)  # type: ignore[misc]


class CountedIterator:
    """Put before the class of torch's iterators."""

    _gpuprof_position: Position

    def __next__(self) -> Any:
        try:
            batch = super().__next__()  # type: ignore[misc]
        except StopIteration:
            self._gpuprof_position.end_pass(self)
            raise
        self._gpuprof_position.batch += 1
        return batch


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


_kinds: dict[tuple[type, type], type] = {}


def _with(before: type, kind: type) -> type:
    """A class that is `kind` with `before` put before it, under the name of `kind`."""
    made = _kinds.get((before, kind))
    if made is None:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        made = _kinds[before, kind] = type(kind.__name__, (before, kind), names)
    return made


def count_in(position: Position, loader: Any) -> None:
    """Let a loader tell a position when it is iterated; it stays the same object, of the same name.

    Raises:
        UsageError: its class cannot be changed.
    """
    if not isinstance(loader, CountedLoader):
        try:
            loader.__class__ = _with(CountedLoader, type(loader))
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
        loader.__class__ = type(loader).__mro__[2]
