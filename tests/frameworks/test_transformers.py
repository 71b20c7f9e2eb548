"""Hugging Face's Trainer as it is, with a tiny model made from a config: nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from jupyter_gpuprof.probes.changes import apply
from jupyter_gpuprof.records.settings import parse_settings
from tests.session.live import Naps, assert_share, assert_whole, missing, run_of, share, steady

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Text(Dataset):
    """Tokens that take their time."""

    def __init__(self, naps: Naps, items: int, ms: float, name: str = "input") -> None:
        self.naps, self.items, self.ms, self.name = naps, items, ms, name

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        self.naps(self.name, self.ms)
        return {"input_ids": torch.arange(8), "labels": torch.arange(8)}


def trainer(folder: Path, train: Dataset, evaluate: Dataset | None = None, **options: object):
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, n_positions=16, vocab_size=32)
    quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "save_strategy": "no"}
    arguments = transformers.TrainingArguments(
        **{"output_dir": str(folder), "per_device_train_batch_size": 1, "use_cpu": True, **quiet, **options}
    )
    return transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=train, eval_dataset=evaluate
    )


def test_warm_up(tmp_path: Path) -> None:
    """What a first training imports and sets up is not part of the tests below."""
    trainer(tmp_path, Text(Naps(), 4, 0), max_steps=2).train()


@steady
def test_input_bound(tmp_path: Path) -> None:
    naps = Naps()
    train = trainer(tmp_path, Text(naps, 30, 30), num_train_epochs=1).train
    run = run_of(train)
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (30, 0, 30)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    assert missing(run, "copies")  # not seen is not 0.0
    assert_whole(run)


@pytest.mark.parametrize("epochs", [1, 2])
def test_gradient_accumulation(tmp_path: Path, epochs: int) -> None:
    """All batches of a step are fetched before the first backward pass; no step is failed for that."""
    naps = Naps()
    options = {"gradient_accumulation_steps": 4, "num_train_epochs": epochs}
    run = run_of(trainer(tmp_path, Text(naps, 22, 3), **options).train)
    assert (run.steps.counted, run.steps.failed) == (22 * epochs, 0)
    assert run.steps.optimizer_steps == 6 * epochs  # the last one of an epoch has two batches
    assert_share(run, "exposed_input", naps.seconds["input"])


def test_a_step_of_accumulated_batches_is_one_batch_long(tmp_path: Path) -> None:
    naps = Naps()
    options = {"gradient_accumulation_steps": 4, "num_train_epochs": 1}
    run = run_of(trainer(tmp_path, Text(naps, 40, 5), **options).train)
    assert run.steps.typical_s == pytest.approx(run.steps.mean_s, rel=0.3)


def test_training_that_ends_within_an_epoch(tmp_path: Path) -> None:
    run = run_of(trainer(tmp_path, Text(Naps(), 60, 0), max_steps=25).train)
    assert run.steps.failed == 0
    assert run.steps.optimizer_steps == 25


@steady
def test_evaluation_is_validation(tmp_path: Path) -> None:
    naps = Naps()
    options = {"num_train_epochs": 2, "eval_strategy": "epoch", "per_device_eval_batch_size": 1}
    train = trainer(tmp_path, Text(naps, 20, 0), Text(naps, 10, 15, "validation"), **options).train
    run = run_of(train)
    assert (run.steps.counted, run.steps.failed) == (40, 0)
    assert share(run, "between.validation") > naps.seconds["validation"] / run.steps.total_s - 0.07
    assert share(run, "exposed_input") < 0.1
    assert {item.role for item in run.loaders} == {"training", "validation"}


def test_checkpoints_are_seen(tmp_path: Path) -> None:
    options = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 10}
    run = run_of(trainer(tmp_path, Text(Naps(), 30, 0), **options).train)
    assert share(run, "between.checkpoint") > 0
    assert list(tmp_path.rglob("*.safetensors"))


def test_the_line_to_change_is_the_trainers(tmp_path: Path) -> None:
    """It makes its loaders itself: a ``DataLoader(...)`` to change is nowhere in the cell."""
    applied = apply(parse_settings(["num_workers=2", "prefetch_factor=4"]), {})
    with contextlib.ExitStack() as stack:
        for context in applied.contexts:
            stack.enter_context(context)
        loader = trainer(tmp_path, Text(Naps(), 4, 0)).get_train_dataloader()
    assert loader.num_workers == 2
    assert applied.lines == (
        "TrainingArguments(..., dataloader_num_workers=2, dataloader_prefetch_factor=4)",
    )


def test_its_checkpoints_are_counted(tmp_path: Path) -> None:
    """Each of them is a folder of many files, the model's by safetensors."""
    saving = trainer(tmp_path, Text(Naps(), 12, 0), num_train_epochs=1, save_strategy="steps", save_steps=4)
    run = run_of(saving.train)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 3
    assert run.saves == 3
