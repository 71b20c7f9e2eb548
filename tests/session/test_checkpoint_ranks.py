"""What a checkpoint costs in a job of two ranks: the same state on both, and a part of it on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

PROGRAM = """
    import faulthandler, json, sys
    from pathlib import Path
    import torch, torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from jupyter_gpuprof.errors import UsageError
    from jupyter_gpuprof.session.checkpoints.checkpointcost import measure_checkpoint
    from jupyter_gpuprof.store.trials import recent_curves
    from jupyter_gpuprof.records.spot import CheckpointCost

    def trained(sharded):
        torch.manual_seed(0)
        model = torch.nn.Linear(64, 32, bias=False)
        if sharded:
            fully_shard(model)
        else:
            model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        return {"model": model, "optimizer": optimizer}

    def rank_main(rank, folder):
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        torch.set_num_threads(1)
        answers = []
        for sharded in (False, True):
            space = trained(sharded)
            before = [p.detach().clone() for p in space["model"].parameters()]
            cost = measure_checkpoint(None, None, space, folder=folder / "to", repeats=2)
            same = all(bool((a == b).all()) for a, b in zip(before, space["model"].parameters()))
            answers.append([[way.how, way.size_bytes, way.durable_s, way.load_s] for way in cost.ways])
            answers.append([same, cost.parameter_bytes, list(cost.notes)])

        def save(path):
            if rank:
                raise ValueError("no room")
            Path(path).write_bytes(b"x")

        try:
            measure_checkpoint(None, None, {"save": save}, folder=folder / "to", save="save", repeats=1)
        except UsageError as error:
            answers.append(str(error))
        (folder / f"rank{rank}").write_text(json.dumps(answers))
        if not rank:
            (folder / "kept").write_text(str(len(recent_curves(CheckpointCost))))
        dist.destroy_process_group()

    faulthandler.dump_traceback_later(100, exit=True)
    rank_main(int(sys.argv[2]), Path(sys.argv[1]))
"""


def test_two_ranks(tmp_path: Path) -> None:
    """Each time is that of the slower rank, the same on both; nothing is left, and one record is kept."""
    (tmp_path / "to").mkdir()
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(PROGRAM))
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
        "JUPYTER_GPUPROF_DATABASE": str(tmp_path / "runs.sqlite"),
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), str(tmp_path), str(rank)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in processes:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    first, second = (json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(2))
    assert first[:4] == second[:4]
    whole, (same, parameter_bytes, _), parts, (same_too, all_bytes, notes), failed = first
    assert same
    assert same_too
    assert parameter_bytes == all_bytes == 64 * 32 * 4  # of the model, not of a rank's part
    assert [way[0] for way in whole] == ["torch.save", "asynchronous"]
    assert [way[0] for way in parts] == ["asynchronous"]
    for _, size_bytes, durable_s, load_s in (*whole, *parts):
        assert 3 * parameter_bytes < size_bytes < 3 * parameter_bytes + 60_000
        assert durable_s > 0
        assert load_s > 0
    assert any("Each rank holds a part" in note for note in notes)
    assert failed.startswith("Another rank could not save or load.")
    assert second[4] == "The function failed with ValueError: no room."
    assert list((tmp_path / "to").iterdir()) == []
    assert (tmp_path / "kept").read_text() == "2"
