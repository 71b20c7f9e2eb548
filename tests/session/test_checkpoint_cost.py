"""Real saves and loads, timed and taken away again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.spot import CheckpointCost
from jupyter_gpuprof.session.checkpoints.checkpointcost import measure_checkpoint
from jupyter_gpuprof.session.checkpoints.timedsaves import PREFIX, percentile
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.trial import RerunProgress
from jupyter_gpuprof.store.trials import find_curve, recent_curves
from tests.session.live import steady

CELL = Cell("%%gpuprof\nfor x in data:\n    train(x)\n", "2026-12-01-aaaaaa", "small net")


def trained(size: int = 64) -> dict[str, Any]:
    """What a notebook holds after a cell has trained: the state, and things of other cells."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.Linear(size, size))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    model(torch.randn(4, size)).sum().backward()
    optimizer.step()
    space: dict[str, Any] = {
        "__name__": "__main__",
        "torch": torch,
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "criterion": torch.nn.MSELoss(),
        "data": [],
        "of_another_cell": torch.nn.Linear(1000, 1000),
    }
    exec("def train(x):\n    criterion(model(x), x).backward()\n    optimizer.step(); schedule.step()", space)
    return space


def measured(folder: Path, space: dict[str, Any] | None = None, **options: Any) -> CheckpointCost:
    return measure_checkpoint(
        CELL, None, trained() if space is None else space, folder=folder, **{"repeats": 2, **options}
    )


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_the_state_of_the_cell_is_found_saved_and_gone(tmp_path: Path) -> None:
    space = trained()
    before = [p.detach().clone() for p in space["model"].parameters()]
    seen: list[RerunProgress] = []
    cost = measured(tmp_path, space, progress=seen.append)
    parts = {part.name: part for part in cost.parts}
    assert set(parts) == {"model", "optimizer", "schedule", "random states"}
    weights = 2 * (64 * 64 + 64) * 4
    assert cost.parameter_bytes == parts["model"].state_bytes == weights
    assert parts["optimizer"].state_bytes == 2 * weights + 4 * 4  # two moments, and a count per parameter
    plain, background = cost.ways
    assert (plain.how, background.how) == ("torch.save", "asynchronous")
    assert 3 * weights < plain.size_bytes < 4 * weights
    for way in cost.ways:
        assert 0 < way.blocking_s <= way.blocking_p99_s
        assert way.blocking_s <= way.durable_s <= way.durable_p99_s
        assert not isinstance(way.load_s, Missing)
        assert way.load_s > 0
    assert left_in(tmp_path) == []
    assert seen[0].done == 0
    assert seen[-1].done == 1
    assert all(torch.equal(a, b) for a, b in zip(before, space["model"].parameters(), strict=True))
    assert "times as large as the parameters" in cost.sentence
    assert not any("runs what the file says" in note for note in cost.notes)
    assert find_curve(CheckpointCost, "last") == cost
    assert recent_curves(CheckpointCost) == [cost]


def test_without_a_cell_all_variables_are_looked_at(tmp_path: Path) -> None:
    space = trained()
    cost = measure_checkpoint(None, None, space, folder=tmp_path, repeats=1)
    assert {part.name for part in cost.parts} == {
        "model", "optimizer", "schedule", "of_another_cell", "random states",
    }  # fmt: skip


def test_a_part_of_a_model_and_a_frozen_one_are_no_models_of_their_own(tmp_path: Path) -> None:
    space = trained()
    space["first_layer"], space["teacher"] = space["model"][0], torch.nn.Linear(8, 8).requires_grad_(False)
    cell = Cell("teacher; first_layer; train(1)")
    cost = measure_checkpoint(cell, None, space, folder=tmp_path, repeats=1)
    assert [part.name for part in cost.parts if part.kind == "model"] == ["model"]


def test_an_optimizer_without_steps_is_noted(tmp_path: Path) -> None:
    space = trained()
    space["optimizer"] = torch.optim.Adam(space["model"].parameters())
    assert any("holds no state" in note for note in measured(tmp_path, space).notes)


@steady
def test_the_persons_own_functions_are_timed(tmp_path: Path) -> None:
    space = trained()
    loaded: list[str] = []

    def save_it(path: str) -> None:
        time.sleep(0.05)
        torch.save(space["model"].state_dict(), path)

    def load_it(path: str) -> None:
        time.sleep(0.02)
        space["model"].load_state_dict(torch.load(path))
        loaded.append(path)

    cost = measured(
        tmp_path, {**space, "save_it": save_it, "load_it": load_it}, save="save_it", load="load_it"
    )
    own = cost.ways[0]
    assert own.how == "yours"
    assert own.blocking_s == pytest.approx(0.055, abs=0.03)
    assert own.load_s == pytest.approx(0.025, abs=0.02)
    assert len(loaded) == 2
    assert left_in(tmp_path) == []


@steady
def test_a_save_in_the_background_is_waited_for(tmp_path: Path) -> None:
    def save_it(path: str) -> threading.Thread:
        def write() -> None:
            time.sleep(0.2)
            Path(path).mkdir()
            (Path(path) / "shard").write_bytes(b"x" * 1000)

        thread = threading.Thread(target=write)
        thread.start()
        return thread

    cost = measured(tmp_path, {"save_it": save_it}, save="save_it", repeats=1)
    (own,) = cost.ways
    assert own.blocking_s < 0.1
    assert own.durable_s == pytest.approx(0.2, abs=0.08)
    assert own.size_bytes == 1000
    assert isinstance(own.load_s, Missing)
    assert cost.parts == ()


@pytest.mark.parametrize("when", [1, 2, 3])
def test_an_interrupt_leaves_nothing(tmp_path: Path, when: int) -> None:
    calls = 0

    def interrupted(progress: RerunProgress) -> None:
        nonlocal calls
        calls += 1
        if calls == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, progress=interrupted, repeats=1)
    assert left_in(tmp_path) == []


def test_an_interrupt_within_a_save_leaves_nothing(tmp_path: Path) -> None:
    def save_it(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, {"save_it": save_it}, save="save_it")
    assert left_in(tmp_path) == []


class Locked(torch.nn.Linear):
    """A model whose state holds what cannot be pickled."""

    def get_extra_state(self) -> object:
        return {"lock": threading.Lock()}

    def set_extra_state(self, state: object) -> None:
        pass


def raises(message: str) -> Callable[[str], None]:
    def save_it(path: str) -> None:
        raise ValueError(message)

    return save_it


def one_sentence(error: BaseException) -> None:
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)


def test_a_state_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    space = {**trained(), "model": Locked(4, 4)}
    with pytest.raises(UsageError, match=r"state of `model` cannot be pickled: .*lock.* is a lock") as raised:
        measured(tmp_path, space)
    one_sentence(raised.value)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("space", "options", "kind", "said"),
    [
        ({"x": 1}, {}, UsageError, "No model, optimizer or anything else with a state"),
        ({}, {"save": "save_it"}, OptionError, "is not in this notebook"),
        ({"save_it": 3}, {"save": "save_it"}, OptionError, "is no function"),
        ({"save_it": lambda: None}, {"save": "save_it"}, OptionError, "cannot be called with a path alone"),
        ({"save_it": lambda path: None}, {"save": "save_it"}, UsageError, "wrote nothing"),
        ({"save_it": raises("no room")}, {"save": "save_it"}, UsageError, "ValueError: no room"),
        ({"load_it": print}, {"load": "load_it"}, OptionError, "name both"),
        ({}, {"repeats": 0}, OptionError, "once or more"),
    ],
)
def test_what_cannot_be_measured(
    tmp_path: Path, space: dict[str, Any], options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as raised:
        measured(tmp_path, space, **options)
    one_sentence(raised.value)
    assert left_in(tmp_path) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("")
    for folder in (file, tmp_path / "none"):
        with pytest.raises(UsageError, match="There is no folder"):
            measured(folder)
    if Path("/proc/self").is_dir():
        with pytest.raises(UsageError, match="/proc/self cannot be written"):
            measured(Path("/proc/self"))


def test_percentiles_are_times_that_were_taken() -> None:
    assert percentile(range(1, 11), 0.9) == 9
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert PREFIX
