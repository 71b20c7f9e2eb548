"""A run counts the checkpoints that its loop writes, by whatever means."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader, TensorDataset

from jupyter_gpuprof import Checkpointer
from tests.session.live import run_of


class Loop:
    """Twenty steps; after every fifth something is done."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.loader = DataLoader(TensorDataset(torch.zeros(40, 4)), batch_size=2)

    def __call__(self, each_fifth: Any, each: Any = lambda: None) -> None:
        for number, (x,) in enumerate(self.loader, start=1):
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()
            each()
            if number % 5 == 0:
                each_fifth(self.model.state_dict(), number)


def two_files(folder: Path) -> Any:
    def save(state: dict[str, Any], number: int) -> None:
        torch.save(state, folder / f"{number}.pt")
        torch.save({"step": number}, folder / f"{number}-step.pt")

    return save


def distributed(folder: Path) -> Any:
    return lambda state, number: dcp.save(dict(state), checkpoint_id=folder / str(number), no_dist=True)


@pytest.mark.parametrize("way", [two_files, distributed])
def test_saves_of_the_persons_own(tmp_path: Path, way: Any) -> None:
    loop = Loop()
    run = run_of(lambda: loop(way(tmp_path)))
    assert run.saves == 4
    assert run.shares.between.checkpoint.value > 0


def test_a_pickle_of_metrics_is_none(tmp_path: Path) -> None:
    loop = Loop()
    assert run_of(lambda: loop(lambda state, number: pickle.dumps(number))).saves == 0


def test_saves_of_our_own_in_the_background(tmp_path: Path) -> None:
    loop = Loop()
    with Checkpointer(
        tmp_path / "checkpoints", every=5, model=loop.model, optimizer=loop.optimizer, loader=loop.loader
    ) as ck:
        run = run_of(lambda: loop(lambda *_: ck.wait(), ck.step))
    assert run.saves == 4
    assert run.shares.between.checkpoint.value > 0
