"""What goes wrong on one count stays there, and nothing is left of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_gpuprof.errors import CannotShip, RerunError, UsageError
from jupyter_gpuprof.probes import jobs
from jupyter_gpuprof.session.reruns import scale as scaling
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.launch import Local
from jupyter_gpuprof.session.reruns.scale import Scale
from jupyter_gpuprof.session.reruns.scaleoptions import ScaleOptions
from tests.scale.cells import CELL, namespace, points

#: A calamity for each number of ranks, after a few steps.
CALAMITIES = """
import signal
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
step = 0
for epoch in range(20):
    for x, y in loader:
        step += 1
        if world == 2 and step == 8:
            raise torch.OutOfMemoryError("Tried to allocate 20 GiB.")
        if world == 3 and rank == 1 and step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
"""
MORE_CALAMITIES = """
import signal, subprocess
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
step = 0
if world == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
for epoch in range(20):
    for x, y in loader:
        step += 1
        time.sleep(0.05)
        if world == 1 and step == 12:
            time.sleep(600)
        if world == 2 and rank == 1 and step == 8:
            raise ValueError("the label is 7")
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
"""


class Remembering(Local):
    """This machine, remembering what was started and which ports it listened to."""

    def __init__(self) -> None:
        super().__init__(3, 1)
        self.started: list[Any] = []
        self.ports: set[int] = set()
        self.others = listening([p.pid for p in psutil.process_iter()])  # what listens without us

    def submit(self, folder: Path, count: int) -> Any:
        self.started.append(super().submit(folder, count))
        return self.started[-1]

    def status(self, handle: Any) -> Any:
        ours = [handle.process.pid, *(p.pid for p in psutil.Process().children(True))]
        self.ports |= listening(ours) - self.others
        return super().status(handle)


def listening(pids: list[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue
        found |= {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    return found


def assert_nothing_left(backend: Remembering) -> None:
    """No process, by its tag or its group, and no port."""
    assert backend.started
    for started in backend.started:
        assert not jobs.tagged(started.tag), [p.cmdline() for p in jobs.tagged(started.tag)]
        with pytest.raises(ProcessLookupError):
            os.killpg(started.process.pid, 0)
    assert not backend.ports & listening([p.pid for p in psutil.process_iter()])


@pytest.mark.slow
def test_memory_and_a_signal_stay_with_their_counts() -> None:
    backend = Remembering()
    options = ScaleOptions((1, 2, 3, 4), steps=20, repeats=1, allow_writes=True)
    curve = Scale(Cell(CALAMITIES), None, namespace(), options, backend=backend).run()
    at = points(curve)
    assert at[1].outcome == "measured"
    assert (at[2].outcome, at[2].why) == ("out of memory", "OutOfMemoryError: Tried to allocate 20 GiB")
    assert (at[3].outcome, at[3].why) == ("failed", "rank 1 was ended by SIGKILL")
    assert (at[4].outcome, at[4].why) == ("skipped", "this machine has 3 cores")
    assert curve.finished
    assert backend.ports  # the rendezvous was seen
    assert_nothing_left(backend)


@pytest.mark.slow
def test_a_rank_that_hangs_and_one_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "PATIENCE_S", 4.0)
    backend = Remembering()
    options = ScaleOptions((1, 2), steps=40, repeats=1, allow_writes=True)
    with pytest.raises(RerunError) as failure:
        Scale(Cell(MORE_CALAMITIES), None, namespace(), options, backend=backend).run()
    assert "1: a rank came to no further step in 4 s, and all were ended" in str(failure.value)
    assert "2: ValueError: the label is 7" in str(failure.value)
    assert_nothing_left(backend)  # nor the child that the hung one sent into a session of its own


@pytest.mark.slow
def test_a_job_that_takes_too_long_is_ended() -> None:
    backend = Remembering()
    options = ScaleOptions((1,), steps=400, repeats=1, limit_s=1.0)
    with pytest.raises(RerunError, match="it took longer than 1 s and was ended"):
        Scale(Cell(CELL), None, namespace(), options, backend=backend).run()
    assert_nothing_left(backend)


# -- refused before anything runs --------------------------------------------------------------------------


def refusal(error: type[Exception], cell: str = CELL, more: str = "", **options: Any) -> str:
    chosen = ScaleOptions(**{"counts": (1, 2), **options})
    with pytest.raises(error) as caught:
        Scale(Cell(cell), None, namespace(more), chosen).run()
    return str(caught.value)


def test_a_name_that_cannot_be_shipped() -> None:
    words = refusal(CannotShip, "held = lock\n" + CELL, "import threading\nlock = threading.Lock()\n")
    assert words.startswith("`lock` cannot be sent to a fresh process")


def test_no_count_fits() -> None:
    assert "None of these counts fits" in refusal(UsageError, counts=(4096,))


def test_what_is_too_much_for_the_machine_is_said() -> None:
    options = ScaleOptions((1, 2, 4), repeats=1)
    scale = Scale(Cell(CELL), None, namespace(), options, backend=Local(1, 1))
    whys = {point.count: point.why for point in scale._record(False).points}
    assert whys == {1: "", 2: "this machine has 1 core", 4: "this machine has 1 core"}


def test_a_cell_that_writes() -> None:
    assert "--allow-writes" in refusal(UsageError, CELL + "torch.save(model, 'model.pt')\n")


def test_a_cell_for_another_interpreter() -> None:
    assert "%%bash gives it to something else than Python" in refusal(UsageError, "%%bash\necho hello\n")


def test_a_launcher_that_refuses_a_count_leaves_the_others() -> None:
    class Refusing(Local):
        def submit(self, folder: Path, count: int) -> Any:
            raise RerunError("Slurm refused the job: no such partition.", "Look at it.")

    with pytest.raises(RerunError, match=r"1: Slurm refused the job: no such partition\. Look at it; 2: "):
        Scale(Cell(CELL), None, namespace(), ScaleOptions((1, 2)), backend=Refusing(2, 1)).run()
