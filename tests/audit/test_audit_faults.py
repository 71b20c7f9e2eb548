"""Faults planted in a person's save and load functions: each is caught, and what is missing is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof.analysis.resumeaudit import conclude_audit
from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.records.resumeaudit import Case
from jupyter_gpuprof.session.audit.plan import Kill, Planned, write_kills
from jupyter_gpuprof.session.audit.processes import Options, Processes
from jupyter_gpuprof.session.audit.standin import Folders
from jupyter_gpuprof.session.reruns.cell import Cell
from tests.audit.cells import OWN, OWN_SETUP, notebook

pytestmark = pytest.mark.slow
Plant = Callable[[str], Any]
MIDDLE = Planned("in the middle of epoch 0", (Kill(1),))
END = Planned("exactly at the end of epoch 0", (Kill(3),))
TWICE = Planned("twice within epoch 0", (Kill(1, "SIGTERM"), Kill(2)))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The processes of one audit and its straight run, which neither saves nor loads: all faults share it."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "PLANTED").touch()
    options = Options("save", "load", Folders(), 8, 120, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with Processes(Cell(OWN), notebook(OWN_SETUP).namespace, options, None) as processes:
            yield processes, processes.straight()


@pytest.fixture
def plant(own: Any) -> Iterator[Plant]:
    """Plants a fault until the end of the test."""
    yield Path("PLANTED").write_text
    Path("PLANTED").write_text("")


def audited(own: Any, case: Planned) -> Case:
    processes, straight = own
    return processes.case(case, straight)


def in_saves(own: Any, *, cut: bool) -> list[Case]:
    """The outcome of interruptions in the save at the end of an epoch."""
    processes, straight = own
    processes.longest = (), 0
    assert processes.case(END, straight).outcome == "identical"
    kills = [case for case in write_kills(*processes.longest) if case.kills[0].in_save.cut is cut]
    return [processes.case(case, straight) for case in kills[:1]]


def test_right_functions_are_identical(own: Any) -> None:
    _, straight = own
    assert len(straight.steps) == 8
    assert len({step.samples for step in straight.steps}) == 8
    case = audited(own, TWICE)
    assert (case.outcome, case.went_on_after, case.compared) == ("identical", 2, 7)


@pytest.mark.parametrize(
    ("fault", "case", "missing", "step", "words"),
    [
        ("position", MIDDLE, "loader position", 2, "those that the epoch began with"),
        ("random", MIDDLE, "random states", 2, "random states were others"),
        ("schedule", MIDDLE, "learning rate schedule", 3, "learning rate is another"),
        ("optimizer", MIDDLE, "optimizer", 2, "optimizer's state"),
        ("second", TWICE, "second resume", 3, "The first resume went on right"),
    ],
)
def test_a_planted_fault_is_named(
    own: Any, plant: Plant, fault: str, case: Planned, missing: str, step: int, words: str
) -> None:
    plant(fault)
    found = audited(own, case)
    assert (found.outcome, found.missing, found.first_step) == ("differs", missing, step), found
    assert words in found.sentence
    assert f"first step that differs is {step}" in found.sentence


def test_the_shuffle_of_epoch_0_comes_again(own: Any, plant: Plant) -> None:
    """The loop seeds its generator once, and saves nothing of that: the straight run is another one too."""
    plant("shuffle")
    processes, _ = own
    found = processes.case(END, processes.straight(1))
    assert (found.outcome, found.missing, found.first_step) == ("differs", "shuffle", 4)
    assert "the order of epoch 0 again" in found.sentence


def test_augmentation_whose_random_state_is_not_saved(own: Any, plant: Plant) -> None:
    """The loop saves torch's random state, and its data set draws from numpy's."""
    plant("augmentation")
    processes, _ = own
    straight = processes.straight(1)
    found = processes.case(END, straight)
    assert (found.outcome, found.went_on_after) == ("order identical, augmentation differs", 3), found
    outcome, sentence = conclude_audit([found], straight)
    assert outcome == found.outcome
    assert "the same samples at the same learning rates" in sentence


def test_a_save_that_raises_is_said_of_it(own: Any, plant: Plant) -> None:
    plant("raises")
    with pytest.raises(RerunError, match="`save` raised OSError: full"):
        audited(own, MIDDLE)


def test_a_pointer_before_its_data_is_named(own: Any, plant: Plant) -> None:
    plant("pointer")
    (found,) = in_saves(own, cut=False)
    assert (found.outcome, found.missing) == ("differs", "pointer before data")
    assert "was not written yet" in found.sentence


@pytest.mark.parametrize("cut", [True, False])
def test_half_a_checkpoint_is_named(own: Any, plant: Plant, cut: bool) -> None:
    """Two files over the old ones: half of one is written, or only one of them."""
    plant("shard")
    (found,) = in_saves(own, cut=cut)
    assert found.missing == ("half-written file" if cut else "parts of two saves")
    words = "Half of checkpoint-0 was written"
    if not cut:
        words = "parameters are those after step 3, the optimizer is that after step 2"
    assert words in found.sentence
