"""A training loop that writes down what it saw at each step; run as a program it is killed where told to.

python -m tests.session.resumeloop '{"folder": ..., "log": ..., "stop_at": 5, "how": "SIGKILL", ...}'
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from jupyter_gpuprof.session.checkpoints.checkpointer import Checkpointer

ITEMS, BATCH = 30, 4  # 8 batches a pass, the last of them smaller


class Items(Dataset):
    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor]:
        return i, torch.full((3,), i / ITEMS)


class Augmented(Items):
    """Draws from the process's own generators for each item."""

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor]:
        return i, torch.rand(3) + random.random() + float(np.random.rand())


class Stream(IterableDataset):
    """Deals its items among the workers, in an order of its own in each pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        info = torch.utils.data.get_worker_info()
        rank, workers = (info.id, info.num_workers) if info else (0, 1)
        seed = info.seed if info else torch.initial_seed()
        order = torch.randperm(ITEMS, generator=torch.Generator().manual_seed((seed - rank) % 2**32)).tolist()
        for i in order[rank::workers]:
            yield i, torch.full((3,), i / ITEMS)


class StreamWithState(IterableDataset):
    """Cannot be read over: it draws anew what it deals, and only its state says where it is."""

    def __init__(self) -> None:
        self.made, self.reads = 0, 0

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        while self.made < ITEMS:
            self.made += 1
            self.reads += 1
            yield self.made, torch.full((3,), self.made / ITEMS)
        self.made = 0

    def state_dict(self) -> dict[str, int]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.made = state["made"]


class Own:
    """Neither torch's nor with a state: something to loop over."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader

    def __len__(self) -> int:
        return len(self.loader)


def loader_of(kind: str, workers: int) -> Any:
    data = Items()
    options: dict[str, Any] = {"num_workers": workers}
    if workers:
        options["multiprocessing_context"] = "fork"
    if kind == "shuffle":
        return DataLoader(data, BATCH, shuffle=True, **options)
    if kind == "augmented":
        return DataLoader(Augmented(), BATCH, shuffle=True, **options)
    if kind == "persistent":
        return DataLoader(data, BATCH, shuffle=True, persistent_workers=True, **options)
    if kind == "generator":
        return DataLoader(data, BATCH, shuffle=True, generator=torch.Generator().manual_seed(5), **options)
    if kind == "replacement":
        own = RandomSampler(data, True, 30, generator=torch.Generator().manual_seed(5))
        return DataLoader(data, BATCH, sampler=own, **options)
    if kind == "weighted":
        return DataLoader(data, BATCH, sampler=WeightedRandomSampler([1.0] * ITEMS, ITEMS), **options)
    if kind == "batches":
        batches = BatchSampler(SubsetRandomSampler(range(ITEMS)), BATCH, False)
        return DataLoader(data, batch_sampler=batches, **options)
    if kind == "single":
        return DataLoader(data, None, sampler=RandomSampler(data), **options)
    if kind == "distributed":
        return DataLoader(data, BATCH, sampler=DistributedSampler(data, 2, 1, seed=3), **options)
    if kind == "stream":
        return DataLoader(Stream(), BATCH, **options)
    if kind == "stream with state":
        return DataLoader(StreamWithState(), BATCH, **options)
    if kind == "own":
        return Own(DataLoader(data, BATCH, shuffle=True, **options))
    assert kind == "torchdata"
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(data, BATCH, shuffle=True, **options)


def train(
    folder: Path,
    log: dict[int, Any],
    *,
    kind: str = "shuffle",
    workers: int = 0,
    epochs: int = 3,
    stop_at: int = 0,
    seed: int = 0,
    every: int = 1,
    async_: bool = False,
    accumulate: int = 1,
    told: Any = lambda step: None,
) -> Any:
    """The loop; `log` gets for each step its batch, learning rate and loss. Returns where it began."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
    other = torch.optim.SGD(model.parameters(), 1.0)
    by_epoch = torch.optim.lr_scheduler.MultiStepLR(other, [1, 2])
    loader = loader_of(kind, workers)
    best: dict[str, Any] = {"loss": 1e9}
    ck = Checkpointer(
        folder, every=every, async_=async_, model=model, optimizer=optimizer, schedule=schedule,
        other=other, by_epoch=by_epoch, loader=loader, best=best,
    )  # fmt: skip
    with ck:
        start = ck.resume()
        for epoch in range(start.epoch, epochs):
            if hasattr(getattr(loader, "sampler", None), "set_epoch"):
                loader.sampler.set_epoch(epoch)
            for numbers, x in loader:
                loss = model(x).square().mean() / accumulate
                loss.backward()
                if (ck.step_count + 1) % accumulate == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()
                best["loss"] = min(best["loss"], loss.item())
                rate = schedule.get_last_lr()[0] * by_epoch.get_last_lr()[0]
                numbers = numbers.tolist() if isinstance(numbers, torch.Tensor) else [numbers]
                log[ck.step_count + 1] = [epoch, numbers, rate, loss.item(), best["loss"]]
                told(ck.step_count + 1)
                ck.step()
                if ck.step_count == stop_at:
                    return start
            by_epoch.step()
    return start


def main() -> None:
    asked = json.loads(sys.argv[1])
    folder, log, how = Path(asked.pop("folder")), Path(asked.pop("log")), asked.pop("how")
    kill_at = asked.pop("kill_at")

    class Lines(dict):
        def __setitem__(self, step: int, seen: Any) -> None:
            with open(log, "a") as file:
                file.write(json.dumps([step, seen]) + "\n")

    def told(step: int) -> None:
        if step == kill_at and how == "SIGTERM":
            os.killpg(0, signal.SIGTERM)  # as a launcher does: the workers get it too
        if step == kill_at + 1 and how == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)

    train(folder, Lines(), told=told, **asked)


if __name__ == "__main__":
    main()
