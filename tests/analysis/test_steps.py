"""Every second of a loop belongs to one part of one step: loops that train."""

from __future__ import annotations

import pytest

from jupyter_gpuprof.analysis.steps import OPTIMIZER_STEPS_PER_BATCH
from tests.analysis.loop_script import (
    BACKWARD,
    COMPUTE,
    EPOCH,
    FETCH,
    FORWARD,
    INPUT,
    LOG,
    OTHER,
    STEP,
    VALIDATION,
    LoopScript,
    close,
    optimizer_steps,
    passes,
    seconds,
)

# -- ordinary loops ----------------------------------------------------------------------------------


def test_plain_loop() -> None:
    s = LoopScript()
    s.wait(0.5)  # imports, model
    for _ in range(10):
        s.fetch()
        s.train()
    a = s.finish()
    assert a.training.steps == 10
    assert seconds(a, INPUT) == close(10 * FETCH)
    assert seconds(a, COMPUTE) == close(10 * (FORWARD + BACKWARD + STEP))
    assert seconds(a, OTHER) == close(9 * LOG)
    assert a.tail[OTHER] == close(LOG)
    assert a.before_s == close(0.5)
    assert (passes(a), optimizer_steps(a), a.failed) == (10, 10, 0)
    assert a.loader_seen
    assert not a.reused_batch
    assert a.roles == {"train": "training"}
    assert a.exposed_s["train"] == close(10 * FETCH)


def test_the_sample_holds_what_is_inside_a_step() -> None:
    s = LoopScript()
    s.iter(seconds=0.3)
    for _ in range(3):
        s.fetch()
        s.train()
        s.save(0.4)
        s.wait(0.1)
    a = s.finish()
    assert a.training.sample() == pytest.approx([FETCH + FORWARD + BACKWARD + STEP] * 3)


def test_gradient_accumulation() -> None:
    s = LoopScript()
    for i in range(12):
        s.fetch()
        s.backward()
        if i % 4 == 3:
            s.step()
            s.wait(LOG)
    a = s.finish()
    assert (a.training.steps, passes(a), optimizer_steps(a), a.failed) == (12, 12, 3, 0)
    assert seconds(a, INPUT) == close(12 * FETCH)
    assert seconds(a, OTHER) == close(2 * LOG)


def test_losses_added_up_over_batches_fail_no_step() -> None:
    s = LoopScript()
    for i in range(20):
        s.fetch()
        s.wait(FORWARD)
        if i % 4 == 3:
            s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (20, 0)
    assert seconds(a, INPUT) == close(20 * FETCH)
    sample = a.training.sample()
    assert sample == pytest.approx([sample.mean()] * 20)  # the backward pass is for all four


def test_scaler_that_skips_a_step() -> None:
    s = LoopScript()
    for i in range(10):
        s.fetch()
        s.backward()
        if i != 4:
            s.step()
    a = s.finish()
    assert (a.training.steps, optimizer_steps(a), a.failed) == (10, 9, 0)


def test_two_optimizers_are_one_step() -> None:
    s = LoopScript()
    for _ in range(10):
        s.fetch()
        s.train()
        s.train()
    a = s.finish()
    assert (a.training.steps, passes(a), optimizer_steps(a), a.failed) == (10, 20, 20, 0)
    # What comes between the two is part of the step.
    assert seconds(a, COMPUTE) == close(10 * (2 * (FORWARD + BACKWARD + STEP) + LOG))
    assert seconds(a, OTHER) == close(9 * LOG)


def test_two_optimizers_without_a_backward_pass_between() -> None:
    s = LoopScript()
    for _ in range(4):
        s.fetch()
        s.backward()
        s.step()
        s.wait(0.05)
        s.step()
    a = s.finish()
    assert (a.training.steps, seconds(a, OTHER)) == (4, close(0.0))


@pytest.mark.parametrize("closures", [lambda i: 5, lambda i: (3, 4, 5, 6, 20)[i % 5]])
def test_lbfgs_closes_the_step_several_times(closures) -> None:
    s = LoopScript()
    for i in range(20):
        s.fetch()
        for _ in range(closures(i)):
            s.backward()
        s.step()
    a = s.finish()
    assert (a.training.steps, optimizer_steps(a), a.failed) == (20, 20, 0)


def test_second_loader_within_the_step() -> None:
    s = LoopScript()
    for _ in range(10):  # a GAN: real images, then other latents
        s.fetch("images")
        s.train()
        s.fetch("latents", 0.001)
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (10, 0)
    assert seconds(a, INPUT) == close(10 * (FETCH + 0.001))
    assert a.roles["images"] == "training"


def test_several_critic_steps_per_generator_step() -> None:
    s = LoopScript()
    for _ in range(6):
        for _ in range(5):
            s.fetch("real")
            s.train()
        s.fetch("latents")
        s.train()
    a = s.finish()
    assert (passes(a), a.failed) == (36, 0)
    assert seconds(a, INPUT) == close(36 * FETCH)
    assert seconds(a, VALIDATION) == 0


def test_zip_of_loaders_is_one_step() -> None:
    s = LoopScript()
    for _epoch in range(3):
        for _ in range(8):
            s.fetch("a")
            s.fetch("b", 0.002)
            s.train()
        s.stop("a", 0.1)
    a = s.finish()
    assert (a.training.steps, a.failed) == (24, 0)
    assert seconds(a, INPUT) == close(24 * (FETCH + 0.002))
    assert seconds(a, VALIDATION) == 0
    assert seconds(a, EPOCH) == close(0.2)
    assert a.tail[EPOCH] == close(0.1)


def test_zip_whose_second_loader_ends_first() -> None:
    s = LoopScript()
    for _ in range(3):
        for _ in range(4):
            s.fetch("a")
            s.fetch("b")
            s.train()
        s.fetch("a")
        s.stop("b", 0.2)
    a = s.finish()
    assert seconds(a, EPOCH) == close(2 * 0.2)
    assert seconds(a, VALIDATION) == 0


@pytest.mark.parametrize("sign", ["stop", "break"])
def test_epochs(sign: str) -> None:
    s = LoopScript()
    for epoch in range(3):
        s.iter(seconds=0.2)
        for i in range(8):
            s.fetch(seconds=0.1 if i == 0 else FETCH, epoch=i == 0)
            s.train()
        if sign == "stop":
            s.stop(seconds=0.05)
        s.wait(0.01)
        assert s.assembler.training.steps >= 8 * epoch
    a = s.finish()
    assert (a.training.steps, a.failed) == (24, 0)
    assert seconds(a, INPUT) == close(21 * FETCH)
    shutdown_s = 2 * 0.05 if sign == "stop" else 0.0
    assert seconds(a, EPOCH) == close(3 * (0.2 + 0.1) + shutdown_s)
    assert seconds(a, OTHER) == close(23 * LOG + 2 * 0.01)


def test_loader_made_anew_each_epoch_over_new_data() -> None:
    s = LoopScript()
    for epoch in range(4):
        s.iter(("train", epoch), 0.02)
        for _ in range(5):
            s.fetch(("train", epoch))
            s.train()
        s.stop(("train", epoch))
    a = s.finish()
    assert (a.training.steps, a.failed) == (20, 0)
    assert set(a.roles.values()) == {"training"}
    assert seconds(a, EPOCH) == close(4 * 0.02)


def test_next_of_iter_inside_the_step() -> None:
    s = LoopScript()
    for _ in range(10):
        s.iter(seconds=0.03)
        s.fetch()
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (10, 0)
    assert seconds(a, EPOCH) == close(10 * 0.03)
    assert seconds(a, OTHER) == close(9 * LOG)


def test_batches_that_come_under_no_grad() -> None:
    s = LoopScript()
    for _ in range(10):  # with torch.no_grad(): batch = next(it)
        s.fetch(grad=False)
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (10, 0)


def test_a_look_at_the_first_batch_is_no_step() -> None:
    s = LoopScript()
    s.iter()
    s.fetch()
    s.wait(1.0)  # the model is made after a look at the shapes
    s.iter()
    for _ in range(6):
        s.fetch()
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (6, 0)
    assert a.before_s == close(1.0 + FETCH)


def test_zip_of_a_loader_and_something_watched() -> None:
    s = LoopScript()
    for _ in range(10):
        s.fetch("loader", origin="loader")
        s.fetch("queue", 0.002, origin="watch")
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (10, 0)
    assert seconds(a, INPUT) == close(10 * (FETCH + 0.002))
    assert seconds(a, VALIDATION) == 0


def test_second_loader_under_no_grad_in_every_step() -> None:
    s = LoopScript()
    for _ in range(10):
        s.fetch("train")
        s.fetch("teacher", 0.002, grad=False)
        s.train()
    a = s.finish()
    assert (a.training.steps, a.failed) == (10, 0)
    assert seconds(a, INPUT) == close(10 * (FETCH + 0.002))
    assert seconds(a, VALIDATION) == 0


# -- loops of the cell -------------------------------------------------------------------------------


def test_loop_over_losses_inside_the_step() -> None:
    s = LoopScript()
    for _ in range(10):
        s.fetch("train")
        s.wait(FORWARD)
        for _ in range(4):  # for loss in losses: loss.backward()
            s.fetch("line 7", 0.0, origin="for")
            s.backward(0.0)
        s.stop("line 7", origin="for")
        s.step()
    a = s.finish()
    assert (a.training.steps, passes(a), a.failed) == (10, 40, 0)
    assert seconds(a, COMPUTE) == close(10 * (FORWARD + 4 * BACKWARD + STEP))


def test_plain_loop_over_a_list_of_batches() -> None:
    s = LoopScript()
    for _epoch in range(3):
        for _ in range(6):
            s.fetch("line 3", origin="for")
            s.train()
        s.stop("line 3", origin="for")
    a = s.finish()
    assert (a.training.steps, a.failed) == (18, 0)
    assert a.loader_seen


def test_loop_of_the_cell_that_does_not_train_is_other_work() -> None:
    s = LoopScript()
    for _ in range(3):
        s.fetch()
        s.train()
        for _ in range(5):
            s.fetch("line 9", 0.0, origin="for")
            s.wait(0.01)
        s.stop("line 9", origin="for")
    a = s.finish()
    assert a.training.steps == 3
    assert seconds(a, OTHER) == close(2 * (LOG + 5 * 0.01))
    assert seconds(a, VALIDATION) == 0
    assert a.implicit.steps == 15


def test_what_was_no_batch_costs_where_it_came() -> None:
    s = LoopScript()
    for _ in range(3):
        s.fetch()
        s.assembler.begin_fetch(s.t)
        s.wait(0.5)
        s.assembler.cancel_fetch(s.t)
        s.train()
    a = s.finish()
    assert seconds(a, INPUT) == close(3 * FETCH)
    assert seconds(a, COMPUTE) == close(3 * (0.5 + FORWARD + BACKWARD + STEP))


# -- no loader, one batch, no training ---------------------------------------------------------------


def test_no_loader_counts_steps_by_optimizer() -> None:
    s = LoopScript()
    for _ in range(10):
        s.train()
    a = s.finish()
    assert (a.training.steps, optimizer_steps(a), a.failed) == (9, 9, 0)  # the first one's begin is unknown
    assert not a.loader_seen
    assert a.before_s == close(FORWARD + BACKWARD + STEP)
    assert seconds(a, COMPUTE) == close(9 * (LOG + FORWARD + BACKWARD + STEP))
    assert seconds(a, OTHER) == 0


def test_no_loader_for_training_but_one_for_validation() -> None:
    s = LoopScript()
    for i in range(20):
        s.train()
        if i % 5 == 4:
            s.validate()
    a = s.finish()
    assert not a.loader_seen  # of the training's own input nothing is known
    assert a.training.steps == 19
    assert seconds(a, VALIDATION) == close(3 * 4 * (FETCH + FORWARD))


def test_loader_after_steps_without_one() -> None:
    s = LoopScript()
    for _ in range(5):
        s.train()
    for _ in range(5):
        s.fetch()
        s.train()
    a = s.finish()
    assert a.training.steps == 4 + 5
    assert a.loader_seen


def test_one_batch_reused() -> None:
    s = LoopScript()
    s.fetch()
    for _ in range(100):
        s.train()
    a = s.finish()
    assert a.reused_batch
    assert a.training.steps == 100 - OPTIMIZER_STEPS_PER_BATCH
    assert a.failed == 0


def test_many_steps_on_each_of_many_batches() -> None:
    s = LoopScript()
    for _ in range(5):  # PPO: a rollout, then epochs of updates on it
        s.fetch(seconds=0.5)
        for _ in range(20):
            s.train()
    a = s.finish()
    assert not a.reused_batch  # the waits for batches are known, so input can be judged
    assert seconds(a, INPUT) == close(5 * 0.5)
    assert a.training.steps == 100 - OPTIMIZER_STEPS_PER_BATCH
    assert seconds(a, OTHER) == close(4 * LOG)
    assert a.failed == 0


def test_inference_only() -> None:
    s = LoopScript()
    for _epoch in range(2):
        s.iter()
        for _ in range(100):
            s.fetch(grad=False)
            s.wait(FORWARD)
        s.stop(seconds=0.1, grad=False)
    a = s.finish()
    assert (a.training.steps, a.forward.steps, a.failed) == (0, 200, 0)
    total = a.forward.total()
    assert total[INPUT] == close(200 * FETCH)
    assert total[COMPUTE] == close(200 * FORWARD)
    assert total[EPOCH] == close(2 * 0.1)
    assert a.loader_seen


def test_empty() -> None:
    a = LoopScript().finish()
    assert (a.training.steps, a.forward.steps, a.failed) == (0, 0, 0)
    s = LoopScript()
    s.iter(seconds=0.3)
    s.stop(seconds=0.1)
    s.wait(0.2)
    a = s.finish()
    assert (a.training.steps, a.forward.steps) == (0, 0)
    assert a.before_s == close(0.6)
    assert not a.loader_seen


def test_iterator_that_nobody_read() -> None:
    s = LoopScript()
    s.fetch()
    s.train()
    s.iter("other", 0.4)
    a = s.finish()
    assert a.before_s == close(0.4)


# -- steps so far ------------------------------------------------------------------------------------


def test_steps_so_far_are_those_of_a_run_that_ended_now() -> None:
    def plain(s: LoopScript, i: int) -> None:
        s.fetch()
        s.train()

    def accumulating(s: LoopScript, i: int) -> None:
        s.fetch()
        s.backward()
        if i % 4 == 3:
            s.step()

    def ahead(s: LoopScript, i: int) -> None:
        if i == 0:
            s.fetch()
        s.fetch()
        s.train()

    def inference(s: LoopScript, i: int) -> None:
        s.fetch(grad=False)
        s.wait(FORWARD)

    def no_loader(s: LoopScript, i: int) -> None:
        s.train()

    def reused(s: LoopScript, i: int) -> None:
        if i == 0:
            s.fetch()
        s.train()

    for step in (plain, accumulating, ahead, inference, no_loader, reused):
        for steps in (1, 2, 5, 20, 100):
            s = LoopScript()
            for i in range(steps):
                step(s, i)
            so_far = s.assembler.steps_done
            a = s.finish()
            assert so_far == (a.training.steps or a.forward.steps), (step.__name__, steps)
