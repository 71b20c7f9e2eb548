"""What only a real accelerator can show; skipped where there is none.

Written without one at hand: on its first run, doubt these tests as much as the product.
"""

from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from jupyter_gpuprof import profile
from jupyter_gpuprof.probes.events import torch_events
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


class Slow(Dataset):
    def __init__(self, steps: int, ms: float) -> None:
        self.steps, self.ms = steps, ms

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(self.ms / 1e3)
        return torch.randn(64, 512)


def cycles_per_ms() -> int:
    """How long `torch.cuda._sleep` spins, measured."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(10_000_000)
    start.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    end.synchronize()
    return int(100_000_000 / start.elapsed_time(end))


def train(kernel_ms: float, loader_ms: float, *, sync: bool = False, kernels: int | None = 0) -> Run:
    spin = int(kernel_ms * cycles_per_ms())
    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with profile("gpu", kernels=kernels, save=False) as p:
        for x in DataLoader(Slow(60, loader_ms), batch_size=None, pin_memory=True):
            x = x.cuda(non_blocking=True)
            torch.cuda._sleep(spin)
            loss = model(x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if sync:
                loss.item()
    return p.run


@pytest.mark.parametrize(
    ("kernel_ms", "loader_ms", "sync", "idle_ms"),
    [(20, 5, False, 0), (20, 15, False, 0), (20, 25, False, 5), (20, 60, False, 40), (5, 50, False, 45),
     (20, 15, True, 15)],
)  # fmt: skip
def test_exposed_stall(kernel_ms: float, loader_ms: float, sync: bool, idle_ms: float) -> None:
    run = train(kernel_ms, loader_ms, sync=sync)
    share = run.shares.exposed_input
    assert run.clock == "device"
    assert not isinstance(share, Missing)
    assert 1e3 * share.value * float(run.steps.mean_s) == pytest.approx(idle_ms, abs=2.5)


def test_the_window_and_the_events_agree() -> None:
    run = train(10, 20, kernels=None)
    assert not isinstance(run.ops, Missing)
    assert "agree" in run.ops.agreement
    assert not isinstance(run.shares.host_gap, Missing)


def test_generic_events_are_cudas() -> None:
    backend = torch_events(torch.device("cuda", 0))
    assert backend is not None
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a = backend.record()
    first.record()
    torch.cuda._sleep(50_000_000)
    b = backend.record()
    second.record()
    second.synchronize()
    assert 1e3 * backend.elapsed_s(a, b) == pytest.approx(first.elapsed_time(second), rel=0.02)


def test_a_captured_graph_is_left_alone() -> None:
    model = torch.nn.Linear(512, 512).cuda()
    static = torch.randn(64, 512, device="cuda")
    model(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with profile("graph", kernels=0, save=False):
        for x in DataLoader(Slow(30, 1), batch_size=None):
            static.copy_(x)
            if graph is not None and not hasattr(graph, "captured"):
                with torch.cuda.graph(graph):
                    y = model(static)
                graph.captured = True  # type: ignore[attr-defined]
            graph.replay()
    assert y.shape == (64, 512)
