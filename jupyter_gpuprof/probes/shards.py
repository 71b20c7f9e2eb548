"""Give each rank its part of what the loaders of this process read: in the rank's own process only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jupyter_gpuprof.errors import RerunError


class Shards:
    """Divides DataLoaders among ranks.

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

        DataLoader.__init__ = __init__  # type: ignore[method-assign]

    def divide(self, loader: Any) -> None:
        """Let a loader read this rank's part of the data.

        Raises:
            RerunError: it cannot be divided, or nothing would be left of it.
        """
        from torch.utils.data import BatchSampler, IterableDataset
        from torch.utils.data.distributed import DistributedSampler

        if self._world == 1 and not self._strong:
            return
        if isinstance(loader.dataset, IterableDataset):
            self._divide_stream(loader.dataset)
            return
        batches = loader.batch_sampler
        if batches is not None and type(batches) is not BatchSampler:
            _put(loader, "batch_sampler", _EveryNth(batches, self._rank, self._world))
            return
        sampler = loader.sampler if batches is None else batches.sampler
        if isinstance(sampler, (DistributedSampler, _Part)):
            return  # divided by the cell itself, or already by us
        part = _Part(sampler, self._rank, self._world)
        size = loader.batch_size
        if batches is not None:
            size = self._size(batches.batch_size)
            _put(loader, "batch_sampler", BatchSampler(part, size, batches.drop_last))
            _put(loader, "batch_size", size)
        _put(loader, "sampler", part)
        if len(part) < (size or 1):
            raise RerunError(
                f"The data set has {len(loader.dataset)} items: less than one batch of {size} for each of "
                f"{self._world} ranks.",
                "Use fewer ranks, a smaller batch or more data.",
            )

    def _size(self, batch_size: int) -> int:
        if not self._strong:
            return batch_size
        if batch_size < self._world:
            raise RerunError(
                f"A batch of {batch_size} cannot be divided among {self._world} ranks.",
                "Use --mode weak, fewer ranks or a larger batch.",
            )
        return batch_size // self._world

    def _divide_stream(self, dataset: Any) -> None:
        """A stream that divides itself by its worker: the workers of all ranks are numbered through."""
        if self._world == 1:
            return
        names = set()
        for kind in type(dataset).__mro__:
            iterate = vars(kind).get("__iter__")
            code = getattr(iterate, "__code__", None)
            names |= set(code.co_names) if code is not None else set()
        if "get_worker_info" not in names:
            raise RerunError(
                "The cell reads an IterableDataset that does not divide itself by get_worker_info(), so "
                "every rank would read all of it.",
                "Use a map-style Dataset, or divide it by torch.utils.data.get_worker_info().",
            )
        _number_workers_through(self._rank, self._world, dataset)


class _Part:
    """Every world-th of a sampler's items, the same number on every rank: the last ones come twice if need be.

    The sampler draws the same order on all ranks, since they are seeded alike; an order that the cell
    chose (weights, a generator) stays.
    """

    def __init__(self, sampler: Any, rank: int, world: int) -> None:
        self._sampler, self._rank, self._world = sampler, rank, world
        self._epoch = 0

    def __len__(self) -> int:
        return -(-len(self._sampler) // self._world)

    def __iter__(self) -> Iterator[Any]:
        import torch

        # The process's own random numbers differ between ranks after a dropout or an augmentation.
        state = torch.get_rng_state()
        torch.manual_seed(self._epoch)
        try:
            items = list(self._sampler)
        finally:
            torch.set_rng_state(state)
        self._epoch += 1
        wanted = len(self) * self._world
        items += items[: wanted - len(items)]
        return iter(items[self._rank : wanted : self._world])


class _EveryNth:
    """Every world-th batch of the cell's own batch sampler."""

    def __init__(self, batches: Any, rank: int, world: int) -> None:
        self._batches, self._rank, self._world = batches, rank, world
        self.batch_size = getattr(batches, "batch_size", None)

    def __len__(self) -> int:
        return len(self._batches) // self._world

    def __iter__(self) -> Iterator[Any]:
        whole = len(self) * self._world
        for number, batch in enumerate(self._batches):
            if number >= whole:
                return
            if number % self._world == self._rank:
                yield batch


def _put(loader: Any, name: str, value: Any) -> None:
    """Set what a DataLoader does not let be set once it is made."""
    vars(loader)[name] = value


def _number_workers_through(rank: int, world: int, dataset: Any) -> None:
    """Let ``get_worker_info()`` count the workers of all ranks, from wherever the cell imported it."""
    from torch.utils.data._utils import worker

    kind = worker.WorkerInfo
    if not isinstance(kind, type):
        return  # done already

    def numbered(**facts: Any) -> Any:
        of = facts["num_workers"]
        return kind(**{**facts, "id": rank * of + facts["id"], "num_workers": world * of})

    worker.WorkerInfo = numbered  # type: ignore[misc,assignment]
    worker._worker_info = kind(id=rank, num_workers=world, seed=0, dataset=dataset)  # without workers


@contextmanager
def as_script(words: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as ``python script.py args`` has them."""
    from pathlib import Path

    sys.argv = list(words)
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    yield
