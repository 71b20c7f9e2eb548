"""Validation, loops that fetch ahead, steps that fail: which batch is a training step?"""

from __future__ import annotations

import pytest

from jupyter_gpuprof.analysis.steps import PENDING_ROWS
from tests.analysis.loop_script import (
    BACKWARD,
    CHECKPOINT,
    FETCH,
    FORWARD,
    INPUT,
    LOG,
    STEP,
    VALIDATION,
    LoopScript,
    close,
    optimizer_steps,
    passes,
    seconds,
)

# -- validation --------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "no_grad in the body only"])
@pytest.mark.parametrize("key", ["val", "train"], ids=["own loader", "same loader"])
def test_validation_between_epochs(key: str, grad: bool) -> None:
    s = LoopScript()
    validation_s = 0.0
    for _epoch in range(3):
        s.iter()
        for _ in range(8):
            s.fetch()
            s.train()
        s.stop()
        s.iter(key)
        validation_s += s.validate(key, grad=grad)
    a = s.finish()
    assert (a.training.steps, a.failed) == (24, 0)
    assert seconds(a, VALIDATION) == close(validation_s)  # the last epoch's too
    assert seconds(a, INPUT) == close(24 * FETCH)
    assert a.roles[key] == ("validation" if key == "val" else "training")


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "no_grad in the body only"])
def test_validation_that_ends_early(grad: bool) -> None:
    s = LoopScript()
    for epoch in range(3):
        if epoch == 0:  # a sanity check before anything trains
            s.iter("val")
            s.fetch("val", grad=grad)
            s.fetch("val", grad=grad)
        s.iter()
        for _ in range(8):
            s.fetch()
            s.train()
        s.stop()
        s.iter("val")
        for _ in range(3):
            s.fetch("val", grad=grad)
            s.wait(FORWARD)
    a = s.finish()
    assert (a.training.steps, a.failed) == (24, 0)
    assert seconds(a, VALIDATION) == close(9 * (FETCH + FORWARD))
    assert a.before_s == close(2 * FETCH)
    assert a.roles == {"train": "training", "val": "validation"}


@pytest.mark.parametrize("exhausted", [True, False])
@pytest.mark.parametrize("grad", [False, True])
def test_validation_inside_an_epoch(grad: bool, exhausted: bool) -> None:
    s = LoopScript()
    for i in range(40):
        s.fetch()
        s.train()
        if i % 10 == 9:
            for _ in range(4):
                s.fetch("val", grad=grad)
                s.wait(FORWARD)
            if exhausted:
                s.stop("val", grad=grad)
    a = s.finish()
    assert (a.training.steps, a.failed) == (40, 0)
    assert seconds(a, VALIDATION) == close(4 * 4 * (FETCH + FORWARD))
    assert seconds(a, INPUT) == close(40 * FETCH)


@pytest.mark.parametrize("exhausted", [True, False])
def test_validation_between_the_fetch_and_the_work_on_it(exhausted: bool) -> None:
    s = LoopScript()
    for i in range(40):
        s.fetch()
        if i % 10 == 0:
            for _ in range(4):
                s.fetch("val", grad=False)
                s.wait(FORWARD)
            if exhausted:
                s.stop("val", grad=False)
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (40, 0)
    # The first one was before anything trained. Where the loop breaks off nothing tells its end: what
    # comes after the last batch counts with the backward pass.
    unseen = 0 if exhausted else FORWARD
    assert seconds(a, VALIDATION) == close(3 * (4 * (FETCH + FORWARD) - unseen))
    assert a.before_s == close(4 * (FETCH + FORWARD) - unseen)


def test_long_validation_keeps_no_row_per_batch() -> None:
    s = LoopScript()
    s.fetch()
    s.train()
    s.stop()
    s.validate(batches=10 * PENDING_ROWS)
    s.fetch()
    s.train()
    a = s.finish()
    assert a.training.steps == 2
    assert a.forward.steps == 10 * PENDING_ROWS
    assert seconds(a, VALIDATION) == close(10 * PENDING_ROWS * (FETCH + FORWARD))


def test_validation_that_writes_files() -> None:
    s = LoopScript()
    for _ in range(3):
        s.fetch()
        s.train()
        s.fetch("val", grad=False)
        s.save(0.2)
        s.stop("val")
    a = s.finish()
    assert seconds(a, CHECKPOINT) + a.tail[CHECKPOINT] == close(3 * 0.2)
    assert seconds(a, VALIDATION) == close(3 * FETCH)


# -- loops that fetch ahead --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stop", "break", "still going"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_one_batch_fetched_ahead(end: str, epochs: int) -> None:
    s = LoopScript()
    for epoch in range(epochs):
        s.iter()
        s.fetch()
        for i in range(10):
            last = i == 9 and (end == "stop" or (end == "still going" and epoch < epochs - 1))
            s.stop() if last else s.fetch()
            s.train()
    a = s.finish()
    fetched = epochs * (10 if end == "stop" else 11)
    if end == "still going":
        fetched = 10 * epochs + 1
    assert a.failed == 0
    assert passes(a) == 10 * epochs
    assert a.training.steps == fetched
    assert seconds(a, INPUT) == close(fetched * FETCH)
    assert seconds(a, VALIDATION) == 0


@pytest.mark.parametrize("ahead", [0, 1])
def test_all_batches_of_an_accumulated_step_fetched_first(ahead: int) -> None:
    s = LoopScript()
    for _epoch in range(2):
        s.iter()
        for _ in range(ahead):
            s.fetch()
        for group in range(6):
            for k in range(4):
                if group == 5 and k == 3 and ahead:
                    s.stop()
                else:
                    s.fetch()
            for _ in range(4):
                s.backward()
            s.step()
        if not ahead:
            s.stop()
    a = s.finish()
    assert (a.training.steps, passes(a), optimizer_steps(a), a.failed) == (48, 48, 12, 0)
    step_s = FETCH + FORWARD + BACKWARD + STEP / 4
    # All batches of a group are alike: which pass was for which is not known. With one ahead the
    # first group of an epoch has five of them and the last one three.
    assert a.training.sample()[8:20] == pytest.approx([step_s] * 12)


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("groups", [(4, 4, 3), (4, 4, 4, 4, 4, 2), (4, 1), (3,), (1, 1, 1), (1, 1)])
def test_incomplete_group_at_the_end_of_an_epoch(groups: tuple[int, ...], ahead: int, epochs: int) -> None:
    s = LoopScript()
    for _ in range(epochs):
        s.iter()
        left = sum(groups)
        for i, group in enumerate(groups):
            for _ in range(group + (ahead if i == 0 else 0)):
                s.fetch() if left else s.stop()
                left -= 1
            for _ in range(group):
                s.backward()
            s.step()
        if not ahead:
            s.stop()
    a = s.finish()
    assert (a.training.steps, a.failed) == (epochs * sum(groups), 0)


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "two passes", "accumulating", "ahead"])
def test_steps_that_raise_and_are_skipped_are_failed(kind: str) -> None:
    s = LoopScript()
    if kind == "ahead":
        s.fetch()
    for i in range(40):
        s.stop() if kind == "ahead" and i == 39 else s.fetch()
        s.wait(FORWARD)
        if i in (7, 20, 33):
            continue
        s.backward()
        if kind == "two passes":
            s.step()
            s.backward()
        if kind != "accumulating" or i % 4 == 3:
            s.step()
    a = s.finish()
    assert (a.training.steps, a.failed) == (40, 3)


def test_failed_steps_at_the_very_end() -> None:
    s = LoopScript()
    for i in range(30):
        s.fetch()
        s.wait(FORWARD)
        if i < 27:
            s.train()
    a = s.finish()
    # The last batch may not have been worked on yet; the two before it were given up.
    assert (a.training.steps, a.failed) == (29, 2)
    assert a.tail[INPUT] == close(FETCH)


def test_failing_without_end_keeps_no_row_per_batch() -> None:
    s = LoopScript()
    for _ in range(5):
        s.fetch()
        s.train()
    for _ in range(10 * PENDING_ROWS):
        s.fetch()
    assert s.assembler._groups.held_batches <= PENDING_ROWS
    assert s.finish().training.steps == 5 + 10 * PENDING_ROWS - 1


def test_step_that_raises_after_its_backward_pass_is_a_step() -> None:
    s = LoopScript()
    for i in range(20):
        s.fetch()
        s.backward()
        if i != 5:
            s.step()
            s.wait(LOG)
    assert s.finish().failed == 0


def test_error_of_the_loader() -> None:
    s = LoopScript()
    for i in range(20):
        s.fetch(seconds=0.5 if i == 7 else FETCH, outcome="error" if i == 7 else "batch")
        if i != 7:
            s.train()
    a = s.finish()
    assert a.failed == 1
    assert seconds(a, INPUT) == close(19 * FETCH + 0.5)


def test_error_of_the_loader_that_ends_the_cell() -> None:
    s = LoopScript()
    for _ in range(5):
        s.fetch()
        s.train()
    s.fetch(seconds=0.5, outcome="error")
    a = s.finish()
    assert (a.training.steps, a.failed) == (5, 0)
    assert a.tail[INPUT] == close(0.5)
