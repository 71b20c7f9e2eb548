"""Sources of batches as they are seen: their identity over epochs, and the facts of a DataLoader."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Loader

#: Iterators remembered before those that are gone are forgotten.
MAX_ITERATORS = 256


@dataclass
class Source:
    """One loader, watched iterable or loop of the cell."""

    key: int
    origin: str  # "loader", "watch" or "for"
    name: str
    workers: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    fetches: int = 0
    wait_ns: int = 0
    fresh: bool = True  # the next fetch is the first of its iterator
    signature: tuple[Any, ...] = ()
    ref: Any = None

    def facts(self, role: str, exposed_s: float) -> Loader:
        """The source as a record."""
        unknown = Missing("not a DataLoader")
        return Loader(
            name=self.name,
            role=role,
            fetches=self.fetches,
            wait_s=self.wait_ns * 1e-9,
            exposed_s=exposed_s,
            batch_size=self.settings.get("batch_size", unknown),
            num_workers=self.settings.get("num_workers", unknown),
            prefetch_factor=self.settings.get("prefetch_factor", unknown),
            pin_memory=self.settings.get("pin_memory", unknown),
            persistent_workers=self.settings.get("persistent_workers", unknown),
        )


class Sources:
    """The sources of one run. A loader made anew each epoch over the same data is one source."""

    def __init__(self) -> None:
        self.all: list[Source] = []
        self._by_loader: dict[int, Source] = {}
        self._by_iterator: dict[int, tuple[Any, Source]] = {}
        self._by_site: dict[Any, Source] = {}

    def of_loader(self, loader: Any) -> Source:
        """The source of a DataLoader."""
        source = self._by_loader.get(id(loader))
        if source is not None and source.ref() is loader:
            return source
        signature = (type(loader), id(loader.dataset), loader.batch_size, loader.num_workers)
        for known in self.all:
            if known.signature == signature and known.ref is not None and known.ref() is None:
                source = known
                break
        else:
            source = self._add("loader", type(loader).__name__)
            source.signature = signature
            source.workers = loader.num_workers
            source.settings = _settings(loader)
        source.ref = weakref.ref(loader)
        self._by_loader[id(loader)] = source
        return source

    def began(self, source: Source, iterator: Any) -> None:
        """`iterator` reads from `source`."""
        if len(self._by_iterator) >= MAX_ITERATORS:
            self._by_iterator = {k: v for k, v in self._by_iterator.items() if v[0]() is not None}
        source.fresh = True
        self._by_iterator[id(iterator)] = (weakref.ref(iterator), source)

    def of_iterator(self, iterator: Any) -> Source:
        """The source that a torch loader iterator reads from."""
        known = self._by_iterator.get(id(iterator))
        if known is not None:
            return known[1]
        source = self._add("loader", "DataLoader")  # begun before the run
        source.workers = getattr(iterator, "_num_workers", 0)
        source.settings = {"num_workers": source.workers}
        source.fresh = False
        self._by_iterator[id(iterator)] = (weakref.ref(iterator), source)
        return source

    def of_site(self, site: Any, origin: str, name: str) -> Source:
        """The source of a watched iterable or a loop of the cell."""
        source = self._by_site.get(site)
        if source is None:
            source = self._by_site[site] = self._add(origin, name)
        return source

    def _add(self, origin: str, name: str) -> Source:
        source = Source(len(self.all), origin, name)
        self.all.append(source)
        return source


def _settings(loader: Any) -> dict[str, Any]:
    unset = Missing("not set")
    read = {
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
    }
    if read["batch_size"] is None:
        read["batch_size"] = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return {name: unset if value is None else value for name, value in read.items()}
