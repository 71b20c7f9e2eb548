"""Sources of batches as they are seen: their identity over epochs, and the facts of a DataLoader."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Loader

#: Loaders and iterators remembered before those that are gone are forgotten.
MAX_REMEMBERED = 256
#: Sources kept apart; after that, new ones count as one of those that are gone.
MAX_SOURCES = 64


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
    behind: Source | None = None  # of a loop: the loader that its iterator reads from
    trains: bool = False  # of a loop: its iterator trains, and gives results instead of batches
    sampled_ns: int = 0  # of some fetches, and how much of it the thread was on a processor
    cpu_ns: int = 0
    fresh: bool = True  # the next fetch is the first of its iterator
    signature: tuple[Any, ...] = ()
    ref: Any = None  # a weak reference to what it reads from, if that may go and come again
    data: Any = None  # what tells whether a loader's data set is the same

    @property
    def gone(self) -> bool:
        """Whether what it read from is no more."""
        return self.ref is not None and self.ref() is None

    def _cpu_ratio(self, core_wait_ratio: float) -> Number:
        if self.workers:
            return Missing("the workers' processor time was not read")
        if not self.sampled_ns:
            return Missing("no fetch was sampled")
        # Waiting for a core is no waiting for data: other processes take the cores, and workers would too.
        at_work_ns = self.sampled_ns - core_wait_ratio * self.cpu_ns
        return min(1.0, self.cpu_ns / max(at_work_ns, self.cpu_ns, 1))

    def facts(self, role: str, exposed_s: float, core_wait_ratio: float = 0.0) -> Loader:
        """The source as a record.

        Args:
            role: "training", "validation" or "inference".
            exposed_s: host seconds in ``next()``.
            core_wait_ratio: how long the thread waited for a core, over its seconds on one.
        """
        unknown = Missing("not a DataLoader")
        return Loader(
            name=self.name,
            role=role,
            fetches=self.fetches,
            wait_s=self.wait_ns * 1e-9,
            exposed_s=exposed_s,
            cpu_ratio=self._cpu_ratio(core_wait_ratio),
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
        self.by_iterator: dict[int, tuple[Any, Source]] = {}
        self._by_site: dict[Any, Source] = {}

    @property
    def most_workers(self) -> int:
        """Worker processes of the loader that has most of them."""
        return max((source.workers for source in self.all), default=0)

    def of_loader(self, loader: Any) -> Source:
        """The source of a DataLoader."""
        source = self._by_loader.get(id(loader))
        if source is not None and source.ref() is loader:
            return source
        kind = (type(loader), type(loader.dataset), loader.batch_size, loader.num_workers)
        data = _identity(loader.dataset)
        source = self._again("loader", kind, kind, data)
        if source is None:
            source = self._add("loader", type(loader).__name__)
            source.settings = _settings(loader)
        source.workers = loader.num_workers
        source.signature, source.data = kind, data
        source.ref = weakref.ref(loader)
        if len(self._by_loader) >= MAX_REMEMBERED:
            self._by_loader = {id(s.ref()): s for s in self.all if s.origin == "loader" and not s.gone}
        self._by_loader[id(loader)] = source
        return source

    def began(self, source: Source, iterator: Any) -> None:
        """`iterator` reads from `source`."""
        if len(self.by_iterator) >= MAX_REMEMBERED:
            self.by_iterator = {k: v for k, v in self.by_iterator.items() if v[0]() is not None}
        source.fresh = True
        self.by_iterator[id(iterator)] = (weakref.ref(iterator), source)

    def of_iterator(self, iterator: Any) -> Source:
        """The source that a torch loader iterator reads from."""
        known = self.by_iterator.get(id(iterator))
        if known is not None and known[0]() is iterator:
            return known[1]
        source = self._again("loader", ("begun before",), ("begun before",))
        if source is None:
            source = self._add("loader", "DataLoader")
            source.workers = getattr(iterator, "_num_workers", 0)
            source.settings = {"num_workers": source.workers}
        source.signature = ("begun before",)
        source.ref = weakref.ref(iterator)
        self.began(source, iterator)
        source.fresh = False
        return source

    def of_watched(self, watched: Any, place: Any, name: str) -> Source:
        """The source of something watched; `place` is where in the program ``watch()`` was called."""
        for known in self.all:
            if known.ref is not None and known.ref() is watched:
                return known
        source = self._again("watch", (name, place), (name,))
        if source is None:
            source = self._add("watch", name)
        source.signature = (name, place)
        source.ref = weakref.ref(watched)
        return source

    def of_site(self, site: Any, origin: str, name: str) -> Source:
        """The source of a loop of the cell."""
        source = self._by_site.get(site)
        if source is None:
            source = self._by_site[site] = self._add(origin, name)
        return source

    def _again(
        self, origin: str, signature: tuple[Any, ...], kind: tuple[Any, ...], data: Any = None
    ) -> Source | None:
        """The source that is gone and, by all we know, has come again; None if it is a new one."""
        gone = [known for known in self.all if known.origin == origin and known.gone]
        for known in gone:
            if known.signature == signature and known.data == data:
                return known
        if len(self.all) < MAX_SOURCES or not gone:
            return None
        alike = [known for known in gone if known.signature[: len(kind)] == kind]
        return (alike or gone)[-1]

    def _add(self, origin: str, name: str) -> Source:
        source = Source(len(self.all), origin, name)
        self.all.append(source)
        return source


def _identity(data: Any) -> Any:
    """What is the same for the same data set, and not for another one at its old address."""
    try:
        return _Identity(weakref.ref(data))
    except TypeError:  # a list, say
        try:
            return id(data), len(data)
        except TypeError:
            return id(data), None


class _Identity:
    """Equal for the same living object; two that are gone are never equal."""

    def __init__(self, ref: Any) -> None:
        self._ref = ref

    def __eq__(self, other: object) -> bool:
        mine = self._ref()
        return isinstance(other, _Identity) and mine is not None and other._ref() is mine


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
