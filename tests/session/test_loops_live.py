"""Loops of real torch with set sleeps: every second is found where it was spent."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from tests.session.live import (
    Naps,
    Net,
    SleepyData,
    SleepyStream,
    assert_share,
    assert_whole,
    run_of,
    share,
    steady,
)


@steady
def test_input_bound_loop() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 50, 5), batch_size=None)

    def loop() -> None:
        for x in loader:
            net.train(x)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (50, 0, 50)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert_share(run, "device_compute", naps.seconds["compute"])
    assert_whole(run)
    assert run.verdict.label == "input-bound"
    assert run.verdict.strength == "strong"
    assert run.remedies[0].id.startswith("input.")
    (seen,) = run.loaders
    assert (seen.role, seen.fetches, seen.num_workers) == ("training", 50, 0)
    assert seen.wait_s == pytest.approx(naps.seconds["input"], rel=0.15)


@steady
def test_slow_collate_is_input_wait() -> None:
    naps = Naps()
    net = Net(naps, 4)

    def collate(items: list[torch.Tensor]) -> torch.Tensor:
        naps("input", 5)
        return torch.stack(items)

    loader = DataLoader(SleepyData(naps, 60, 0), batch_size=2, collate_fn=collate)

    def loop() -> None:
        for x in loader:
            net.train(x)

    run = run_of(loop)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"


@steady
def test_busy_loop_is_neither_input_nor_host_bound() -> None:
    naps = Naps()
    net = Net(naps, 8)
    loader = DataLoader(SleepyData(naps, 50, 0), batch_size=None)

    def loop() -> None:
        for x in loader:
            net.train(x)

    run = run_of(loop)
    assert share(run, "device_compute") > 0.85
    assert run.verdict.label == "compute-bound"


@steady
def test_logging_after_the_step_is_host_work_between_steps() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 40, 0), batch_size=None)

    def loop() -> None:
        for x in loader:
            net.train(x)
            naps("log", 5)

    run = run_of(loop)
    assert_share(run, "between.other", naps.seconds["log"])
    assert_share(run, "device_compute", naps.seconds["compute"])
    assert_whole(run)
    assert run.verdict.label == "host-bound"
    assert "logging" in run.verdict.sentence


@steady
def test_gradient_accumulation() -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(SleepyData(naps, 60, 4), batch_size=None)

    def loop() -> None:
        for i, x in enumerate(loader):
            net.loss(x).backward()
            if i % 4 == 3:
                net.optimizer.step()
                net.optimizer.zero_grad()

    run = run_of(loop)
    assert (run.steps.counted, run.steps.optimizer_steps, run.steps.failed) == (60, 15, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"


@steady
def test_grad_scaler_that_skips_steps() -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(SleepyData(naps, 40, 4), batch_size=None)
    scaler = torch.amp.GradScaler("cpu")

    def loop() -> None:
        for i, x in enumerate(loader):
            net.optimizer.zero_grad()
            loss = net.loss(x) * (float("inf") if i % 10 == 9 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(net.optimizer)
            scaler.update()

    run = run_of(loop)
    assert (run.steps.counted, run.steps.optimizer_steps, run.steps.failed) == (40, 36, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert all(torch.isfinite(p).all() for p in net.model.parameters())


@steady
def test_two_optimizers() -> None:
    naps = Naps()
    generator, critic = Net(naps, 3), Net(naps, 3)
    loader = DataLoader(SleepyData(naps, 40, 5), batch_size=None)

    def loop() -> None:
        for x in loader:
            critic.train(x)
            naps("compute", 2)  # between the two, so inside the step
            generator.train(x)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.optimizer_steps, run.steps.failed) == (40, 80, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert_share(run, "device_compute", naps.seconds["compute"])


@steady
def test_lbfgs() -> None:
    naps = Naps()
    net = Net(naps, 1)
    optimizer = torch.optim.LBFGS(net.model.parameters(), lr=1e-4, max_iter=4)
    loader = DataLoader(SleepyData(naps, 30, 6), batch_size=None)

    def loop() -> None:
        for x in loader:

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = net.loss(x) ** 2  # noqa: B023
                loss.backward()
                return loss

            optimizer.step(closure)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.optimizer_steps, run.steps.failed) == (30, 30, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])


@steady
def test_zip_of_loaders() -> None:
    naps = Naps()
    net = Net(naps, 4)
    a = DataLoader(SleepyData(naps, 40, 3), batch_size=None)
    b = DataLoader(SleepyData(naps, 40, 3), batch_size=None)

    def loop() -> None:
        for _ in range(2):
            for x, y in zip(a, b, strict=True):
                net.train(x + y)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (80, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert [(item.role, item.fetches) for item in run.loaders] == [("training", 80), ("training", 80)]


@steady
def test_stream() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyStream(naps, 40, 4), batch_size=None)

    def loop() -> None:
        for x in loader:
            net.train(x)

    run = run_of(loop)
    assert run.steps.counted == 40
    assert_share(run, "exposed_input", naps.seconds["input"])


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@steady
def test_workers_and_their_start(persistent: bool) -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(
        SleepyData(Naps(), 20, 6), batch_size=None, num_workers=1, persistent_workers=persistent
    )

    def loop() -> None:
        for epoch in range(2):
            iterator = naps.clock("start", iter, loader)
            x = naps.clock("start", next, iterator)
            for _ in range(19):
                net.train(x)
                x = naps.clock("input", next, iterator)
            net.train(x)
            # The last next() shuts the workers down: of the last epoch that is after the steps.
            naps.clock("start" if epoch == 0 else "after", next, iterator, None)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (40, 0)
    assert_share(run, "between.epoch_start", naps.seconds["start"])
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    (seen,) = run.loaders
    assert (seen.num_workers, seen.persistent_workers, seen.fetches) == (1, persistent, 40)


@pytest.mark.slow
@steady
def test_workers_started_for_short_epochs_are_the_named_cause() -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(SleepyData(Naps(), 6, 0), batch_size=None, num_workers=1)

    def loop() -> None:
        for _ in range(5):
            for x in loader:
                net.train(x)

    run = run_of(loop)
    assert run.steps.counted == 30
    assert run.verdict.label == "input-bound"
    assert "starting the loader's workers" in run.verdict.sentence
    assert "input.persistent-workers" in {remedy.id for remedy in run.remedies}


@steady
def test_loader_made_anew_each_epoch() -> None:
    naps = Naps()
    net = Net(naps, 4)
    data = SleepyData(naps, 10, 4)

    def loop() -> None:
        for _ in range(5):
            for x in DataLoader(data, batch_size=None):
                net.train(x)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (50, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert [item.fetches for item in run.loaders] == [50]


@steady
def test_next_of_iter_inside_the_step() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 10, 4), batch_size=None)

    def loop() -> None:
        for _ in range(40):
            net.train(next(iter(loader)))

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (40, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"


@steady
def test_checkpoint_between_steps() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 40, 0), batch_size=None)

    class SlowFile:
        """A network drive."""

        def write(self, data: bytes) -> int:
            naps("checkpoint", 3)
            return len(data)

        def flush(self) -> None:
            pass

    def loop() -> None:
        for i, x in enumerate(loader):
            net.train(x)
            if i % 5 == 4:
                torch.save(net.model.state_dict(), SlowFile())

    run = run_of(loop)
    assert naps.seconds["checkpoint"] > 0.1
    last = naps.seconds["checkpoint"] / 8  # after the last step
    assert_share(run, "between.checkpoint", naps.seconds["checkpoint"] - last)
    assert run.verdict.label == "host-bound"
    assert "checkpoints" in run.verdict.sentence
    assert "host.checkpoint" in {remedy.id for remedy in run.remedies}


@steady
def test_step_that_raises_and_is_skipped() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 50, 4), batch_size=None)

    def loop() -> None:
        for i, x in enumerate(loader):
            try:
                if i % 10 == 5:
                    raise RuntimeError("out of memory")
                net.train(x)
            except RuntimeError:
                continue

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (45, 5)
    assert_share(run, "exposed_input", naps.seconds["input"])


@pytest.mark.parametrize("how", ["under no_grad", "no_grad in the body", "broken off"])
@steady
def test_validation_inside_training(how: str) -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 24, 0), batch_size=None)
    val = DataLoader(SleepyData(naps, 6, 3, "validation"), batch_size=None)

    def forward(x: torch.Tensor) -> None:
        naps("validation", 3)
        net.model(x)

    def validate() -> None:
        if how == "under no_grad":
            with torch.no_grad():
                for x in val:
                    forward(x)
        else:
            for i, x in enumerate(val):
                with torch.no_grad():
                    forward(x)
                if how == "broken off" and i == 3:
                    break

    def loop() -> None:
        for _ in range(3):
            for x in loader:
                net.train(x)
            validate()

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (72, 0)
    assert_share(run, "between.validation", naps.seconds["validation"])
    assert share(run, "exposed_input") < 0.1  # what validation waits for is its own
    assert run.verdict.label == "compute-bound"  # validation is stated apart, not judged
    assert {item.role for item in run.loaders} == {"training", "validation"}
