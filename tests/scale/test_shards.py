"""Loaders divided among ranks, rank by rank in this process: each sample once an epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler, get_worker_info
from torch.utils.data._utils import worker
from torch.utils.data.distributed import DistributedSampler

from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.probes.shards import Shards


class Numbers(Dataset):
    """Items that are their own index; `draws` random numbers are used up with each."""

    def __init__(self, size: int, draws: bool = False) -> None:
        self.size, self.draws = size, draws

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> int:
        if self.draws:  # an augmentation that draws as often as its data want
            torch.rand(i % 3)
            random.random()
        return i


def epochs_of(make: Any, world: int, strong: bool = False, epochs: int = 1) -> list[list[list[list[int]]]]:
    """The batches of each rank, of each epoch."""
    found = []
    for rank in range(world):
        torch.manual_seed(0)
        random.seed(0)
        loader = make()
        Shards(rank, world, strong=strong).divide(loader)
        ranks_epochs = [[batch.tolist() for batch in loader] for _ in range(epochs)]
        assert all(len(batches) == len(loader) for batches in ranks_epochs)
        found.append(ranks_epochs)
    return found


def items(batches_of_ranks: list[list[list[int]]]) -> list[int]:
    return [item for batches in batches_of_ranks for batch in batches for item in batch]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("size", [24, 25, 23])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("strong", [False, True])
def test_each_sample_once_an_epoch(world: int, size: int, shuffle: bool, strong: bool) -> None:
    ranks = epochs_of(
        lambda: DataLoader(Numbers(size, draws=True), batch_size=6, shuffle=shuffle), world, strong, 2
    )
    for epoch in range(2):
        seen = Counter(items([batches[epoch] for batches in ranks]))
        assert set(seen) == set(range(size))
        filled = sum(seen.values()) - size  # as many as make the ranks equal, and no more
        assert filled == -size % world
        assert max(seen.values()) <= 2
        assert len({len(batches[epoch]) for batches in ranks}) == 1, (
            "a rank would wait for the others for ever"
        )
    if shuffle:
        assert ranks[0][0] != ranks[0][1], "each epoch has an order of its own"
    largest = 6 // world if strong else 6
    assert {len(batch) for batches in ranks for batch in batches[0][:-1]} == {largest}


def test_one_rank_reads_as_the_cell_says() -> None:
    torch.manual_seed(7)
    plain = DataLoader(Numbers(20), batch_size=4, shuffle=True)
    kept = plain.batch_sampler
    Shards(0, 1, strong=True).divide(plain)
    assert plain.batch_sampler is kept


def test_without_the_last_batch() -> None:
    ranks = epochs_of(lambda: DataLoader(Numbers(23), batch_size=4, shuffle=True, drop_last=True), 2)
    assert [len(batches[0]) for batches in ranks] == [3, 3]  # 12 items each, the last of them twice
    assert len(set(items([batches[0] for batches in ranks]))) >= 23


def test_weights_of_the_cell_stay() -> None:
    weights = [0.0] * 10 + [1.0] * 10

    def make() -> DataLoader:
        return DataLoader(Numbers(20), batch_size=5, sampler=WeightedRandomSampler(weights, 400))

    first, second = epochs_of(make, 2)
    seen = Counter(items([first[0], second[0]]))
    assert sum(seen.values()) == 400
    assert set(seen) == set(range(10, 20))
    # What both ranks drew together is what the sampler draws alone from the same numbers.
    torch.default_generator.manual_seed(0)
    assert seen == Counter(WeightedRandomSampler(weights, 400))


class Pairs:
    """A batch sampler of the cell's own, shuffled by the process's random numbers."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size // 2

    def __iter__(self) -> Iterator[list[int]]:
        starts = list(range(0, self.size, 2))
        random.shuffle(starts)
        for start in starts:
            yield [start, start + 1]


@pytest.mark.parametrize("world", [2, 3])
def test_batch_sampler_of_the_cell(world: int) -> None:
    ranks = epochs_of(lambda: DataLoader(Numbers(40, draws=True), batch_sampler=Pairs(40)), world, epochs=2)
    for epoch in range(2):
        seen = Counter(items([batches[epoch] for batches in ranks]))
        assert set(seen) == set(range(40))
        assert sum(seen.values()) == 40 + 2 * (-20 % world)  # whole batches fill the last round
        assert all(batch[1] == batch[0] + 1 for batches in ranks for batch in batches[epoch])


def test_batch_sampler_of_the_cell_in_strong_mode() -> None:
    ranks = epochs_of(lambda: DataLoader(Numbers(40), batch_sampler=Pairs(40)), 2, strong=True)
    assert sorted(items([batches[0] for batches in ranks])) == list(range(40))
    assert {len(batch) for batches in ranks for batch in batches[0]} == {1}
    with pytest.raises(RerunError, match="batch of 2 cannot be divided among 3 ranks"):
        epochs_of(lambda: DataLoader(Numbers(40), batch_sampler=Pairs(40)), 3, strong=True)


class Endless:
    """A sampler without end and length."""

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


def test_a_sampler_without_end() -> None:
    found = []
    for rank in range(2):
        loader = DataLoader(range(1000), batch_size=3, sampler=Endless())
        Shards(rank, 2, strong=False).divide(loader)
        found.append(next(iter(loader)).tolist())
    assert found == [[0, 2, 4], [1, 3, 5]]


def test_a_sampler_of_the_cell_that_divides_is_left_alone() -> None:
    data = Numbers(10)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, 1, shuffle=False))
    Shards(1, 2, strong=False).divide(loader)
    assert [batch.tolist() for batch in loader] == [[1, 3], [5, 7], [9]]


def test_a_loader_made_from_a_divided_one_is_not_divided_again() -> None:
    loader = DataLoader(Numbers(12), batch_size=2)
    shards = Shards(0, 2, strong=False)
    shards.divide(loader)
    again = DataLoader(loader.dataset, batch_size=3, sampler=loader.sampler)
    shards.divide(again)
    assert [batch.tolist() for batch in again] == [[0, 2, 4], [6, 8, 10]]


def test_batches_that_the_data_set_gives() -> None:
    batches = [torch.arange(3) + 3 * i for i in range(4)]
    ranks = epochs_of(lambda: DataLoader(batches, batch_size=None), 2)
    assert sorted(items([b[0] for b in ranks])) == list(range(12))
    with pytest.raises(RerunError, match="--mode weak"):
        epochs_of(lambda: DataLoader(batches, batch_size=None), 2, strong=True)


def test_too_few_data_for_training_but_not_for_validation() -> None:
    def make() -> DataLoader:
        return DataLoader(Numbers(7), batch_size=4)

    with pytest.raises(RerunError, match="gives 7 samples: less than a batch of 4 for each of 2 ranks"):
        epochs_of(make, 2)
    with torch.no_grad():
        ranks = epochs_of(make, 2)
        assert set(items([batches[0] for batches in ranks])) == set(range(7))
        one_for_five = epochs_of(lambda: DataLoader(Numbers(1), batch_size=4), 5)
    assert [batches[0] for batches in one_for_five] == [[[0]]] * 5


def test_a_batch_smaller_than_the_ranks() -> None:
    loader = DataLoader(Numbers(40), batch_size=2)
    with pytest.raises(RerunError, match="batch of 2 cannot be divided among 4 ranks"):
        Shards(0, 4, strong=True).divide(loader)


class Walk:
    """A sampler of twelve numbers that may draw their order."""

    def __init__(self, draws: bool) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(12).tolist() if self.draws else range(12))


def test_what_the_process_draws_is_not_touched() -> None:
    def drawn(loader: DataLoader) -> list[float]:
        torch.manual_seed(3)
        random.seed(3)
        list(loader)
        return [float(torch.rand(1)), random.random()]

    divided = DataLoader(Numbers(12), batch_size=2, sampler=Walk(draws=True))
    Shards(0, 2, strong=False).divide(divided)
    assert drawn(divided) == drawn(DataLoader(Numbers(12), batch_size=2, sampler=Walk(draws=False)))


# -- streams ---------------------------------------------------------------------------------------------


class Stream(IterableDataset):
    """Divides itself among the workers it is told of."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        index, of = (info.id, info.num_workers) if info is not None else (0, 1)
        yield from range(index, 24, of)


class Whole(IterableDataset):
    """Reads everything everywhere, unless its worker's first call says otherwise."""

    def __init__(self) -> None:
        self.index, self.of = 0, 1

    def __iter__(self) -> Iterator[int]:
        yield from range(self.index, 24, self.of)


def told(_: int) -> None:
    info = get_worker_info()
    info.dataset.index, info.dataset.of = info.id, info.num_workers


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("strong", [False, True])
def test_a_stream_that_divides_itself(workers: int, strong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_worker_info", None)
    found = []
    for rank in range(2):
        loader = DataLoader(Stream(), batch_size=4, num_workers=workers)
        Shards(rank, 2, strong=strong).divide(loader)
        found.append([batch.tolist() for batch in loader])
    assert sorted(items(found)) == list(range(24))
    assert max(len(batch) for batches in found for batch in batches) == (2 if strong else 4)


@pytest.mark.slow
def test_a_stream_that_is_divided_by_its_workers_first_call() -> None:
    found = []
    for rank in range(2):
        loader = DataLoader(Whole(), batch_size=4, num_workers=1, worker_init_fn=told)
        Shards(rank, 2, strong=False).divide(loader)
        found.append([batch.tolist() for batch in loader])
    assert sorted(items(found)) == list(range(24))


def test_a_stream_that_does_not_divide_itself_is_refused() -> None:
    with pytest.raises(RerunError, match="does not divide itself by get_worker_info"):
        Shards(0, 2, strong=False).divide(DataLoader(Whole(), batch_size=4))
