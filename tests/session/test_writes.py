"""A cell that writes files is seen, wherever the writing stands; one that does not is left in peace."""

from __future__ import annotations

import importlib
import io
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.session.reruns.cell import plain_source
from jupyter_gpuprof.session.reruns.writes import FileWrite, file_writes, refuse_writes

IMPORTS = """
import io, json, os, pickle, shutil, subprocess, sys
from pathlib import Path
import numpy as np
import pandas as pd
import torch, yaml
from torch import nn
from torch import save as keep
from PIL import Image
"""


def notebook(source: str, number: list[int] = [0]) -> dict[str, Any]:  # noqa: B006
    """The namespace of a kernel after a cell, whose source IPython keeps in linecache."""
    number[0] += 1
    name = f"<ipython-input-{number[0]}-test>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(IMPORTS, "<imports>", "exec"), namespace)
    exec(compile(source, name, "exec"), namespace)
    return namespace


NOTHING = notebook("")


@pytest.mark.parametrize(
    "line",
    [
        "torch.save(model, 'x.pt')",
        "keep(model, 'x.pt')",
        "torch.jit.save(model, 'x.pt')",
        "import torch as t; t.save(model, 'x.pt')",
        "from pickle import dump; dump(model, file)",
        "open('x', 'w')",
        "open('x', mode='a')",
        "open('x', 'r+b')",
        "open('x', mode)",
        "io.open('x', 'xb')",
        "Path('x').open('w')",
        "Path('x').write_text('y')",
        "out_dir.joinpath('x').write_bytes(b'y')",
        "pickle.dump(model, file)",
        "json.dump(model, file)",
        "yaml.dump(model, file)",
        "np.save('x', model)",
        "np.savez_compressed('x', model)",
        "np.savetxt('x', model)",
        "frame.to_csv('x.csv')",
        "frame.to_json('x.json')",
        "pd.DataFrame(rows).to_parquet('x')",
        "figure.savefig('x.png')",
        "model.save_pretrained('x')",
        "trainer.save_checkpoint('x')",
        "accelerator.save_state('x')",
        "shutil.rmtree('x')",
        "os.remove('x')",
        "os.makedirs('x')",
        "os.system('x')",
        "subprocess.run(['x'])",
        "import subprocess as s; s.check_output('x')",
        "Image.new('L', (1, 1)).save('x.png')",
        "import cv2; cv2.imwrite('x.png', image)",
        "from torch.utils.tensorboard import SummaryWriter; writer = SummaryWriter()",
        "import wandb; wandb.init(project='x')",
        "import mlflow; mlflow.start_run()",
        "from safetensors.torch import save_file; save_file(model, 'x')",
        "import h5py; h5py.File('x', 'w')",
        "!rm x",
        "!cat x > y",
        "files = !make",
        "%time torch.save(model, 'x.pt')",
        "%pip install x",
        "import lightning as L; L.Trainer(max_epochs=1)",
        "import lightning as L; L.Trainer(logger=False)",
        "from transformers import TrainingArguments; TrainingArguments('out')",
    ],
)
def test_a_line_that_writes(line: str) -> None:
    cell = f"x = 1\n{line}\n"
    (found,) = file_writes(plain_source(cell), NOTHING, cell)
    assert (found.line, found.place, found.text) == (2, "the cell", line)


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "open('x', 'rb').read()",
        "Path('x').open()",
        "Path('x').read_text()",
        "Image.open('x').convert('RGB')",
        "torch.load('x')",
        "np.load('x')",
        "pickle.dumps(model), json.dumps(model), yaml.dump(model)",
        "buffer = io.BytesIO(); torch.save(model, buffer)",
        "json.dump(model, sys.stdout)",
        "frame.to_csv()",
        "text.replace('a', 'b'); names.copy(); stack.remove(x); d.update(x)",
        "os.path.join('a', 'b'); os.environ.copy(); os.makedirs('x', exist_ok=True)",
        "state.save()",
        "open(os.devnull, 'w')",
        "!nvidia-smi",
        "%time model(x)",
        "import lightning as L; L.Trainer(logger=False, enable_checkpointing=False)",
        "from transformers import TrainingArguments; TrainingArguments('out', save_strategy='no')",
        "for x in loader: optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()",
    ],
)
def test_a_line_that_does_not(line: str) -> None:
    assert file_writes(plain_source(line), NOTHING) == ()


def test_a_cell_that_is_a_file() -> None:
    source = "get_ipython().run_cell_magic('writefile', 'x.py', 'a = 1')"
    assert [found.what for found in file_writes(source, {})] == ["%%writefile"]


FUNCTIONS = """
class Keeper:
    def __init__(self, model):
        self.model = model

    def keep(self, path):
        self._write(path)

    def _write(self, path):
        torch.save(self.model, path)

    def never(self):
        os.remove("x")

class Net(nn.Module):
    def forward(self, x):
        return x

    def save(self, path):
        torch.save(self, path)

class Cached(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.read(i)

    def read(self, i):
        np.save(f"{i}.npy", i)

def train(model):
    finish(model)

def finish(model):
    torch.save(model, "x.pt")

def fine(model):
    return model(1)

model = Net()
keeper = Keeper(model)
loader = torch.utils.data.DataLoader(Cached())
save_all = lambda: torch.save(model, "x.pt")
"""


@pytest.mark.parametrize(
    ("cell", "place", "text"),
    [
        ("train(model)", "finish", 'torch.save(model, "x.pt")'),
        ("keeper.keep('x')", "Keeper._write", "torch.save(self.model, path)"),
        ("model.save('x')", "Net.save", "torch.save(self, path)"),
        ("for x in loader: pass", "Cached.read", 'np.save(f"{i}.npy", i)'),
        ("save_all()", "<lambda>", 'save_all = lambda: torch.save(model, "x.pt")'),
        ("def here(): keeper.keep('x')\nhere()", "Keeper._write", "torch.save(self.model, path)"),
    ],
)
def test_a_function_of_the_notebook_that_writes(cell: str, place: str, text: str) -> None:
    (found,) = file_writes(cell, notebook(FUNCTIONS))
    line = 1 + FUNCTIONS.splitlines().index(next(row for row in FUNCTIONS.splitlines() if text in row))
    assert (found.line, found.place, found.text) == (line, place, text)


@pytest.mark.parametrize("cell", ["fine(model)", "model(1)", "keeper.model", "Net()"])
def test_methods_that_nobody_calls_are_no_alarm(cell: str) -> None:
    assert file_writes(cell, notebook(FUNCTIONS)) == ()


def test_a_module_of_the_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytraining_of_test.py").write_text(
        "import torch\n\ndef fit(m):\n    torch.save(m, 'x.pt')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("mytraining_of_test")
    place = "fit (mytraining_of_test.py)"
    expected = (FileWrite(4, place, "torch.save(m, 'x.pt')", "torch.save"),)
    assert file_writes("mod.fit(1)", {"mod": module}) == expected
    assert file_writes("fit(1)", {"fit": module.fit}) == expected
    del sys.modules["mytraining_of_test"]


def test_a_library_is_not_looked_into() -> None:
    assert (
        file_writes("torch.compile(model); torch.hub", {"torch": torch, "model": torch.nn.Linear(1, 1)}) == ()
    )


def test_a_buffer_of_the_namespace() -> None:
    assert file_writes("torch.save(1, b)", {"torch": torch, "b": io.BytesIO()}) == ()


@pytest.mark.slow
def test_trainers_that_live_already(tmp_path: Path) -> None:
    import lightning

    loud = lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path)
    quiet = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    (found,) = file_writes("trainer.fit(model)", {"trainer": loud})
    assert (found.line, found.what) == (1, "Trainer")
    assert file_writes("trainer.fit(model)", {"trainer": quiet}) == ()


def test_the_refusal_names_the_line() -> None:
    cell = "n = 1\nfor x in y:\n    torch.save(x, 'a.pt')\n!rm b\n"
    with pytest.raises(UsageError) as caught:
        refuse_writes(cell, plain_source(cell), NOTHING)
    assert str(caught.value) == (
        "Line 3 of the cell writes files, and a rerun would write them again: torch.save(x, 'a.pt') "
        "(and 1 more). With --allow-writes it is rerun all the same."
    )
    refuse_writes("x = 1", "x = 1", NOTHING)
