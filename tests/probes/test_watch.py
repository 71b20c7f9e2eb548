"""`watch` changes nothing but that it is seen."""

from __future__ import annotations

import copy
import pickle
import queue
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from jupyter_gpuprof import watch
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import hooks
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.probes.sources import MAX_SOURCES
from jupyter_gpuprof.probes.watch import _Fetches, looks_like_batch, watch_loop


@pytest.fixture
def recorder():
    recorder = Recorder(StepAssembler(), torch.is_grad_enabled)
    hooks.push(recorder)
    yield recorder
    hooks.pop(recorder)
    assert not recorder.failures


def seen(recorder: Recorder) -> list[tuple[str, int]]:
    return [(source.name, source.fetches) for source in recorder.sources.all]


# -- watch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profiled", [False, True])
def test_a_watched_list_is_as_the_list(profiled: bool, request: pytest.FixtureRequest) -> None:
    if profiled:
        request.getfixturevalue("recorder")
    batches = [1, 2, 3]
    watched = watch(batches, "train")
    assert [list(watched), list(watched)] == [batches, batches]
    assert (len(watched), watched[1], watched[-1], bool(watched), 2 in watched) == (3, 2, 3, True, True)
    assert not watch([])
    assert watched.index(3) == 2
    with pytest.raises(AttributeError):
        watched.no_such_thing  # noqa: B018


@pytest.mark.parametrize("profiled", [False, True])
def test_a_watched_generator_is_as_the_generator(profiled: bool, request: pytest.FixtureRequest) -> None:
    if profiled:
        request.getfixturevalue("recorder")
    closed = []

    def numbers():
        try:
            yield from (1, 2, 3)
        finally:
            closed.append(True)

    watched = watch(numbers())
    assert next(watched) == 1
    assert iter(watched) is watched
    assert bool(watched)
    with pytest.raises(TypeError):
        len(watched)
    assert list(watched) == [2, 3]
    assert closed == [True]
    with pytest.raises(StopIteration):
        next(watched)
    started = watch(numbers())
    next(started)
    started.close()
    assert closed == [True, True]


def test_a_watched_function_is_as_the_function() -> None:
    q: queue.Queue[int] = queue.Queue()
    q.put(7)
    get = watch(q.get)
    assert get(timeout=1) == 7
    with pytest.raises(queue.Empty):
        get(block=False)

    def batch(n: int) -> int:
        """Made by the person."""
        return n

    assert watch(batch).__doc__ == "Made by the person."


def test_what_cannot_be_watched_is_said() -> None:
    with pytest.raises(TypeError, match=r"not Queue; for a queue, watch\(queue.get\)"):
        watch(queue.Queue())
    with pytest.raises(TypeError, match="not int"):
        watch(3)


def test_watched_things_can_be_copied_and_sent() -> None:
    watched = watch([1, 2], "train")
    for twin in (copy.copy(watched), copy.deepcopy(watched), pickle.loads(pickle.dumps(watched))):
        assert list(twin) == [1, 2]
    with pytest.raises(AttributeError):
        _Fetches.__new__(_Fetches).anything  # noqa: B018  # no endless recursion while being unpickled


def test_fetches_are_counted_by_name(recorder: Recorder) -> None:
    list(watch([1, 2, 3], "numbers"))
    list(watch(iter("ab"), "letters"))
    watch(lambda: 1, "one")()
    assert seen(recorder) == [("numbers", 3), ("letters", 2), ("one", 1)]


def test_errors_pass_unchanged(recorder: Recorder) -> None:
    def broken():
        yield 1
        raise ValueError("bad file")

    with pytest.raises(ValueError, match="bad file"):
        list(watch(broken()))
    with pytest.raises(KeyError):
        watch({}.__getitem__, "get")("no")
    assert [s.fetches for s in recorder.sources.all] == [1, 0]


def test_watched_anew_each_epoch_is_one_source(recorder: Recorder) -> None:
    for _ in range(5 * MAX_SOURCES):
        list(watch((i for i in range(2)), "generator"))
    assert seen(recorder) == [("generator", 10 * MAX_SOURCES)]


def test_watched_side_by_side_are_two(recorder: Recorder) -> None:
    for _ in range(3):
        list(zip(watch(iter("ab")), watch(iter("cd"), "x"), strict=True))
    a, b = [watch([i, i], "same name") for i in range(2)]
    list(a), list(b)
    assert [n for _, n in seen(recorder)] == [6, 6, 2, 2]


def test_a_watched_loader_is_the_loader(recorder: Recorder) -> None:
    loader = DataLoader([1, 2, 3, 4], batch_size=2, num_workers=0)
    list(watch(loader, "mine"))
    list(watch(loader))
    (source,) = recorder.sources.all
    assert (source.name, source.origin, source.fetches) == ("mine", "loader", 4)
    assert source.settings["batch_size"] == 2


def test_the_same_object_in_two_runs(recorder: Recorder) -> None:
    watched = watch([1, 2])
    list(watched)
    inner = Recorder(StepAssembler(), torch.is_grad_enabled)
    hooks.push(inner)
    list(watched)
    hooks.pop(inner)
    list(watched)
    assert [seen(recorder), seen(inner)] == [[("list", 4)], [("list", 2)]]


# -- loops of the cell ------------------------------------------------------------------------------


def test_without_a_run_nothing_is_wrapped() -> None:
    batches = [torch.zeros(2)]
    assert watch_loop(batches, "line 1") is batches


def test_what_marks_itself_or_has_no_data_is_not_wrapped(recorder: Recorder) -> None:
    for source in (DataLoader([1]), watch([1]), watch(iter([1])), range(3), "abc", {1}, frozenset()):
        assert watch_loop(source, "line 1") is source


def test_batches_are_seen_and_numbers_are_not(recorder: Recorder) -> None:
    assert list(watch_loop([1, 2, 3, 4, 5], "line 1")) == [1, 2, 3, 4, 5]
    batches = [(torch.zeros(2), torch.ones(2))] * 3
    assert list(watch_loop(batches, "line 2")) == batches
    assert seen(recorder) == [("line 1", 0), ("line 2", 3)]


def test_a_loop_over_what_cannot_be_iterated_raises_as_it_would(recorder: Recorder) -> None:
    assert watch_loop(3, "line 1") == 3  # for Python to refuse, in the person's own line


class Hostile:
    """Whatever is asked of it goes wrong."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class Table:
    """Like a data frame: `values` is no method."""

    shape = (2, 2)
    values = np.zeros((2, 2))

    def keys(self) -> list[str]:
        return ["a"]


@pytest.mark.parametrize("make", [Hostile, Table, lambda: [Hostile()]])
def test_items_that_resist_being_looked_at_do_no_harm(recorder: Recorder, make) -> None:
    item = make()
    assert list(watch_loop([item] * 5, "line 1")) == [item] * 5


@pytest.mark.parametrize(
    ("item", "batch"),
    [
        (torch.zeros(2), True),
        (np.zeros(2), True),
        ({"x": torch.zeros(2), "n": 3}, True),
        ([("a", torch.zeros(2))], True),
        (SimpleNamespace(x=torch.zeros(2)), True),
        ((0, {"x": [torch.zeros(2)]}), True),  # enumerate
        (0, False),
        ("text", False),
        (None, False),
        (torch.nn.Linear(2, 2), False),
        (torch.optim.SGD([torch.zeros(2)], 0.1), False),
        ([1, 2, 3], False),
        ({}, False),
    ],
)
def test_looks_like_batch(item: object, batch: bool) -> None:
    assert looks_like_batch(item) is batch
