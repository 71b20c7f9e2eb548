"""The checkpoints of Lightning and of Hugging Face's Trainer, by the real libraries on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.session.audit.audit import audit_cell
from jupyter_gpuprof.session.reruns.cell import Cell
from tests.audit.cells import notebook

pytestmark = pytest.mark.slow

LIGHTNING_SETUP = """
import logging
import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)
module = Module()
"""
LIGHTNING = """
saving = ModelCheckpoint("checkpoints", every_n_train_steps=1, save_top_k=-1, save_last=True)
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_progress_bar=False,
                     enable_model_summary=False, callbacks=[saving])
trainer.fit(module, loader, ckpt_path="last")
"""
TRAINER_SETUP = """
import transformers
from transformers.trainer_utils import get_last_checkpoint
class Text(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return {"input_ids": torch.full((4,), i), "labels": torch.full((4,), i)}
config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, n_positions=16, vocab_size=32)
network = transformers.GPT2LMHeadModel(config)
"""
TRAINER = """
arguments = transformers.TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[],
    disable_tqdm=True, logging_strategy="no", save_strategy="steps", save_steps=1, num_train_epochs=4)
trainer = transformers.Trainer(network, arguments, train_dataset=Text())
last = get_last_checkpoint("out") if os.path.isdir("out") else None
trainer.train(resume_from_checkpoint=last)
"""
CASES = ("in the middle of epoch 0", "exactly")


def audited(setup: str, cell: str, *only: str) -> ResumeAudit:
    return audit_cell(Cell(cell), None, notebook(setup).namespace, only=only or CASES)


def test_lightning_begins_the_epoch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plain DataLoader it keeps neither the position nor the random state that shuffles."""
    pytest.importorskip("lightning.pytorch")
    monkeypatch.chdir(tmp_path)
    found = audited(LIGHTNING_SETUP, LIGHTNING)
    assert found.outcome == "differs"
    assert [(case.missing, case.first_step) for case in found.cases] == [
        ("loader position", 2),
        ("shuffle", 4),
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_trainer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes over the batches that were read, and keeps the random states."""
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    found = audited(TRAINER_SETUP, TRAINER)
    assert [(case.outcome, case.went_on_after) for case in found.cases] == [
        ("identical", 1),
        ("identical", 3),
    ]
    assert list(tmp_path.iterdir()) == []
