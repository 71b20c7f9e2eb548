"""Sources of batches that are no DataLoader: named by the person, or found in the cell's own loops."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from jupyter_gpuprof.probes import hooks
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.probes.sources import Source, Sources

T = TypeVar("T")

#: Loops over these never give batches.
_NO_DATA = (range, str, bytes, set, frozenset)
#: A loop whose first items are no batches is left alone.
_GIVE_UP_AFTER = 3
_ARRAY_LIBRARIES = ("numpy", "PIL", "jax", "jaxlib", "cupy", "tensorflow", "pandas", "pyarrow")


def watch(source: Any, name: str = "") -> Any:
    """Time what `source` gives as input wait, while a profile is on; without one it changes nothing.

    Args:
        source: an iterable of batches (generator, list, any loader), or a function that returns the
            next batch (``queue.get``, say).
        name: how to call it in the report.

    Returns:
        An object that iterates as `source` does (``len()``, indexing and attributes pass through), or
        a function that calls it.

    Raises:
        TypeError: `source` is neither iterable nor callable.
    """
    caller = sys._getframe(1)
    given = name
    name = name or getattr(source, "__name__", type(source).__name__)
    site = _Site(name, (caller.f_code, caller.f_lasti))
    if hasattr(source, "__next__"):
        return _WatchedIterator(source, site, given)
    if hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
        return _Watched(source, site, given)
    if callable(source):
        return _watched_call(source, site)
    hint = "; for a queue, watch(queue.get)" if hasattr(source, "get") else ""
    raise TypeError(f"watch() takes an iterable or a function, not {type(source).__name__}{hint}.")


class _Site:
    """A place where batches come from, and the source that the run in progress knows it as."""

    def __init__(self, name: str, place: Any) -> None:
        self.name = name
        self.place = place
        self._sources: Sources | None = None
        self._source: Source | None = None

    def source(self, recorder: Recorder, _: Any = None) -> Source:
        sources = recorder.sources
        if self._source is None or self._sources is not sources:
            self._source, self._sources = self._look_up(sources), sources
        return self._source

    def _look_up(self, sources: Sources) -> Source:
        return sources.of_watched(self, self.place, self.name)


class _Loop(_Site):
    """A ``for`` statement of the cell."""

    def _look_up(self, sources: Sources) -> Source:
        return sources.of_site(self.place, "for", self.name)


class _Watched:
    """An iterable whose every ``next()`` is a fetch."""

    def __init__(self, source: Any, site: _Site, name: str) -> None:
        self._source = source
        self._site = site
        self._name = name

    def __iter__(self) -> Iterator[Any]:
        if _marks_itself(self._source):
            if self._name:
                hooks.name_loader(self._source, self._name)
            return iter(self._source)
        return _Fetches(iter(self._source), self._site)

    def __len__(self) -> int:
        return len(self._source)

    def __bool__(self) -> bool:
        return bool(self._source)

    def __getitem__(self, index: Any) -> Any:
        return self._source[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_source" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._source, name)

    def __reduce__(self) -> Any:
        return watch, (self._source, self._name)


class _WatchedIterator(_Watched):
    """An iterator whose every ``next()`` is a fetch."""

    def __init__(self, source: Any, site: _Site, name: str) -> None:
        super().__init__(source, site, name)
        self._fetches = _Fetches(source, site)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        return self._fetches.__next__()


def _watched_call(source: Callable[..., T], site: _Site) -> Callable[..., T]:
    @functools.wraps(source)
    def call(*args: Any, **kwargs: Any) -> T:
        __tracebackhide__ = True
        recorder = hooks.begin_fetch(site.source)
        if recorder is None:
            return hooks.elsewhere(source, *args, **kwargs)
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

    def __init__(self, iterator: Iterator[Any], site: _Site) -> None:
        self._iterator = iterator
        self._site = site
        self._doubtful = isinstance(site, _Loop)  # do the items look like batches?
        self._tries = _GIVE_UP_AFTER

    def __iter__(self) -> Iterator[Any]:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_iterator" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._iterator, name)  # what the person's own iterator can do

    def __next__(self) -> Any:
        __tracebackhide__ = True
        if not self._tries:
            return next(self._iterator)
        recorder = hooks.begin_fetch(self._site.source)
        if recorder is None:
            return hooks.elsewhere(next, self._iterator)
        outcome, batch = "error", True
        try:
            item = next(self._iterator)
            outcome = "batch"
            if self._doubtful:
                batch = looks_like_batch(item)
                self._doubtful = not batch
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
    known = (*_NO_DATA, _Watched, _Fetches)
    if recorder is None or isinstance(iterable, known) or _marks_itself(iterable):
        return iterable
    if not hasattr(type(iterable), "__iter__") and not hasattr(type(iterable), "__getitem__"):
        return iterable  # the person's loop shall say so
    return _Fetches(iter(iterable), _Loop(site, ("for", site)))


def _marks_itself(iterable: Any) -> bool:
    """A DataLoader is marked by the hook inside it; not one with an iterator of its own around that."""
    for kind in type(iterable).__mro__:
        if f"{kind.__module__}.{kind.__qualname__}" == "torch.utils.data.dataloader.DataLoader":
            return True
        if "__iter__" in vars(kind):
            return False
    return False


def looks_like_batch(item: Any) -> bool:
    """Whether something is, or holds, an array, a table or an image."""
    try:
        return _holds_array(item, 3)
    except Exception:
        return False  # asking an object of the person's for its parts may do anything


def _holds_array(item: Any, depth: int) -> bool:
    if type(item).__module__.partition(".")[0] in _ARRAY_LIBRARIES:
        return True
    if hasattr(item, "shape") and hasattr(item, "dtype"):
        return True
    if depth == 0 or isinstance(item, (str, bytes)):
        return False
    if isinstance(item, (tuple, list)):
        parts = list(item[:8])
    elif hasattr(item, "values") and hasattr(item, "keys"):
        parts = list(item.values())[:8]
    elif hasattr(item, "__dict__") and not hasattr(item, "parameters") and not hasattr(item, "param_groups"):
        parts = list(vars(item).values())[:8]  # but for a model or an optimizer
    else:
        return False
    return any(_holds_array(part, depth - 1) for part in parts)
