"""Two real gloo ranks under torchrun: one report, and the right rank named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.session.ranks import job_table
from jupyter_gpuprof.store.database import database_path
from jupyter_gpuprof.store.rankfolder import collect, rank_folder, rank_of

SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, late, starved = dist.get_rank(), int(sys.argv[1]), int(sys.argv[2])
class Data(Dataset):
    def __len__(self): return 160
    def __getitem__(self, i):
        if rank == starved: time.sleep(0.02)
        return torch.randn(64), i % 10
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(Data(), batch_size=2, sampler=DistributedSampler(Data())):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if rank == late: time.sleep(0.05)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
dist.destroy_process_group()
"""


def two_ranks(folder: Path, *options: str, late: int = -1, starved: int = -1) -> tuple[dict[str, Any], str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "jupyter_gpuprof.cli.main", "run", "--json", str(folder / "run.json"), *options,
        str(folder / "train.py"), str(late), str(starved),
    ]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run.json").read_text()), done.stdout


@pytest.mark.slow
def test_a_rank_that_sleeps_before_each_all_reduce_is_named(tmp_path: Path) -> None:
    run, printed = two_ranks(tmp_path, "--kernels", "8", late=1)
    assert run["ranks"]["late_rank"] == 1
    first, second = run["ranks"]["rows"]
    assert first["exposed_communication_ratio"] > 0.8
    assert first["label"] == "communication-bound"
    assert second["host_gap_ratio"] > 0.8
    assert second["label"] == "host-bound"
    assert printed.count("Rank 1 is late") == 1, "one report, by rank 0"
    assert not (database_path().parent / "ranks").exists(), "the ranks' files are gone"


@pytest.mark.slow
def test_a_starved_rank_is_named_without_any_window(tmp_path: Path) -> None:
    run, printed = two_ranks(tmp_path, starved=1)
    assert run["ranks"]["starved_rank"] == 1
    assert [row["label"] for row in run["ranks"]["rows"]][1] == "input-bound"
    assert "Rank 1 is starved" in printed
    first, second = run["ranks"]["rows"]
    # Without a window: the tail of DDP's backward pass is a lower bound of what rank 0 waits for rank 1.
    assert first["exposed_communication_ratio"] > 0.5
    assert second["exposed_input_ratio"] > 0.8
    assert run["device"]["count"] == 2


def test_launchers_tell_the_rank() -> None:
    assert rank_of({"RANK": "3", "WORLD_SIZE": "8"}) == (3, 8)
    assert rank_of({}) == (0, 1)
    assert rank_of({"RANK": "x", "WORLD_SIZE": "8"}) == (0, 1)
    assert rank_of({"RANK": "9", "WORLD_SIZE": "8"}) == (0, 1)


def test_jobs_do_not_share_a_folder() -> None:
    one, other = rank_folder({"TORCHELASTIC_RUN_ID": "a/b"}), rank_folder({"TORCHELASTIC_RUN_ID": "c"})
    assert one != other
    assert one.parent == other.parent, "no way out of our folder"


def test_rank_0_does_not_wait_for_ever(tmp_path: Path) -> None:
    now = [0.0]
    folder = tmp_path / "ranks" / "job" / "0"
    folder.mkdir(parents=True)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    assert collect(folder, 4, patience_s=5, sleep=sleep, now_s=lambda: now[0]) == []
    assert now[0] == pytest.approx(5, abs=0.1)
    assert not folder.exists()


def test_the_job_is_the_mean_of_its_ranks() -> None:
    def table(compute_s: float, rows: int, missing: dict[Part, str] | None = None) -> StepTable:
        seconds = np.zeros((rows, len(Part)))
        seconds[:, Part.COMPUTE] = compute_s
        return StepTable(seconds, 1, missing or {})

    job = job_table([table(1.0, 10), table(3.0, 8, {Part.COPIES: "why"})])
    assert job.part_s(Part.COMPUTE) == pytest.approx(2.0 * 8)
    assert job.missing == {Part.COPIES: "why"}
