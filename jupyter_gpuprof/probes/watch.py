"""Sources of batches that are no DataLoader: named by the person, or found in the cell's own loops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from jupyter_gpuprof.probes import hooks

T = TypeVar("T")

#: Loops over these never give batches.
_NO_DATA = (range, str, bytes, set, frozenset)
#: A loop whose first items are no batches is left alone.
_GIVE_UP_AFTER = 3
_ARRAY_LIBRARIES = ("torch", "numpy", "PIL", "jax", "jaxlib", "cupy", "tensorflow")


def watch(source: Any, name: str = "") -> Any:
    """Time what `source` gives as input wait, while a profile is on; without one it changes nothing.

    Args:
        source: an iterable of batches (generator, list, queue, any loader), or a function that
            returns the next batch.
        name: how to call it in the report.

    Returns:
        An object that iterates as `source` does (``len()`` and attributes pass through), or a
        function that calls it.

    Raises:
        TypeError: `source` is neither iterable nor callable.
    """
    name = name or getattr(source, "__name__", type(source).__name__)
    if hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
        return _Watched(source, name)
    if callable(source):
        return _watched_call(source, name)
    raise TypeError(f"watch() takes an iterable or a function, not {type(source).__name__}.")


class _Watched:
    """An iterable whose every ``next()`` is a fetch."""

    def __init__(self, source: Iterable[Any], name: str) -> None:
        self._source = source
        self._name = name

    def __iter__(self) -> Iterator[Any]:
        return _Fetches(iter(self._source), ("watch", id(self._source)), "watch", self._name)

    def __len__(self) -> int:
        return len(self._source)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def _watched_call(source: Callable[..., T], name: str) -> Callable[..., T]:
    @functools.wraps(source)
    def call(*args: Any, **kwargs: Any) -> T:
        __tracebackhide__ = True
        recorder = hooks.begin_fetch(lambda r: r.sources.of_site(("watch", id(source)), "watch", name))
        if recorder is None:
            return source(*args, **kwargs)
        outcome = "error"
        try:
            batch = source(*args, **kwargs)
            outcome = "batch"
            return batch
        except StopIteration:
            outcome = "stop"
            raise
        finally:
            hooks.end_fetch(recorder, outcome)

    return call


class _Fetches:
    """An iterator that marks each of its ``next()`` calls."""

    def __init__(self, iterator: Iterator[Any], site: Any, origin: str, name: str) -> None:
        self._iterator = iterator
        self._site, self._origin, self._name = site, origin, name
        self._doubtful = origin == "for"  # do the items look like batches?
        self._tries = _GIVE_UP_AFTER

    def __iter__(self) -> Iterator[Any]:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)  # what the person's own iterator can do

    def __next__(self) -> Any:
        __tracebackhide__ = True
        if not self._tries:
            return next(self._iterator)
        recorder = hooks.begin_fetch(lambda r: r.sources.of_site(self._site, self._origin, self._name))
        if recorder is None:
            return next(self._iterator)
        outcome, batch = "error", True
        try:
            item = next(self._iterator)
            outcome = "batch"
            if self._doubtful:
                batch = looks_like_batch(item)
                self._doubtful = batch is False
                self._tries -= not batch
            return item
        except StopIteration:
            outcome, batch = "stop", not self._doubtful
            raise
        finally:
            hooks.end_fetch(recorder, outcome, batch=batch)


def watch_loop(iterable: Any, site: str) -> Any:
    """What a ``for`` of the profiled cell iterates over instead of `iterable`: the same, but marked.

    Args:
        iterable: what the person's loop iterates over.
        site: where the loop stands, its name in the report.
    """
    recorder = hooks.current()
    if recorder is None or isinstance(iterable, (*_NO_DATA, _Watched)) or _marks_itself(iterable):
        return iterable
    return _Fetches(iter(iterable), ("for", site), "for", site)


def _marks_itself(iterable: Any) -> bool:
    """A DataLoader is marked by the hook inside it."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(iterable).__mro__}
    return "torch.utils.data.dataloader.DataLoader" in kinds


def looks_like_batch(item: Any, depth: int = 3) -> bool:
    """Whether something is, or holds, an array or an image."""
    if type(item).__module__.partition(".")[0] in _ARRAY_LIBRARIES:
        return True
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        return True
    if depth == 0 or isinstance(item, (str, bytes)):
        return False
    if hasattr(item, "values") and hasattr(item, "keys"):
        return any(looks_like_batch(value, depth - 1) for value in list(item.values())[:8])
    if isinstance(item, (tuple, list)):
        return any(looks_like_batch(value, depth - 1) for value in item[:8])
    if hasattr(item, "__dict__"):
        return any(looks_like_batch(value, depth - 1) for value in list(vars(item).values())[:8])
    return False
