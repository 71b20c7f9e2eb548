"""What a loader without workers does while the training waits for it: wait, or compute."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader

from tests.session.live import Naps, Net, run_of

pytestmark = pytest.mark.alone


def test_a_loader_that_sleeps_is_seen_to_wait() -> None:
    net = Net(Naps(), 0)
    run = run_of(lambda: [net.train(x) for x in DataLoader(SleepyItems(80, 0.005), batch_size=None)])
    (loader,) = run.loaders
    assert float(loader.cpu_ratio) < 0.3
    assert any("num_workers" in remedy.title for remedy in run.remedies)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process to a core")
def test_a_loader_that_computes_on_a_busy_core_is_not_seen_to_wait() -> None:
    """More workers would wait for the cores as well."""
    net = Net(Naps(), 0)
    cores = os.sched_getaffinity(0)
    core = min(cores)
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        os.sched_setaffinity(0, {core})
        try:
            run = run_of(lambda: [net.train(x) for x in DataLoader(SpinningItems(60, 0.01), batch_size=None)])
        finally:
            os.sched_setaffinity(0, cores)
            busy.kill()
    (loader,) = run.loaders
    assert loader.wait_s > 60 * 0.014  # two on one core
    assert float(loader.cpu_ratio) > 0.8


class SpinningItems(torch.utils.data.Dataset):
    """Items that take processor time."""

    def __init__(self, items: int, seconds: float) -> None:
        self.items, self.seconds = items, seconds

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> torch.Tensor:
        begun = time.thread_time()
        while time.thread_time() - begun < self.seconds:
            pass
        return torch.zeros(4)


class SleepyItems(torch.utils.data.Dataset):
    def __init__(self, n: int, seconds: float) -> None:
        self.n, self.seconds = n, seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(4)
