"""``%gpuprof try`` on real loops: what was predicted comes true, and nothing of the person's changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.reruns.trial import RerunProgress
from jupyter_gpuprof.store.trials import recent_trials
from tests.session.live import steady
from tests.trials.notebook import SETUP, Notebook

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cores are taken away from this process"),
]

SETUP_OF_STORE = """
import time, torch
from tests.causes.loops import loader_of, net
torch.set_num_threads(1)
loader, truth = loader_of(thumbnail, workers=1, items=120, port=port, collating=0)
model, optimizer = net()
"""
#: The step waits for 12 ms as for a device, which takes no core.
LOOP_OF_STORE = """%%gpuprof
for x in loader:
    time.sleep(0.012)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


@steady
def test_more_workers_bring_half_of_what_was_predicted(
    thumbnail: Path, store_of_thumbnails: int, two_cores: None
) -> None:
    notebook = Notebook(SETUP_OF_STORE, thumbnail=thumbnail, port=store_of_thumbnails)
    run = notebook.profile(LOOP_OF_STORE)
    setting = next(r.setting for r in run.remedies if r.id == "input.more-workers")
    notebook.execute("loader, truth = loader_of(thumbnail, workers=1, items=4000, port=port, collating=0)")
    trial = notebook.try_change(setting, steps=30)
    print(run.remedies, trial)
    assert not isinstance(trial.predicted, Missing)
    assert trial.predicted > 1.5
    assert trial.ratio.value - 1 >= (trial.predicted - 1) / 2
    assert trial.ratio.low > 1
    assert setting in trial.lines[0]
    assert trial.before.label == "input-bound"
    assert trial.unit == "step"
    (kept,) = recent_trials(None)
    assert (kept.predicted, kept.ratio) == (trial.predicted, trial.ratio)


def test_the_top_remedy_is_tried_and_nothing_of_the_persons_changes() -> None:
    notebook = Notebook()
    run = notebook.profile()
    wanted = next(remedy.setting for remedy in run.remedies if remedy.setting)
    before, told = notebook.state(), []
    trial = notebook.try_change(steps=10, progress=told.append)
    assert notebook.state() == before
    assert trial.settings == tuple(wanted.split())
    assert all(isinstance(now, RerunProgress) for now in told)
    assert [now.done for now in told] == sorted(now.done for now in told)
    assert 0 <= told[0].done < 0.25
    assert 0.75 <= told[-1].done <= 1
    assert len({now.what for now in told}) == 4
    assert trial.order == "ABBA"
    assert (trial.before.steps, trial.after.steps) == (20, 20)


def test_without_a_remedy_there_is_nothing_to_try_by_itself() -> None:
    notebook = Notebook(SETUP + "loader = DataLoader(Slow(6, 1))")
    run = notebook.profile()
    assert not any(remedy.setting for remedy in run.remedies)
    with pytest.raises(UsageError, match="Name a change: %gpuprof try num_workers=4"):
        notebook.try_change()
