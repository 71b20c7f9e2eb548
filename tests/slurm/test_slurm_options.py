"""What is refused before anything runs; needs no cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.session.slurm import Slurm, SlurmOptions


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that are called like Slurm's, and a package called like submitit."""
    for name in ("sbatch", "srun", "squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", pytest)
    return tmp_path


def test_without_submitit(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError) as caught:
        Slurm(SlurmOptions())
    assert str(caught.value) == (
        '--on slurm needs submitit. Install it with: pip install "jupyter-gpuprof[slurm]"'
    )


def test_without_slurm(commands: Path) -> None:
    (commands / "squeue").unlink()
    with pytest.raises(UsageError, match="Slurm's squeue is not on this machine"):
        Slurm(SlurmOptions())


@pytest.mark.parametrize(
    "options",
    [
        SlurmOptions(time=0),
        SlurmOptions(gpus_per_node=0),
        SlurmOptions(shared_folder=Path("/does/not/exist")),
        SlurmOptions(extra=("mem", "")),
    ],
)
def test_options_that_make_no_sense(commands: Path, options: SlurmOptions) -> None:
    with pytest.raises(OptionError):
        Slurm(options)


def test_the_shared_folder_is_the_current_one(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(commands)
    backend = Slurm(SlurmOptions())
    assert backend.shared_folder == commands
    assert backend.most() is None, "a cluster that does not answer cannot tell"
