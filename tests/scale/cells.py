"""Cells as a notebook has them, their namespace, and one way to scale them on this machine."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.records.scaling import Scaling, ScalingPoint
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.launch import Local
from jupyter_gpuprof.session.reruns.scale import OnUpdate, Scale
from jupyter_gpuprof.session.reruns.scaleoptions import ScaleOptions

SETUP = """
import os, time, torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
data = TensorDataset(torch.randn(240, 16), torch.randint(0, 4, (240,)))
loader = DataLoader(data, batch_size=4, shuffle=True)
"""
CELL = """
for epoch in range(20):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
"""


def namespace(more: str = "", setup: str = SETUP) -> dict[str, Any]:
    """The names of a notebook after its first cells."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(setup + more, names)
    return names


def scale(
    cell: str,
    names: dict[str, Any],
    counts: tuple[int, ...] = (2,),
    on_update: OnUpdate | None = None,
    **options: Any,
) -> Scaling:
    """The curve of a cell, by processes that have a core each or must do with less."""
    return Scale(
        Cell(cell),
        None,
        names,
        ScaleOptions(counts, **{"steps": 20, "repeats": 1, "allow_writes": True, **options}),
        backend=Local(8, 1),
        on_update=on_update,
    ).run()


def points(scaling: Scaling) -> dict[int, ScalingPoint]:
    """The points by count."""
    return {point.count: point for point in scaling.points}
