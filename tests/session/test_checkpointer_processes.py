"""Fresh processes, killed as a scheduler does it, go on as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.session.resumeloop import train

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
END = 10**6


def run(folder: Path, kill_at: int, how: str, **options: Any) -> int:
    asked = {
        "folder": str(folder / "ck"), "log": str(folder / "log"), "kill_at": kill_at, "how": how, **options,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.session.resumeloop", json.dumps(asked)],
        cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, told = process.communicate(timeout=60)
    assert "Traceback" not in told, told
    return process.returncode


@pytest.mark.parametrize(("how", "workers"), [("SIGKILL", 0), ("SIGTERM", 2)])
def test_killed_and_begun_again(tmp_path: Path, how: str, workers: int) -> None:
    """In the middle of pass 0, twice; exactly at its end; in the middle of pass 1.

    With SIGTERM, which the workers get as well, nothing is saved before.
    """
    straight: dict[int, Any] = {}
    train(tmp_path / "straight", straight, workers=workers, epochs=2)
    every = 1 if how == "SIGKILL" else END
    expected = -signal.SIGKILL if how == "SIGKILL" else 128 + signal.SIGTERM
    options = {"workers": workers, "epochs": 2, "every": every, "async_": how == "SIGTERM"}
    for seed, kill_at in enumerate((3, 5, 8, 11, END)):
        code = run(tmp_path, kill_at, how, seed=seed, **options)
        assert code == (0 if kill_at == END else expected)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    seen = dict(lines)
    assert seen == straight
    again = len(lines) - len(straight)
    # Killed in step n + 1, which was seen, but not made; after SIGTERM no step is made again.
    assert again == (4 if how == "SIGKILL" else 0)


RANKS = """
    import json, os, signal, sys
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler
    from jupyter_gpuprof.session.checkpoints.checkpointer import Checkpointer, Interruption
    from tests.session.resumeloop import Items

    folder, tell_at, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 1)
    loader = DataLoader(Items(), 2, sampler=DistributedSampler(Items(), seed=2))
    seen, code = [], 0
    with Checkpointer(folder, every="1h", async_=True, model=model, loader=loader) as ck:
        start = ck.resume()
        try:
            for epoch in range(start.epoch, 2):
                loader.sampler.set_epoch(epoch)
                for numbers, _ in loader:
                    if rank == 1 and ck.step_count + 1 == tell_at:
                        os.kill(os.getpid(), signal.SIGTERM)  # one of them only
                    seen.append([numbers.tolist(), torch.rand(1).item()])
                    ck.step()
        except Interruption as end:
            code = end.code
    with open(f"{folder}.rank{rank}", "a") as file:
        file.write(json.dumps([start.step, ck.step_count, code, seen]) + "\\n")
    dist.destroy_process_group()
"""


def launch(tmp_path: Path, folder: Path, tell_at: int) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(RANKS))
    port = str(20_000 + os.getpid() % 20_000)
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), str(folder), str(tell_at), "2"],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        _, told = process.communicate(timeout=90)
        assert process.returncode == 0, told


def test_all_ranks_save_at_the_same_step(tmp_path: Path) -> None:
    """Only one of them is told to end; both save at the next step, and both go on at it."""
    launch(tmp_path, tmp_path / "straight", END)
    folder = tmp_path / "ck"
    launch(tmp_path, folder, 4)
    launch(tmp_path, folder, END)
    for rank in range(2):
        (straight,) = map(json.loads, (tmp_path / f"straight.rank{rank}").read_text().splitlines())
        first, second = map(json.loads, (tmp_path / f"ck.rank{rank}").read_text().splitlines())
        assert first[:3] == [0, 5, 128 + signal.SIGTERM if rank == 1 else first[2]]
        assert first[2] == 128 + signal.SIGTERM
        assert second[:3] == [5, 16, 0]
        assert first[3] + second[3] == straight[3]
    (made,) = folder.glob("step-*")
    assert sorted(p.name for p in made.iterdir()) == [
        "manifest.json", "rank0.pt", "rank1.pt", "rank1.pt.written", "state.pt",
    ]  # fmt: skip
