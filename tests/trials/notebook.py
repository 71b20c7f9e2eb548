"""A kernel's namespace without a kernel: cells, the last profiled one, and reruns of it."""

from __future__ import annotations

import linecache
from typing import Any

import torch

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.trial import Trial
from jupyter_gpuprof.session.profile import Options, Session
from jupyter_gpuprof.session.reruns.cell import Cell, compile_cell, plain_source, run_cell
from jupyter_gpuprof.session.reruns.trial import try_change

#: A small model and a loader of items that sleep.
SETUP = """
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(0)
class Slow(Dataset):
    def __init__(self, n=60, ms=4): self.n, self.ms = n, ms
    def __len__(self): return self.n
    def __getitem__(self, i):
        time.sleep(self.ms / 1e3)
        return torch.randn(8), i % 4
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
loader = DataLoader(Slow(), batch_size=2)
"""
LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


class Notebook:
    """Runs cells and profiles one."""

    def __init__(self, setup: str = SETUP, **names: Any) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__main__", **names}
        self.execute(setup)

    def execute(self, source: str) -> None:
        name = f"<ipython-input-{len(linecache.cache)}-test>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), self.namespace)

    def profile(self, cell: str = LOOP) -> Run:
        """What ``%%gpuprof`` does with a cell."""
        session = Session(Options("cell"))
        session.start()
        try:
            run_cell(compile_cell(plain_source(cell)), self.namespace)
        finally:
            self.run = session.finish()
        mean = None if isinstance(self.run.steps.mean_s, Missing) else float(self.run.steps.mean_s)
        self.cell = Cell(cell, self.run.run_id, "cell", mean)
        return self.run

    def try_change(self, *words: str, **options: Any) -> Trial:
        """What ``%gpuprof try`` does."""
        return try_change(self.cell, self.run, self.namespace, words, **options)

    def state(self) -> dict[str, Any]:
        """What a rerun must not change: names and objects, parameters, optimizer, random numbers."""
        model, optimizer = self.namespace["model"], self.namespace["optimizer"]
        tensors = [*model.state_dict().values()]
        tensors += [s["momentum_buffer"] for s in optimizer.state.values() if "momentum_buffer" in s]
        return {
            "names": {name: id(value) for name, value in self.namespace.items()},
            "tensors": [tensor.numpy().tobytes() for tensor in tensors],
            "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
            "random": bytes(torch.get_rng_state().numpy().tobytes()),
            "threads": torch.get_num_threads(),
            "workers": self.namespace["loader"].num_workers,
        }
