"""Ctrl-C in each phase: nothing is left, and what was measured is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_ctrl_c_in_each_phase(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale.interrupted"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = {name: left for line in done.stdout.splitlines() for name, left in json.loads(line).items()}
    assert list(told) == ["shipping", "launching", "running", "between"]
    for phase, left in told.items():
        assert not left["finished"], phase
        assert left["interrupted"], phase
        assert not left["processes"], phase
        assert not left["folders"], phase
    assert told["shipping"]["jobs"] == 0
    for phase in ("shipping", "launching", "running"):
        assert (told[phase]["outcomes"], told[phase]["saved"]) == (["cancelled", "cancelled"], 0), phase
    assert (told["between"]["outcomes"], told["between"]["saved"]) == (["measured", "cancelled"], 1)
