"""A real IPython shell in this process, and cells for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

SETUP = """
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Slow(Dataset):
    def __init__(self, n=60, ms=4): self.n, self.ms = n, ms
    def __len__(self): return self.n
    def __getitem__(self, i):
        time.sleep(self.ms / 1e3)
        return torch.randn(8), i % 4
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train_step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss
"""


class Cells:
    """Runs cells in a shell and keeps what was printed and displayed."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.stdout = self.stderr = ""
        self.outputs: list[Any] = []

    def run(self, source: str) -> Any:
        with capture_output() as captured:
            result = self.shell.run_cell(source, store_history=True)
        self.stdout, self.stderr, self.outputs = captured.stdout, captured.stderr, captured.outputs
        return result

    def report(self) -> str:
        """The report that was displayed, as text."""
        return "\n".join(o.data["text/plain"] for o in self.outputs if "text/html" in o.data)


@pytest.fixture
def cells() -> Iterator[Cells]:
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "jupyter_gpuprof")
    cells = Cells(shell)
    assert cells.run(SETUP).success
    yield cells
    shell.run_line_magic("unload_ext", "jupyter_gpuprof")
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()
