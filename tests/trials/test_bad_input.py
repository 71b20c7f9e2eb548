"""What a person can get wrong, and cells that misbehave: one sentence each, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from jupyter_gpuprof.errors import CannotShip, OptionError, RerunError, UsageError, WritesFiles
from jupyter_gpuprof.probes import jobs
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.rerun import Rerun
from jupyter_gpuprof.session.reruns.trial import RerunProgress
from jupyter_gpuprof.store.trials import recent_trials
from tests.trials.notebook import LOOP, SETUP, Notebook

HANGING = """
import subprocess, sys
class Hanging(Slow):
    def __getitem__(self, i):
        if i > 20:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            time.sleep(600)
        return super().__getitem__(i)
"""


@pytest.fixture(scope="module")
def profiled() -> Notebook:
    """A notebook with a profiled cell; for tests that get no further than its source."""
    notebook = Notebook()
    notebook.profile()
    return notebook


# -- refused before anything runs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["worker=4"], "num_workers=4, pin_memory=True"),
        (["num_workers=many"], "num_workers takes a number from 0, not many"),
        (["num_workers"], "num_workers takes a number"),
        (["num_workers=2", "num_workers=4"], "given twice"),
    ],
)
def test_a_setting_that_cannot_be_tried(profiled: Notebook, words: list[str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        profiled.try_change(*words)


def test_no_step_can_be_no_round(profiled: Notebook) -> None:
    with pytest.raises(UsageError, match="cannot count 0 steps"):
        profiled.try_change("num_workers=2", steps=0)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("torch.save(model.state_dict(), path)", "torch.save"),
        ("open(path, 'w').write('done')", "open"),
        ("np.save(path, x)", "np.save"),
        ("path.write_text('done')", "write_text"),
    ],
)
def test_a_cell_that_writes_is_refused_with_its_line(tmp_path: Path, line: str, what: str) -> None:
    notebook = Notebook(SETUP + "import numpy as np\nloader = DataLoader(Slow(8, 1))", path=tmp_path / "x")
    cell = f"%%gpuprof --name writes\n{LOOP.strip()}\n{line}\n"
    notebook.profile(cell)
    (tmp_path / "x").unlink(missing_ok=True)
    with pytest.raises(WritesFiles) as refused:
        notebook.try_change("num_workers=2")
    assert "Line 6 of the cell" in str(refused.value)
    assert what in str(refused.value)
    assert "--allow-writes" in str(refused.value)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_cell_that_may_write_is_rerun_and_a_change_that_does_not_apply_is_named(tmp_path: Path) -> None:
    notebook = Notebook(SETUP.replace("n=60, ms=4", "n=60, ms=1"), path=tmp_path / "x.pt")
    notebook.profile(LOOP + "    torch.save(model.state_dict(), path)\n")
    (tmp_path / "x.pt").unlink()
    with Rerun(notebook.cell, notebook.namespace, allow_writes=True) as rerun:
        done = rerun.round(("channels_last=True",), 8, limit_s=120.0)
    assert done.outcome == "measured"
    assert any("channels_last" in text for text in done.not_applied)  # there is no convolution
    assert (tmp_path / "x.pt").exists()


@pytest.mark.slow
def test_a_write_that_the_source_does_not_show_is_refused_in_the_fresh_process(tmp_path: Path) -> None:
    """Even where the cell itself goes on after the refusal."""
    notebook = Notebook(SETUP.replace("n=60, ms=4", "n=60, ms=1"), path=str(tmp_path / "x.pt"))
    hidden = "getattr(torch, 'sa' + 've')(model.state_dict(), path)"
    notebook.profile(f"{LOOP}    try:\n        {hidden}\n    except Exception:\n        pass\n")
    (tmp_path / "x.pt").unlink()
    with pytest.raises(RerunError, match=r"would write .*x\.pt.*--allow-writes"):
        notebook.try_change("num_workers=2", steps=8)
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize(
    ("made", "used", "named"),
    [
        ("import socket; link = socket.socket()", "link.fileno()", "`link` cannot be sent.*an open socket"),
        ("numbers = (n for n in range(9))", "next(numbers)", "`numbers` cannot be sent.*a generator"),
        (
            "import threading; held = threading.Lock(); f = lambda x, held=held: x",
            "f(1)",
            "`f` cannot be sent.*a lock",
        ),
        (
            "import threading\nclass Log:\n    def __init__(self): self.lock = threading.Lock()\nlog = Log()",
            "log.lock",
            r"`log` cannot be sent.*a lock, log\.lock",
        ),
    ],
)
def test_a_name_that_cannot_be_sent_is_named(made: str, used: str, named: str) -> None:
    notebook = Notebook(f"{SETUP}loader = DataLoader(Slow(8, 1))\n{made}")
    notebook.profile(f"{used}{LOOP}")
    with pytest.raises(CannotShip, match=named) as refused:
        notebook.try_change("num_workers=2")
    assert "Create it inside the cell" in str(refused.value)
    if "link" in notebook.namespace:
        notebook.namespace["link"].close()


# -- cells that misbehave -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cell_that_raises_says_what() -> None:
    notebook = Notebook(SETUP + "loader = DataLoader(Slow(8, 1))")
    notebook.profile()
    notebook.execute("""
class Failing(Slow):
    def __getitem__(self, i):
        raise ValueError('no more data')
loader = DataLoader(Failing(), num_workers=1)
""")
    before = notebook.state()
    told = r"as it is, in a fresh process, failed: ValueError: no more data \(in a DataLoader worker\)"
    with pytest.raises(RerunError, match=told):
        notebook.try_change("num_workers=2")
    assert notebook.state() == before


@pytest.mark.slow
def test_a_cell_that_counts_no_step_says_so() -> None:
    notebook = Notebook(SETUP + "loader = DataLoader(Slow(8, 1))")
    notebook.profile()
    notebook.namespace["loader"] = []
    with pytest.raises(RerunError, match="without a training step that could be counted"):
        notebook.try_change("num_workers=2")


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_with_all_that_came_of_it() -> None:
    notebook = Notebook(SETUP + HANGING + "loader = DataLoader(Hanging(), num_workers=1)")
    with Rerun(Cell(LOOP), notebook.namespace, allow_writes=True) as rerun:
        done = rerun.round((), 40, limit_s=120.0, patience_s=6.0)
    assert done.outcome == "hung"
    # The fixture proves that no process is left, in whatever session it was.


@pytest.mark.slow
def test_trying_a_cell_that_hangs_says_so() -> None:
    notebook = Notebook(SETUP + HANGING + "loader = DataLoader(Slow(8, 1))")
    notebook.profile()
    notebook.execute("loader = DataLoader(Hanging(), num_workers=1)")
    with pytest.raises(RerunError, match="took too long and was ended"):
        notebook.try_change("num_workers=2", limit_s=6.0, allow_writes=True)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before the first step", "while it counts"])
def test_an_interrupt_ends_the_round_and_changes_nothing(moment: str) -> None:
    notebook = Notebook(SETUP.replace("n=60", "n=4000"))
    notebook.execute("loader = DataLoader(Slow(40), batch_size=2, num_workers=1)")
    notebook.profile()
    notebook.execute("loader = DataLoader(Slow(4000), batch_size=2, num_workers=1)")
    before, told = notebook.state(), []

    def progress(now: RerunProgress) -> None:
        told.append(now)
        if moment == "before the first step" or now.done > 0.05:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        notebook.try_change("num_workers=2", steps=200, progress=progress)
    assert notebook.state() == before


def test_a_second_interrupt_leaves_nothing_behind_either(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, end, pids = Notebook(), jobs.end, []
    notebook.profile()

    def end_and_interrupt(process: subprocess.Popen[bytes], tag: str, keep: int) -> None:
        pids.append(process.pid)
        signal.raise_signal(signal.SIGINT)
        end(process, tag, keep=keep)

    monkeypatch.setattr(jobs, "end", end_and_interrupt)

    def progress(now: RerunProgress) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        notebook.try_change("num_workers=2", steps=200, progress=progress)
    assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("batch_size=512", "512 is more than the 60 items there are"),
        ("prefetch_factor=4", "prefetch_factor needs num_workers above 0"),
    ],
)
def test_what_cannot_be_applied_is_no_trial(word: str, why: str) -> None:
    notebook = Notebook()
    notebook.profile()
    before = len(recent_trials())
    with pytest.raises(UsageError, match=why):
        notebook.try_change(word, steps=5)
    assert len(recent_trials()) == before


def test_how_a_process_died_is_told() -> None:
    notebook = Notebook()
    notebook.namespace["STOP"] = False
    notebook.profile("import os\n" + LOOP + "if STOP: os.kill(os.getpid(), 9)\n")
    notebook.namespace["STOP"] = True
    with pytest.raises(RerunError, match="the process was ended by SIGKILL"):
        notebook.try_change("num_workers=2", steps=200)
