"""Give each rank its part of what the loaders of this process read: in the rank's own process only."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_gpuprof.errors import RerunError


class Shards:
    """Divides DataLoaders among ranks. A single rank reads all of it, as the cell says.

    Args:
        rank: this one.
        world: how many there are.
        strong: the batch of all ranks together stays what the cell says, instead of that of each.
    """

    def __init__(self, rank: int, world: int, *, strong: bool) -> None:
        self._rank, self._world, self._strong = rank, world, strong

    def divide_living(self) -> None:
        """Divide all loaders that there are, in place."""
        import gc

        from torch.utils.data import DataLoader

        for loader in [thing for thing in gc.get_objects() if isinstance(thing, DataLoader)]:
            self.divide(loader)

    def watch_loaders(self) -> None:
        """Divide the loaders that the cell makes, as it makes them."""
        from torch.utils.data import DataLoader

        original, shards = DataLoader.__init__, self

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            shards.divide(loader)

        DataLoader.__init__ = __init__  # type: ignore[method-assign,assignment]

    def divide(self, loader: Any) -> None:
        """Let a loader read this rank's part of the data.

        Raises:
            RerunError: it cannot be divided.
        """
        from torch.utils.data import BatchSampler, IterableDataset

        if self._world == 1:
            return
        batches = loader.batch_sampler
        if isinstance(batches, (_EveryNth, _Slices)):
            return  # the cell hands on what we have divided
        if isinstance(loader.dataset, IterableDataset):
            self._number_workers(loader)
            if batches is not None:
                self._put_batches(loader, loader.sampler, batches)
        elif batches is None:
            if self._strong:
                raise RerunError(
                    "A loader whose data set gives whole batches cannot give each rank a part of one.",
                    "Use --mode weak.",
                )
            _put(loader, "sampler", self._part(loader.sampler, 1))
        elif type(batches) is BatchSampler:
            size = self._size(batches.batch_size)
            part = self._part(batches.sampler, size)
            self._put_batches(loader, part, batches)
            _put(loader, "sampler", part)
        else:
            kind: Any = _Slices if self._strong else _EveryNth
            _put(loader, "batch_sampler", kind(batches, self._rank, self._world))

    def _part(self, sampler: Any, size: int) -> Any:
        from torch.utils.data.distributed import DistributedSampler

        if isinstance(sampler, (DistributedSampler, _Part)):
            return sampler  # divided by the cell itself, or already by us
        return _Part(sampler, self._rank, self._world, size)

    def _put_batches(self, loader: Any, sampler: Any, batches: Any) -> None:
        """Batches of the rank's size, of the items that `sampler` gives."""
        from torch.utils.data import BatchSampler

        size = self._size(batches.batch_size)
        _put(loader, "batch_sampler", BatchSampler(sampler, size, batches.drop_last))
        _put(loader, "batch_size", size)

    def _size(self, batch_size: int) -> int:
        if not self._strong:
            return batch_size
        if batch_size < self._world:
            raise _too_small(batch_size, self._world)
        return batch_size // self._world

    def _number_workers(self, loader: Any) -> None:
        """A stream that divides itself by its worker: the workers of all ranks are numbered through."""
        code = [vars(kind).get("__iter__") for kind in type(loader.dataset).__mro__]
        if loader.num_workers:
            code.append(loader.worker_init_fn)
        if not any(_names(function, "get_worker_info") for function in code):
            raise RerunError(
                "The cell reads an IterableDataset that does not divide itself by get_worker_info(), so "
                "every rank would read all of it.",
                "Use a map-style Dataset, or divide it by torch.utils.data.get_worker_info().",
            )
        numbered = _Numbered(self._rank, self._world, loader.worker_init_fn)
        if loader.num_workers:
            _put(loader, "worker_init_fn", numbered)
        else:
            numbered.without_workers(loader.dataset)


class _Part:
    """Every world-th of a sampler's items, the same number on every rank: some come twice if need be."""

    def __init__(self, sampler: Any, rank: int, world: int, size: int) -> None:
        self._sampler, self._rank, self._world, self._size = sampler, rank, world, size
        self._draws = _SameDraws()

    def __len__(self) -> int:
        return -(-len(self._sampler) // self._world)

    def __iter__(self) -> Iterator[Any]:
        import torch

        if not hasattr(self._sampler, "__len__"):  # it may have no end
            yield from _every_nth(self._draws.through(self._sampler), self._rank, self._world)
            return
        with self._draws.drawing():
            items = list(self._sampler)
        if len(items) < self._size * self._world and torch.is_grad_enabled():  # it is not for validation
            raise RerunError(
                f"The data set gives {len(items)} samples: less than a batch of {self._size} for each of "
                f"{self._world} ranks.",
                "Use fewer ranks, a smaller batch or more data.",
            )
        yield from _every_nth(items, self._rank, self._world)


class _EveryNth:
    """Every world-th batch of the cell's own batch sampler."""

    def __init__(self, batches: Any, rank: int, world: int) -> None:
        self._batches, self._rank, self._world = batches, rank, world
        self._draws = _SameDraws()
        self.batch_size = getattr(batches, "batch_size", None)

    def __len__(self) -> int:
        return -(-len(self._batches) // self._world)

    def __iter__(self) -> Iterator[Any]:
        return _every_nth(self._draws.through(self._batches), self._rank, self._world)


class _Slices:
    """The rank's part of each batch of the cell's own batch sampler."""

    def __init__(self, batches: Any, rank: int, world: int) -> None:
        self._batches, self._rank, self._world = batches, rank, world
        self._draws = _SameDraws()
        size = getattr(batches, "batch_size", None)
        self.batch_size = size // world if isinstance(size, int) else None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._draws.through(self._batches):
            items = list(batch)
            if len(items) < self._world:
                raise _too_small(len(items), self._world)
            yield items[self._rank :: self._world]


def _every_nth(things: Iterable[Any], rank: int, world: int) -> Iterator[Any]:
    """The rank's thing of each round; the last round is filled up with the first things, over and over."""
    first: list[Any] = []
    turn: list[Any] = []
    for thing in things:
        if len(first) < world:
            first.append(thing)
        turn.append(thing)
        if len(turn) == world:
            yield turn[rank]
            turn = []
    if turn:
        yield (turn + first * world)[rank]


def _too_small(size: int, world: int) -> RerunError:
    return RerunError(
        f"A batch of {size} cannot be divided among {world} ranks.",
        "Use --mode weak, fewer ranks or a larger batch.",
    )


class _SameDraws:
    """Random numbers of a sampler's own, so that it draws the same on all ranks.

    Those of the process differ between ranks as soon as an augmentation draws as often as its data want.
    """

    def __init__(self) -> None:
        self._states: list[Any] | None = None

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within it, torch, random and numpy draw from the sampler's own numbers."""
        import torch

        kept = _states()
        if self._states is None:
            torch.default_generator.manual_seed(0)
            random.seed(0)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(0)
        else:
            _restore(self._states)
        try:
            yield
        finally:
            self._states = _states()
            _restore(kept)

    def through(self, things: Iterable[Any]) -> Iterator[Any]:
        """The things, each drawn from the sampler's own numbers."""
        end = object()
        with self.drawing():
            source = iter(things)
        while True:
            with self.drawing():
                thing = next(source, end)
            if thing is end:
                return
            yield thing


def _states() -> list[Any]:
    import torch

    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None
    return [torch.default_generator.get_state(), random.getstate(), drawn]


def _restore(states: list[Any]) -> None:
    import torch

    of_torch, of_python, of_numpy = states
    torch.default_generator.set_state(of_torch)
    random.setstate(of_python)
    if of_numpy is not None:
        sys.modules["numpy"].random.set_state(of_numpy)


class _Numbered:
    """A worker's first call: it learns its number among the workers of all ranks."""

    def __init__(self, rank: int, world: int, then: Callable[[int], object] | None) -> None:
        self._rank, self._world, self._then = rank, world, then

    def __call__(self, worker: int) -> None:
        from torch.utils.data._utils import worker as workers

        own: Any = workers._worker_info
        self._tell(own.num_workers, own.id, own.seed, own.dataset)
        if self._then is not None:
            self._then(worker)

    def without_workers(self, dataset: Any) -> None:
        """The process itself reads, as the only worker of its rank."""
        self._tell(1, 0, 0, dataset)

    def _tell(self, number: int, index: int, seed: int, dataset: Any) -> None:
        from torch.utils.data._utils import worker as workers

        workers._worker_info = workers.WorkerInfo(
            id=self._rank * number + index, num_workers=self._world * number, seed=seed, dataset=dataset
        )


def _names(function: Any, name: str) -> bool:
    """Whether a function's own code speaks of a name."""
    code = getattr(function, "__code__", None)
    return code is not None and name in code.co_names


def _put(loader: Any, name: str, value: Any) -> None:
    """Set what a DataLoader does not let be set once it is made."""
    vars(loader)[name] = value
