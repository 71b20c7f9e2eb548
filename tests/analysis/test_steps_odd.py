"""Saving, copies, pauses, marks that are lost, and whatever else may happen: no second is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.lanes import PARTS
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.records.timing import Part
from tests.analysis.loop_script import (
    BACKWARD,
    CHECKPOINT,
    COMPUTE,
    COPIES,
    EPOCH,
    FORWARD,
    INPUT,
    LOG,
    OTHER,
    STEP,
    VALIDATION,
    LoopScript,
    close,
    seconds,
)

# -- saving, copies, pauses --------------------------------------------------------------------------


def test_checkpoint_between_and_inside_steps() -> None:
    s = LoopScript()
    for _ in range(4):
        s.fetch()
        s.backward()
        s.save(0.2)
        s.step()
        s.save(0.1)
    a = s.finish()
    assert seconds(a, CHECKPOINT) == close(4 * 0.2 + 3 * 0.1)
    assert a.tail[CHECKPOINT] == close(0.1)
    assert seconds(a, COMPUTE) == close(4 * (FORWARD + BACKWARD + STEP))


def test_saving_while_a_batch_is_made_is_waiting_for_it() -> None:
    s = LoopScript()
    for _ in range(4):
        s.assembler.begin_fetch(s.t)
        s.save(0.2)  # the data set fills its cache
        s.assembler.end_fetch(s.t, "train", "loader", "batch", grad=True, epoch=False)
        s.train()
    a = s.finish()
    assert seconds(a, CHECKPOINT) == 0
    assert seconds(a, INPUT) == close(4 * 0.2)


def test_copies_inside_the_step() -> None:
    s = LoopScript()
    for _ in range(4):
        s.fetch()
        s.assembler.begin_copy(s.t)
        s.wait(0.02)
        s.assembler.end_copy(s.t)
        s.train()
        s.assembler.begin_copy(s.t)
        s.wait(0.01)
        s.assembler.end_copy(s.t)
    a = s.finish()
    assert seconds(a, COPIES) == close(4 * 0.02)
    assert seconds(a, OTHER) == close(3 * (LOG + 0.01))


def test_nested_pauses() -> None:
    s = LoopScript()
    for i in range(6):
        s.fetch()
        s.backward()
        if i == 3:
            s.assembler.pause(s.t)
            s.wait(1.0)
            s.assembler.pause(s.t)
            s.wait(2.0)
            s.assembler.resume(s.t)
            s.wait(3.0)
            s.assembler.resume(s.t)
        s.step()
    a = s.finish()
    assert a.paused_s == close(6.0)
    assert seconds(a, COMPUTE) == close(6 * (FORWARD + BACKWARD + STEP))


def test_batches_come_while_a_pause_is_never_ended() -> None:
    s = LoopScript()
    s.fetch()
    s.backward()
    s.assembler.pause(s.t)
    s.wait(1.0)
    assert s.finish().paused_s == close(1.0)


@pytest.mark.parametrize("call", ["fetch", "save", "copy"])
def test_an_end_that_is_never_told(call: str) -> None:
    s = LoopScript()
    for i in range(20):
        s.fetch()
        s.train()
        if i == 5:
            getattr(s.assembler, f"begin_{call}")(s.t)
            s.wait(0.1)
    a = s.finish()
    assert a.training.steps == 20
    assert seconds(a, COMPUTE) == close(20 * (FORWARD + BACKWARD + STEP))
    where = CHECKPOINT if call == "save" else OTHER
    assert seconds(a, where) >= 0.1


def test_a_call_whose_end_is_never_told_inside_another() -> None:
    s = LoopScript()
    s.assembler.begin_iter(s.t)
    s.wait(0.1)
    s.assembler.begin_save(s.t)
    s.wait(0.2)
    s.assembler.pause(s.t)
    s.wait(0.4)
    s.assembler.end_iter(s.t, "train")
    s.fetch()
    s.train()
    a = s.finish()
    assert a.paused_s == close(0.4)
    assert seconds(a, EPOCH) == close(0.3)  # saving while the workers start is part of starting them


def test_the_tail_of_a_distributed_backward_pass_is_communication() -> None:
    s = LoopScript()
    for i in range(4):
        s.fetch()
        s.wait(FORWARD)
        s.assembler.begin_tail(s.t)
        if i < 3:  # the last pass raises and is tried again
            s.wait(0.05)
            s.assembler.end_tail(s.t)
        s.train()
    a = s.finish()
    assert seconds(a, Part.COMMUNICATION) == close(3 * 0.05)
    assert (a.training.steps, a.failed) == (4, 0)


def test_an_end_without_a_beginning() -> None:
    s = LoopScript()
    s.assembler.end_save(s.t)
    s.assembler.end_copy(s.t)
    s.assembler.end_fetch(s.t, "train", "loader", "batch", grad=True, epoch=False)
    s.assembler.resume(s.t)
    s.train()
    s.assembler.end_iter(s.t, "train")
    a = s.finish()
    assert a.training.steps == 1


# -- whatever happens --------------------------------------------------------------------------------

_T = st.floats(0.0, 2.0, allow_nan=False).map(lambda x: round(x, 3))
_KEYS = st.sampled_from(["a", "b", "c"])
_HOW = (
    _KEYS,
    st.sampled_from(["loader", "loader", "watch", "for"]),
    st.sampled_from(["batch", "batch", "batch", "stop", "error"]),
    st.booleans(),
    st.booleans(),
)
_FETCH = st.tuples(st.just("fetch"), *_HOW)
_END_FETCH = st.tuples(st.just("end_fetch"), *_HOW)
_SIMPLE = st.sampled_from(
    [
        ("begin_iter",), ("end_iter",), ("begin_fetch",), ("cancel_fetch",), ("backward",), ("optimizer",),
        ("begin_save",), ("end_save",), ("begin_copy",), ("end_copy",), ("pause",), ("resume",),
        ("begin_tail",), ("end_tail",), ("gap",),
    ]
)  # fmt: skip


def _tell(a: StepAssembler, t: float, dt: float, event: tuple) -> float:
    name, *args = event
    if name in ("fetch", "end_fetch"):
        if name == "fetch":
            a.begin_fetch(t)
            t += dt
        key, origin, outcome, grad, epoch = args
        a.end_fetch(t, key, origin, outcome, grad=grad, epoch=epoch)
    elif name == "end_iter":
        a.end_iter(t, "a")
    elif name in ("backward", "gap"):
        getattr(a, name)()
    else:
        getattr(a, name)(t)
    return t


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_T, st.one_of(_FETCH, _FETCH, _SIMPLE, _END_FETCH)), max_size=120), _T)
def test_no_second_is_lost_or_counted_twice(events: list, last: float) -> None:
    s = LoopScript()
    for dt, event in events:
        s.wait(dt)
        s.t = _tell(s.assembler, s.t, dt, event)
    s.wait(last)
    a = s.finish()  # checks the sum
    for series in (a.training, a.forward, a.implicit):
        assert (series.blocks() >= -1e-9).all()
    assert min(a.tail) >= -1e-9
    assert a.before_s >= -1e-9
    assert a.paused_s >= 0
    assert 0 <= a.failed <= a.training.steps


_LOOPS = st.lists(
    st.tuples(
        st.integers(1, 6),  # batches
        st.integers(1, 3),  # backward passes of each
        st.booleans(),  # validation afterwards
        st.booleans(),  # under no_grad
        st.booleans(),  # workers
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(_LOOPS, st.sets(st.integers(0, 29), max_size=3))
def test_every_batch_of_an_ordinary_loop_is_a_step(epochs: list, failing: set[int]) -> None:
    s = LoopScript()
    batches, validation_s = 0, 0.0
    for count, per_batch, validates, no_grad, workers in epochs:
        s.iter(seconds=0.1 if workers else 0.0)
        for i in range(count):
            s.fetch(epoch=workers and i == 0)
            for _ in range(per_batch):
                s.backward()
            s.step()
            s.wait(LOG)
            batches += 1
            if i in failing:
                s.save(0.01)
        s.stop()
        if validates:
            s.iter("val")
            validation_s += s.validate(grad=not no_grad)
    a = s.finish()
    assert (a.training.steps, a.failed) == (batches, 0)
    assert seconds(a, VALIDATION) == close(validation_s)
    assert a.training.total()[:PARTS].sum() == close(s.t - s.begun - a.before_s - sum(a.tail[:PARTS]))
