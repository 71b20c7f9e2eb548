"""Loader workers of both kinds, later runs, and what the profile makes of it: in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = """
import json, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader
from jupyter_gpuprof import cached
from tests.cache.pipeline import Files, Flip, Scale, ToTensor

if __name__ == "__main__":
    root = Path(sys.argv[1])
    data = cached(Files(root, Scale(2), ToTensor()))
    told = {"key": data.key}
    for kind in sys.argv[2:]:
        sums = []
        for workers in (2, 2) if kind == "fork" else (1,):  # those by spawn take seconds to start
            loader = DataLoader(data, 5, shuffle=True, num_workers=workers, multiprocessing_context=kind)
            sums.append(sum(float(x.sum()) for x, _ in loader))
        told[kind] = sums
    told["made here"] = data.dataset.made
    data._kept._derived.refresh()
    told["kept"] = len(data._kept._derived)
    print(json.dumps(told))
"""


def run(script: Path, *words: str) -> dict:
    done = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_workers_by_fork_and_spawn_and_the_next_run(tmp_path: Path) -> None:
    from tests.cache.pipeline import write_files

    root = write_files(tmp_path / "data")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    right = float(sum(2 * (i + j) for i in range(20) for j in range(5)))
    first = run(script, str(root), "fork")
    assert first["fork"] == [right, right]
    assert first["made here"] == 16, "the check: 8 samples, twice; the rest was made by workers"
    assert first["kept"] == 20, "what the workers computed is kept when they end"
    second = run(script, str(root), "spawn")
    assert second["key"] == first["key"]
    assert second["spawn"] == [right]
    assert (second["made here"], second["kept"]) == (0, 20)
