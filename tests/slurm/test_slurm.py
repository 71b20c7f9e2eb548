"""The Slurm backend against a real Slurm: `submit`, `status`, `cancel`, and files that come back."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.job import Job, JobFolder, Round
from jupyter_gpuprof.session.reruns.launch import Status
from jupyter_gpuprof.session.reruns.scale import Scale, ScaleOptions
from jupyter_gpuprof.session.reruns.slurm import Slurm, SlurmOptions
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.slow

TRAINING = """\
import os, signal, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4):
    {line}
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def job_folder(folder: Path, line: str = "pass") -> Path:
    """A folder with the job of a small training loop, one line of it given."""
    job = Job(
        source=TRAINING.format(line=line),
        name="cell",
        steps=3,
        warmup=1,
        threads=1,
        sys_path=tuple(sys.path),
        cwd=os.getcwd(),
        mode="weak",
    )
    JobFolder(folder).write_job(job)
    return folder


def await_status(backend: Slurm, handle: object, state: str, patience_s: float = 60.0) -> Status:
    """The first status with this state."""
    until = time.monotonic() + patience_s
    while True:
        status = backend.status(handle)
        if status.state == state:
            return status
        assert time.monotonic() < until, f"still {status}"


def rounds_of(folder: Path, count: int) -> list[Round | None]:
    return [JobFolder(folder, rank).read_round() for rank in range(count)]


def run(backend: Slurm, folder: Path, count: int) -> tuple[list[Round | None], str]:
    """Run a job to its end; its rounds and the words for the end."""
    handle = backend.submit(folder, count)
    try:
        status = await_status(backend, handle, "ended")
    finally:
        backend.cancel(handle)
    assert not processes_of(folder)
    return rounds_of(folder, count), status.words


def processes_of(folder: Path) -> list[list[str]]:
    """Processes on this host that were told of a folder."""
    found = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    return [line for line in found if any(str(folder) in word for word in line)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_rank_on_each_node(slurm: Cluster, tmp_path: Path, count: int) -> None:
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    rounds, words = run(backend, job_folder(tmp_path), count)
    assert words == ""
    assert [done and (done.outcome, done.error) for done in rounds] == [("measured", "")] * count


def test_ranks_share_a_node_as_they_share_its_gpus(slurm: Cluster, tmp_path: Path) -> None:
    line = (
        "import json, pathlib; pathlib.Path(os.environ['SEEN'], f'seen-{rank}').write_text(' '.join("
        "os.environ[n] for n in ('SLURMD_NODENAME', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'OMP_NUM_THREADS')))"
    ).replace("os.environ['SEEN']", repr(str(tmp_path)))
    options = SlurmOptions(
        partition="tests",
        gpus_per_node=2,
        shared_folder=tmp_path,
        extra=("--cpus-per-task=1", "--comment=a test"),
    )
    rounds, words = run(Slurm(options), job_folder(tmp_path, line), 4)
    assert words == ""
    assert all(done and done.outcome == "measured" for done in rounds), rounds
    seen = [(tmp_path / f"seen-{rank}").read_text().split() for rank in range(4)]
    assert [words[1:] for words in seen] == [["0", "2", "1"], ["1", "2", "1"]] * 2
    assert len({words[0] for words in seen}) == 2


def test_a_queued_job_says_why_and_can_be_cancelled(slurm: Cluster, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    backend = Slurm(SlurmOptions(partition="small", extra=("--exclusive",), shared_folder=tmp_path))
    holder = backend.submit(job_folder(first, "time.sleep(60)"), 1)
    await_status(backend, holder, "running")
    waiting = backend.submit(job_folder(second), 1)
    until = time.monotonic() + 20
    while "(Resources)" not in (status := backend.status(waiting)).words:
        assert status.state == "queued"
        assert time.monotonic() < until, status
    assert status.words.startswith("queued ")
    begun = time.monotonic()
    backend.cancel(waiting)
    backend.cancel(waiting)
    assert time.monotonic() - begun < 5
    assert await_status(backend, waiting, "ended").words == "it was cancelled (CANCELLED)"
    assert len(slurm.jobs()) == 1, "the other job is none of its business"
    backend.cancel(holder)
    assert slurm.jobs() == []
    assert not processes_of(tmp_path)


def test_a_running_job_can_be_cancelled(slurm: Cluster, tmp_path: Path) -> None:
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    handle = backend.submit(job_folder(tmp_path, "time.sleep(60)"), 2)
    await_status(backend, handle, "running")
    time.sleep(1)
    begun = time.monotonic()
    backend.cancel(handle)
    assert time.monotonic() - begun < 5, "ranks end when they are told to"
    assert not processes_of(tmp_path)
    assert await_status(backend, handle, "ended").words == "it was cancelled (CANCELLED)"


def test_an_error_of_one_rank_comes_back(slurm: Cluster, tmp_path: Path) -> None:
    line = "if rank == 1: raise ValueError('bad batch')"
    rounds, _ = run(Slurm(SlurmOptions(shared_folder=tmp_path)), job_folder(tmp_path, line), 2)
    assert rounds[1] is not None
    assert (rounds[1].outcome, rounds[1].error) == ("failed", "ValueError: bad batch")


def test_a_killed_rank_ends_the_others(slurm: Cluster, tmp_path: Path) -> None:
    line = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)"
    rounds, words = run(Slurm(SlurmOptions(shared_folder=tmp_path)), job_folder(tmp_path, line), 2)
    assert rounds[1] is None
    assert words == "a rank's process failed (FAILED): Killed"


def test_a_job_that_runs_too_long_says_so(slurm: Cluster, tmp_path: Path) -> None:
    backend = Slurm(SlurmOptions(shared_folder=tmp_path, minutes=1))
    handle = backend.submit(job_folder(tmp_path, "time.sleep(60)"), 1)
    try:
        await_status(backend, handle, "running")
        slurm.call(
            "scontrol", "update", f"JobId={handle.job_id}", "EndTime=now+2"
        )  # a limit is whole minutes
        status = await_status(backend, handle, "ended")
    finally:
        backend.cancel(handle)
    assert status.words == "its time limit in Slurm was over (TIMEOUT)"
    assert not processes_of(tmp_path)


def test_a_node_that_is_down_is_not_counted_and_not_waited_for_in_silence(
    slurm: Cluster, tmp_path: Path
) -> None:
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    assert backend.most() == 4
    assert Slurm(SlurmOptions(gpus_per_node=2)).most() == 8
    assert Slurm(SlurmOptions(gpus_per_node=3)).most() == 0
    assert Slurm(SlurmOptions(partition="small", gpus_per_node=2)).most() == 2
    slurm.call("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=test")
    try:
        assert backend.most() == 3
        handle = backend.submit(job_folder(tmp_path), 4)
        try:
            until = time.monotonic() + 20
            while "DOWN" not in (status := backend.status(handle)).words:
                assert status.state == "queued"
                assert time.monotonic() < until, status
        finally:
            backend.cancel(handle)
    finally:
        slurm.call("scontrol", "update", "NodeName=n4", "State=RESUME")


def test_a_node_that_fails_under_a_job(slurm: Cluster, tmp_path: Path) -> None:
    backend = Slurm(SlurmOptions(shared_folder=tmp_path, extra=("--nodelist=n[3-4]",)))
    handle = backend.submit(job_folder(tmp_path, "time.sleep(60)"), 2)
    try:
        await_status(backend, handle, "running")
        slurm.call("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=test")
        status = await_status(backend, handle, "ended")
    finally:
        backend.cancel(handle)
        slurm.call("scontrol", "update", "NodeName=n4", "State=RESUME")
    assert status.words == "a node failed (NODE_FAIL)"


def test_what_slurm_refuses_is_one_sentence(
    slurm: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = Slurm(SlurmOptions(partition="nowhere", shared_folder=tmp_path))
    assert backend.most() in (None, 0)
    with pytest.raises(RerunError) as caught:
        backend.submit(job_folder(tmp_path), 1)
    assert str(caught.value) == (
        "Slurm refused the job: invalid partition specified: nowhere; "
        "Batch job submission failed: Invalid partition name specified. "
        "Look at the partition, the account, the GPUs per node and the time."
    )
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_while_it_is_submitted_leaves_no_job(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import submitit

    def interrupted(self: object, command: str) -> None:
        submit(self, command)
        raise KeyboardInterrupt

    submit = submitit.SlurmExecutor._submit_command
    monkeypatch.setattr(submitit.SlurmExecutor, "_submit_command", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Slurm(SlurmOptions(shared_folder=tmp_path)).submit(job_folder(tmp_path, "time.sleep(60)"), 1)
    until = time.monotonic() + 10
    while slurm.jobs() and time.monotonic() < until:
        time.sleep(0.2)


def test_a_kernel_that_is_a_job_itself(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "64", "SBATCH_PARTITION": "nowhere"}.items():
        monkeypatch.setenv(name, value)
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    handle = backend.submit(job_folder(tmp_path), 1)
    try:
        await_status(backend, handle, "running")
    finally:
        backend.cancel(handle)
    assert os.environ["SLURM_NTASKS"] == "64"


def test_a_curve(slurm: Cluster, tmp_path: Path) -> None:
    cell = Cell(TRAINING.format(line="pass"))
    options = ScaleOptions(counts=(2, 8), steps=3, repeats=1)
    seen: list[str] = []
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    curve = Scale(
        cell, None, {}, options, backend=backend, on_update=lambda _, now: seen.append(now.what)
    ).run()
    assert curve.backend == "slurm"
    assert [(point.count, point.outcome) for point in curve.points] == [
        (2, "measured"),
        (8, "skipped"),
    ], curve.notes
    assert any("in the queue" in words for words in seen), seen
    assert list(tmp_path.iterdir()) == [], "the shared folder is as it was"


def test_stop_while_a_curve_is_measured(slurm: Cluster, tmp_path: Path) -> None:
    def stop(record: object, now: Any) -> None:
        if "in the queue" in now.what:
            raise KeyboardInterrupt

    options = ScaleOptions(counts=(2,), steps=3, repeats=1)
    backend = Slurm(SlurmOptions(shared_folder=tmp_path))
    curve = Scale(
        Cell(TRAINING.format(line="time.sleep(9)")), None, {}, options, backend=backend, on_update=stop
    ).run()
    assert not curve.finished
    assert [point.outcome for point in curve.points] == ["cancelled"]
    assert list(tmp_path.iterdir()) == []
    assert slurm.jobs() == []
