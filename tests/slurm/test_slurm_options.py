"""What is refused before anything runs, and a Slurm that does not answer; needs no cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.session.reruns import slurm
from jupyter_gpuprof.session.reruns.launch import Status
from jupyter_gpuprof.session.reruns.slurm import Slurm, SlurmOptions
from jupyter_gpuprof.testing import FakeClock


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that are called like Slurm's; only sbatch does what it should."""
    pytest.importorskip("submitit")
    for name in ("sbatch", "srun", "squeue", "scancel"):
        write_command(tmp_path / name, "echo 'error: nobody is here' >&2; exit 1")
    write_command(tmp_path / "sbatch", "echo Submitted batch job 7")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_command(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture
def clock_of_slurm(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A clock that moves when the backend waits."""
    now = FakeClock()
    monkeypatch.setattr(slurm.clock, "now_s", lambda: now() * 1e-9)
    monkeypatch.setattr(slurm.time, "sleep", now.advance)
    return now


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
        SlurmOptions(minutes=0),
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


def test_a_silent_controller_is_waited_for(
    commands: Path, clock_of_slurm: FakeClock, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backend, folder = Slurm(SlurmOptions()), tmp_path_factory.mktemp("job")
    handle = backend.submit(folder, 2)
    clock_of_slurm.advance(40)
    assert backend.status(handle) == Status(
        "queued", "queued 40 s, and Slurm does not answer: nobody is here"
    )
    write_command(commands / "squeue", "echo 'RUNNING|None'")
    assert backend.status(handle).state == "queued", "it was asked a moment ago"
    clock_of_slurm.advance(20)
    assert backend.status(handle) == Status("running", "running after 61 s in the queue")
    with pytest.warns(UserWarning, match=r"Slurm job 7 is not gone yet .* scancel 7"):
        backend.cancel(handle)


def test_what_slurm_has_forgotten_has_ended(
    commands: Path, clock_of_slurm: FakeClock, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backend, folder = Slurm(SlurmOptions()), tmp_path_factory.mktemp("job")
    handle = backend.submit(folder, 1)
    write_command(commands / "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    clock_of_slurm.advance(10)
    assert backend.status(handle) == Status("running", "waiting for the files of the ranks")
    clock_of_slurm.advance(10)
    assert backend.status(handle) == Status("ended", "it is not in Slurm's list any more")
    (folder / "round-0.json").touch()
    assert backend.status(handle) == Status("ended")
    backend.cancel(handle)
