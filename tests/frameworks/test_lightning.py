"""Lightning's Trainer as it is: no callback of ours, nothing changed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from tests.session.live import Naps, SleepyData, assert_share, run_of, share, steady

pl = pytest.importorskip("lightning.pytorch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Module(pl.LightningModule):
    """A person's module."""

    def __init__(self, naps: Naps, ms: float = 4.0) -> None:
        super().__init__()
        self.naps, self.ms = naps, ms
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        self.naps("compute", self.ms)
        return self.layer(batch).sum()

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.naps("validation", 5)
        self.layer(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-4)


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def trainer(**options: object) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(**{"accelerator": "cpu", "enable_checkpointing": False, **quiet, **options})


def test_warm_up(tmp_path: Path) -> None:
    """What a first fit imports and sets up is not part of the tests below."""
    trainer(max_steps=2, default_root_dir=tmp_path).fit(
        Module(Naps(), 0), DataLoader(SleepyData(Naps(), 4, 0))
    )


@steady
def test_input_bound(tmp_path: Path) -> None:
    naps = Naps()
    train = DataLoader(SleepyData(naps, 30, 8), batch_size=1)
    run = run_of(lambda: trainer(max_epochs=2, default_root_dir=tmp_path).fit(Module(naps), train))
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (60, 0, 60)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    assert [(item.role, item.fetches) for item in run.loaders] == [("training", 60)]


@steady
def test_validation_is_its_own(tmp_path: Path) -> None:
    naps = Naps()
    train = DataLoader(SleepyData(naps, 30, 0), batch_size=1)
    val = DataLoader(SleepyData(naps, 10, 5, "validation"), batch_size=1)
    run = run_of(lambda: trainer(max_epochs=2, default_root_dir=tmp_path).fit(Module(naps, 6), train, val))
    assert (run.steps.counted, run.steps.failed) == (60, 0)
    # Of the sanity check before the first step two batches are not in it.
    assert_share(run, "between.validation", naps.seconds["validation"] * 20 / 22)
    assert share(run, "exposed_input") < 0.1
    assert run.verdict.label != "input-bound"
    assert {item.role: item.fetches for item in run.loaders} == {"training": 60, "validation": 22}


def test_gradient_accumulation(tmp_path: Path) -> None:
    naps = Naps()
    train = DataLoader(SleepyData(naps, 40, 2), batch_size=1)
    fit = trainer(max_epochs=1, accumulate_grad_batches=4, default_root_dir=tmp_path).fit
    run = run_of(lambda: fit(Module(naps, 1), train))
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (40, 0, 10)


def test_checkpoints_are_seen(tmp_path: Path) -> None:
    naps = Naps()
    train = DataLoader(SleepyData(naps, 10, 1), batch_size=1)
    fit = trainer(max_epochs=3, enable_checkpointing=True, default_root_dir=tmp_path).fit
    run = run_of(lambda: fit(Module(naps, 1), train))
    assert run.steps.counted == 30
    assert share(run, "between.checkpoint") > 0
    assert list(tmp_path.rglob("*.ckpt"))


def test_stream_whose_length_is_unknown(tmp_path: Path) -> None:
    """Lightning fetches one batch ahead then; no step is failed for that."""
    from tests.session.live import SleepyStream

    naps = Naps()
    train = DataLoader(SleepyStream(naps, 20, 2), batch_size=1)
    run = run_of(lambda: trainer(max_epochs=2, default_root_dir=tmp_path).fit(Module(naps, 1), train))
    assert (run.steps.counted, run.steps.failed) == (40, 0)


def test_its_checkpoints_are_counted(tmp_path: Path) -> None:
    module, train = Module(Naps(), 0), DataLoader(SleepyData(Naps(), 12, 0), batch_size=1)
    keeper = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=4, save_top_k=-1)
    run = run_of(
        lambda: trainer(max_epochs=1, enable_checkpointing=True, callbacks=[keeper]).fit(module, train)
    )
    assert len(list(tmp_path.glob("*.ckpt"))) == 3
    assert run.saves == 3
