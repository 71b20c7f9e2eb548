"""Loops without a DataLoader, without training, without steps; and those that end badly."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from jupyter_gpuprof import load_run, profile, watch
from jupyter_gpuprof.probes import hooks
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.store.runs import recent_runs
from tests.session.live import (
    Naps,
    Net,
    SleepyData,
    assert_share,
    assert_whole,
    missing,
    run_of,
    share,
    steady,
)

# -- sources that are no DataLoader -----------------------------------------------------------------


def sleepy(naps: Naps, items: int, ms: float) -> Iterator[torch.Tensor]:
    for i in range(items):
        naps("input", ms)
        yield torch.full((4,), float(i))


@pytest.mark.parametrize("kind", ["generator", "function", "iterator"])
@steady
def test_watched_source(kind: str) -> None:
    naps = Naps()
    net = Net(naps, 4)

    def loop() -> None:
        batches = sleepy(naps, 40, 4)
        if kind == "generator":
            for x in watch(batches, "mine"):
                net.train(x)
        elif kind == "function":
            get = watch(batches.__next__, "mine")
            for _ in range(40):
                net.train(get())
        else:
            it = watch(batches, "mine")
            for _ in range(40):
                net.train(next(it))

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed) == (40, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    assert [(item.name, item.fetches) for item in run.loaders] == [("mine", 40)]


@steady
def test_watched_list_costs_nothing() -> None:
    naps = Naps()
    net = Net(naps, 6)

    def loop() -> None:
        for x in watch([torch.zeros(4)] * 40):
            net.train(x)

    run = run_of(loop)
    assert run.steps.counted == 40
    assert share(run, "exposed_input") < 0.05
    assert run.verdict.label == "compute-bound"


@pytest.mark.parametrize("watched", [False, True])
@steady
def test_off_thread_consumer_is_not_input_bound(watched: bool) -> None:
    """The producer takes 15 ms a batch on a thread of its own, the step 20 ms: nobody waits."""
    naps = Naps()
    net = Net(naps, 20)
    loader = DataLoader(SleepyData(Naps(), 40, 15), batch_size=None)
    q: queue.Queue[torch.Tensor | None] = queue.Queue(4)

    def produce() -> None:
        for x in loader:
            q.put(x)
        q.put(None)

    def loop() -> None:
        thread = threading.Thread(target=produce)
        thread.start()
        get = watch(q.get) if watched else q.get
        while (x := get()) is not None:
            net.train(x)
        thread.join()

    run = run_of(loop)
    assert run.verdict.label != "input-bound"
    assert any("40 batches were fetched on other threads" in note for note in run.notes)
    if watched:
        assert share(run, "exposed_input") < 0.1
        assert run.verdict.label == "compute-bound"
    else:
        assert "no loader seen" in missing(run, "exposed_input")
        assert any("No loader was seen" in note for note in run.notes)


@steady
def test_no_loader_at_all_is_said_and_not_judged() -> None:
    naps = Naps()
    net = Net(naps, 5)

    def loop() -> None:
        for _ in range(40):
            naps("data", 5)  # who knows that this is input?
            net.train(torch.zeros(4))

    run = run_of(loop)
    assert run.steps.counted == 39
    assert missing(run, "exposed_input") == "no loader seen"
    assert any("watch()" in note for note in run.notes)
    assert run.verdict.label == "unclear"
    assert "no loader seen" in run.verdict.sentence
    assert any("watch()" in doubt for doubt in run.verdict.doubts)
    assert_whole(run)


@steady
def test_no_loader_for_training_but_one_for_validation_is_not_judged() -> None:
    naps = Naps()
    net = Net(naps, 5)
    val = DataLoader(SleepyData(naps, 4, 2, "validation"), batch_size=None)

    def loop() -> None:
        for i in range(60):
            naps("data", 5)
            net.train(torch.zeros(4))
            if i % 20 == 19:
                with torch.no_grad():
                    for x in val:
                        net.model(x)

    run = run_of(loop)
    assert missing(run, "exposed_input") == "no loader seen"
    assert run.verdict.label == "unclear"


@steady
def test_one_batch_reused_is_said() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 10, 4), batch_size=None)

    def loop() -> None:
        x = next(iter(loader))
        for _ in range(50):
            net.train(x)

    run = run_of(loop)
    assert run.steps.counted >= 40
    assert "one batch" in missing(run, "exposed_input")
    assert run.verdict.label == "unclear"


# -- without training, without steps ----------------------------------------------------------------


@steady
def test_inference_only() -> None:
    naps = Naps()
    net = Net(naps, 4)
    loader = DataLoader(SleepyData(naps, 50, 5), batch_size=None)

    def loop() -> None:
        with torch.inference_mode():
            for x in loader:
                net.loss(x)

    run = run_of(loop)
    assert (run.steps.counted, run.steps.failed, run.steps.optimizer_steps) == (50, 0, 0)
    assert_share(run, "exposed_input", naps.seconds["input"])
    assert run.verdict.label == "input-bound"
    assert any("inference" in note for note in run.notes)
    assert [item.role for item in run.loaders] == ["inference"]


@pytest.mark.parametrize("loop", [lambda: None, lambda: list(DataLoader([]))], ids=["nothing", "no items"])
@steady
def test_empty_loop(loop) -> None:
    run = run_of(loop)
    assert run.steps.counted == 0
    assert run.verdict.label == "unclear"
    assert "No training step" in run.verdict.sentence


@pytest.mark.parametrize("kind", ["loader", "watch", "no loader"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_steps_limit(kind: str, warmup: int) -> None:
    naps = Naps()
    net = Net(naps, 0)
    got = []

    def loop() -> None:
        if kind == "no loader":
            for i in range(1000):
                got.append(i)
                net.train(torch.zeros(4))
        else:
            data = [torch.zeros(4)] * 1000
            for x in DataLoader(data, batch_size=None) if kind == "loader" else watch(data):
                got.append(1)
                net.train(x)

    run = run_of(loop, warmup=warmup, steps=20)
    assert (run.steps.counted, run.steps.warmup) == (20, warmup)
    assert len(got) == 20 + warmup + (kind == "no loader")  # whose first step only shows where steps begin
    assert any("ended after 20 counted steps" in note for note in run.notes)


def test_steps_limit_on_one_batch_reused() -> None:
    net = Net(Naps(), 0)
    got = []

    def loop() -> None:
        x = next(iter(DataLoader([torch.zeros(4)], batch_size=None)))
        for i in range(1000):
            got.append(i)
            net.train(x)

    run = run_of(loop, steps=20)
    assert 19 <= run.steps.counted <= 20
    assert len(got) < 40


# -- nested runs ------------------------------------------------------------------------------------


@steady
def test_nested_runs_count_nothing_twice() -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(SleepyData(naps, 30, 3), batch_size=None)

    def epoch() -> None:
        for x in loader:
            net.train(x)

    with profile(save=False, warmup=0) as outer:
        epoch()
        before = dict(naps.seconds)
        with profile(save=False, warmup=0) as inner:
            epoch()
        inside = {name: naps.seconds[name] - before[name] for name in before}
        epoch()
    assert (inner.run.steps.counted, outer.run.steps.counted) == (30, 60)
    assert_share(inner.run, "exposed_input", inside["input"])
    assert_share(outer.run, "exposed_input", naps.seconds["input"] - inside["input"])
    assert outer.run.steps.total_s == pytest.approx(
        sum(naps.seconds[name] - inside[name] for name in ("input", "compute")), rel=0.25
    )


@steady
def test_nested_run_inside_a_step() -> None:
    naps = Naps()
    net = Net(naps, 3)
    loader = DataLoader(SleepyData(naps, 20, 3), batch_size=None)

    def loop() -> None:
        for i, x in enumerate(loader):
            if i == 10:
                with profile(save=False):
                    naps("nested", 300)
            net.train(x)

    run = run_of(loop)
    assert run.steps.counted == 20
    assert run.steps.total_s < 0.3


# -- bad ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("where", ["step", "loader"])
def test_whatever_ends_the_block_the_run_is_there(error: type[BaseException], where: str) -> None:
    naps = Naps()
    net = Net(naps, 1)

    class Ends(SleepyData):
        def __getitem__(self, i: int) -> torch.Tensor:
            if where == "loader" and i == 30:
                raise error("the end")
            return super().__getitem__(i)

    def loop() -> None:
        for i, x in enumerate(DataLoader(Ends(naps, 50, 1), batch_size=None)):
            net.train(x)
            if where == "step" and i == 29:
                raise error("the end")

    p = profile(name="ends badly")
    with pytest.raises(error), p:
        loop()
    assert not hooks.installed()
    assert p.run.steps.counted + p.run.steps.warmup == 30
    assert load_run("last") == p.run


def test_hooks_that_fail_are_switched_off_and_the_loop_is_as_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def weights(profiled: bool) -> tuple[list[torch.Tensor], object]:
        torch.manual_seed(3)
        net = Net(Naps(), 0)
        data = [torch.randn(4) for _ in range(60)]

        def loop() -> None:
            for x in DataLoader(data, batch_size=2, shuffle=True):
                net.train(x)

        run = run_of(loop) if profiled else loop()
        return [p.detach().clone() for p in net.model.parameters()], run

    bare, _ = weights(False)
    broken, calls = Recorder.end_fetch, []

    def fails(self, *args, **kwargs):
        calls.append(args)
        broken(self, *args, **kwargs)
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Recorder, "end_fetch", fails)
    profiled, run = weights(True)
    assert all(torch.equal(a, b) for a, b in zip(bare, profiled, strict=True))
    assert len(calls) == 3
    assert any("switched off" in note and "ZeroDivisionError: ours" in note for note in run.notes)


@pytest.mark.parametrize("amp", [False, True])
def test_training_is_bit_for_bit_the_same(amp: bool) -> None:
    def weights(profiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 2))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        data = torch.utils.data.TensorDataset(torch.randn(120, 8), torch.randint(0, 2, (120,)))
        loader = DataLoader(data, batch_size=8, shuffle=True)

        def loop() -> None:
            for _ in range(2):
                for x, y in loader:
                    optimizer.zero_grad()
                    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                        loss = torch.nn.functional.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()

        run_of(loop) if profiled else loop()
        after = torch.randn(3)  # the state of the random generator
        return [*(p.detach().clone() for p in model.parameters()), after]

    for a, b in zip(weights(False), weights(True), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_two_processes_save_to_one_ledger(tmp_path: Path) -> None:
    with profile(name="both", save=False) as p:
        pass
    (tmp_path / "run.json").write_text(json.dumps(p.run.to_dict()))
    script = textwrap.dedent(
        """
        import json, sys
        from dataclasses import replace
        from jupyter_gpuprof.records.run import Run
        from jupyter_gpuprof.store.runs import save_run
        run = Run.from_dict(json.load(open(sys.argv[1])))
        for i in range(25):
            assert save_run(replace(run, run_id=f"{sys.argv[2]}-{i}")) == ""
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run.json")]
    processes = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in ("a", "b")]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert len({run.run_id for run in recent_runs(100)}) == 50


def test_how_a_run_ended_is_said() -> None:
    p = profile("stopped", save=False)
    with pytest.raises(KeyboardInterrupt), p:
        raise KeyboardInterrupt
    assert "The run ended with KeyboardInterrupt." in p.run.notes


def test_a_swallowed_request_to_end_is_made_once() -> None:
    net = Net(Naps(), 0)
    got = []

    def loop() -> None:
        iterator = iter(DataLoader(torch.zeros(200, 4), batch_size=None))
        while True:
            try:
                x = next(iterator)
            except StopIteration:
                break
            except:  # noqa: E722  (what a person may write)
                continue
            net.train(x)
            got.append(x)

    run = run_of(loop, steps=20)
    assert len(got) >= 199
    assert run.steps.counted == 20
    assert any("caught the request to end" in note for note in run.notes)


def test_a_run_in_another_thread_is_doubted() -> None:
    net = Net(Naps(), 0)
    began, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with profile("other", save=False):
            began.set()
            go_on.wait(10)

    with profile("first", save=False) as p:
        thread = threading.Thread(target=other)
        thread.start()
        began.wait(10)
        for x in DataLoader(torch.zeros(30, 4), batch_size=None):
            net.train(x)
        go_on.set()
        thread.join()
    assert any("another thread" in doubt for doubt in p.run.verdict.doubts)


def test_an_interrupt_while_a_run_begins_or_ends_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    for target in ("_install", "_tell_around"):
        monkeypatch.setattr(hooks, target, interrupt)
        with pytest.raises(KeyboardInterrupt):
            profile("begin", save=False).__enter__()
        monkeypatch.undo()
        assert not hooks.installed()
    p = profile("end", save=False)
    p.__enter__()
    monkeypatch.setattr(Recorder, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        p.__exit__(None, None, None)
    assert not hooks.installed()
    assert hooks.current() is None
