"""A resumed loop sees what the straight one sees: batches, learning rates, losses."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler
from torch.utils.data.distributed import DistributedSampler

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import CheckpointError, OptionError, UsageError
from jupyter_gpuprof.probes import rankagreement
from jupyter_gpuprof.session.checkpoints import checkpointer as module
from jupyter_gpuprof.session.checkpoints.checkpointer import Checkpointer, Interruption
from jupyter_gpuprof.store.checkpointplaces import Disk
from jupyter_gpuprof.testing import FakeClock
from tests.session.resumeloop import BATCH, ITEMS, Items, StreamWithState, train

KINDS = [
    "shuffle", "augmented", "generator", "replacement", "weighted", "batches", "distributed", "stream",
    "stream with state", "own", "torchdata",
]  # fmt: skip
WITH_WORKERS = ["shuffle", "generator", "replacement", "distributed", "stream", "persistent", "torchdata"]


def resumed(folder: Path, stops: tuple[int, ...], **options: Any) -> dict[int, Any]:
    """What the loop saw that was left at these steps, and once more at its end."""
    log: dict[int, Any] = {}
    for number, stop in enumerate((*stops, 0)):
        start = train(folder, log, stop_at=stop, seed=100 * number, **options)
        assert start.step == (stops[number - 1] if number else 0)
    return log


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
@pytest.mark.parametrize(
    ("kind", "workers"), [*((kind, 0) for kind in KINDS), *((kind, 2) for kind in WITH_WORKERS)]
)
def test_goes_on_as_if_nothing_had_been(tmp_path: Path, kind: str, workers: int) -> None:
    """Left in the middle of pass 0, twice; exactly at its end; and in the middle of pass 1."""
    if kind == "torchdata":
        pytest.importorskip("torchdata.stateful_dataloader")
    straight: dict[int, Any] = {}
    train(tmp_path / "straight", straight, kind=kind, workers=workers, epochs=2)
    per_pass = len(straight) // 2
    stops = (2, 3, per_pass, per_pass + 1)
    assert resumed(tmp_path / "resumed", stops, kind=kind, workers=workers, epochs=2) == straight


def test_what_workers_draw_differs_but_not_the_order(tmp_path: Path) -> None:
    straight: dict[int, Any] = {}
    train(tmp_path / "a", straight, kind="augmented", workers=2, epochs=1)
    again = resumed(tmp_path / "b", (3,), kind="augmented", workers=2, epochs=1)
    assert [seen[:3] for seen in straight.values()] == [seen[:3] for seen in again.values()]
    assert straight != again


def test_steps_after_the_last_save_are_made_again(tmp_path: Path) -> None:
    straight: dict[int, Any] = {}
    train(tmp_path / "a", straight, epochs=2)
    log: dict[int, Any] = {}
    train(tmp_path / "b", log, epochs=2, every=4, stop_at=6, async_=True)
    start = train(tmp_path / "b", log, epochs=2, every=4, seed=9, async_=True)
    assert (start.step, start.epoch, start.batch) == (4, 0, 4)
    assert str(start).startswith("Goes on at step 4 (epoch 0, batch 4) from step-0000000004-")
    assert log == straight


def test_a_save_waits_for_the_optimizer(tmp_path: Path) -> None:
    """Gradients of half an accumulation are never lost, since nothing is saved in the middle of one."""
    straight: dict[int, Any] = {}
    train(tmp_path / "a", straight, accumulate=3, epochs=2)
    log: dict[int, Any] = {}
    train(tmp_path / "b", log, accumulate=3, epochs=2, every=1, stop_at=5)
    start = train(tmp_path / "b", log, accumulate=3, epochs=2, every=1, seed=9)
    assert start.step == 3
    assert log == straight


class Parts:
    """What a loop has, small."""

    def __init__(self, loader: Any = None, width: int = 2) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, width)
        self.loader = loader if loader is not None else DataLoader(Items(), BATCH, shuffle=True)

    def checkpointer(self, folder: Path, **options: Any) -> Checkpointer:
        options = {"every": 1, "async_": False, "model": self.model, "loader": self.loader, **options}
        return Checkpointer(folder, **options)


def saved_at(folder: Path, steps: int, parts: Parts | None = None, **options: Any) -> None:
    parts = parts or Parts()
    with parts.checkpointer(folder, **options) as ck:
        while ck.step_count < steps:
            for _ in parts.loader:
                ck.step()
                if ck.step_count == steps:
                    break


def test_a_pass_left_by_break_has_ended(tmp_path: Path) -> None:
    parts = Parts()
    with parts.checkpointer(tmp_path) as ck:
        for _ in range(2):
            for number, _ in enumerate(parts.loader):
                ck.step()
                if number == 2:
                    break
        ck.save()
    with Parts().checkpointer(tmp_path) as ck:
        start = ck.resume()
        assert (start.step, start.epoch) == (6, 1)  # the save was made inside of the second pass


def test_a_look_at_the_first_batch_takes_nothing_away(tmp_path: Path) -> None:
    straight: dict[int, Any] = {}
    train(tmp_path / "a", straight, epochs=1)
    train(tmp_path / "b", {}, epochs=1, stop_at=3)
    parts = Parts()
    torch.manual_seed(7)
    del parts.model
    from tests.session import resumeloop

    own, seen = resumeloop.loader_of, []

    def loader_of(kind: str, workers: int) -> Any:
        loader = own(kind, workers)
        seen.append(loader)
        return loader

    resumeloop.loader_of = loader_of
    resume = Checkpointer.resume

    def then_look(ck: Checkpointer) -> Any:
        start = resume(ck)
        next(iter(seen[0]))
        return start

    Checkpointer.resume = then_look  # type: ignore[method-assign, assignment]
    try:
        log: dict[int, Any] = {}
        train(tmp_path / "b", log, epochs=1, seed=5)
    finally:
        resumeloop.loader_of, Checkpointer.resume = own, resume  # type: ignore[method-assign]
    assert log == {step: seen for step, seen in straight.items() if step > 3}


def test_loaders_and_optimizers_are_left_as_they_were(tmp_path: Path) -> None:
    parts = Parts()
    optimizer = torch.optim.SGD(parts.model.parameters(), 0.1)
    before = dict(vars(parts.loader)), type(parts.loader), signal.getsignal(signal.SIGTERM)
    with parts.checkpointer(tmp_path, optimizer=optimizer) as ck:
        assert type(parts.loader) is not before[1]
        assert isinstance(parts.loader, DataLoader)
        assert repr(type(parts.loader)) == repr(DataLoader)
        iterator = iter(parts.loader)
        assert len(iterator) == len(parts.loader) == 8
        assert type(iterator).__name__ == "_SingleProcessDataLoaderIter"
        ck.resume()
    assert (dict(vars(parts.loader)), type(parts.loader), signal.getsignal(signal.SIGTERM)) == before
    assert not optimizer._optimizer_step_post_hooks


def test_a_second_one_for_the_same_loader(tmp_path: Path) -> None:
    """A cell is run again: the new one counts, and the loader is whole in the end."""
    parts = Parts()
    first = parts.checkpointer(tmp_path)
    second = parts.checkpointer(tmp_path)
    for _ in parts.loader:
        second.step()
    first.close()
    assert sum(1 for _ in parts.loader) == 8
    second.close()
    assert type(parts.loader) is DataLoader


@pytest.mark.parametrize("how", ["SIGTERM", "SIGUSR1"])
def test_a_notice_saves_and_ends_the_loop(tmp_path: Path, how: str) -> None:
    parts = Parts()
    with parts.checkpointer(tmp_path, every="1h") as ck:
        for number, _ in enumerate(parts.loader):
            if number == 3:
                os.kill(os.getpid(), getattr(signal, how))
                assert not ck.newest  # nothing happens in the handler
            if number < 3:
                ck.step()
            else:
                with pytest.raises(Interruption) as end:
                    ck.step()
                break
        assert end.value.code == 128 + getattr(signal, how)
        assert ck.newest.startswith("step-0000000004-")
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    with Parts().checkpointer(tmp_path) as ck:
        assert ck.resume().step == 4


def test_handlers_of_others(tmp_path: Path) -> None:
    """One for a user signal stays, and is named; one for SIGTERM is ours until the end, and back then."""
    got: list[int] = []
    numbers = (signal.SIGUSR1, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: got.append(number)) for number in numbers]
    try:
        theirs = [signal.getsignal(number) for number in numbers]
        with Checkpointer(tmp_path, every=100, model=Parts().model) as ck:
            start = ck.resume()
            assert str(start) == "A new run. SIGUSR1 is handled by something else here, and left to it."
            signal.raise_signal(signal.SIGUSR1)
            ck.step()
            assert got == [signal.SIGUSR1]
            assert ck.newest == ""
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Interruption):
                ck.step()
        assert got == [signal.SIGUSR1]
        assert ck.newest
        assert [signal.getsignal(number) for number in numbers] == theirs
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_loop_that_hangs_can_be_ended_by_a_second_signal(tmp_path: Path) -> None:
    came = []
    before = signal.signal(signal.SIGTERM, lambda *facts: came.append(facts))
    try:
        with Parts().checkpointer(tmp_path):
            os.kill(os.getpid(), signal.SIGTERM)
            assert not came
            os.kill(os.getpid(), signal.SIGTERM)
            assert len(came) == 1
    finally:
        signal.signal(signal.SIGTERM, before)


def test_every_so_many_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeClock()
    monkeypatch.setattr(clock, "now_s", lambda: fake.ns * 1e-9)
    parts = Parts()
    with parts.checkpointer(tmp_path, every="10m") as ck:
        saved = []
        for _ in range(4):
            for _ in parts.loader:
                fake.advance(100)
                ck.step()
                saved.append(ck.newest)
    assert [i + 1 for i in range(1, 32) if saved[i] != saved[i - 1]] == [6, 12, 18, 24, 30]


class SlowDisk(Disk):
    """Waits in the middle of a save until it is let go on."""

    def __init__(self) -> None:
        self.go_on, self.arrived = threading.Event(), threading.Event()

    def sync(self, file: Any) -> None:
        self.arrived.set()
        assert self.go_on.wait(20)


def test_in_the_background_what_is_saved_is_the_state_of_then(tmp_path: Path) -> None:
    parts, disk = Parts(), SlowDisk()
    with parts.checkpointer(tmp_path, every=2, async_=True) as ck:
        ck._place._disk = disk  # type: ignore[attr-defined]
        then = None
        for _ in parts.loader:
            ck.step()
            if ck.step_count == 2:
                then = parts.model.weight.detach().clone()
                assert disk.arrived.wait(20)
            with torch.no_grad():
                parts.model.weight += 1
            if ck.step_count == 6:
                break
        assert not ck.newest, "not safe yet, so it does not count"
        assert not (tmp_path / "latest").exists()
        assert not list(tmp_path.glob("step-*"))
        disk.go_on.set()
        ck.wait()
        assert ck.newest.startswith("step-0000000002-")
    again = Parts()
    with again.checkpointer(tmp_path) as ck:
        assert ck.resume().step == 2
    assert torch.equal(again.model.weight, then)


def test_a_save_that_fails_is_told_and_training_goes_on(tmp_path: Path) -> None:
    class Full(Disk):
        full = True

        def write(self, file: Any, data: memoryview) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(file, data)

    for async_ in (False, True):
        parts, disk = Parts(), Full()
        with parts.checkpointer(tmp_path / str(async_), every=3, async_=async_) as ck:
            ck._place._disk = disk  # type: ignore[attr-defined]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                for _ in parts.loader:
                    ck.step()
                    if ck._writing is not None:
                        ck._writing.join()
            assert "No space left on device" in str(told[0].message)
            assert str(told[0].message).endswith("The newest that is safe: none.")
            with pytest.raises(CheckpointError, match="No space left on device"):
                ck.save()
            disk.full = False
            assert ck.save().startswith("step-0000000008-")


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path) -> None:
    saved_at(tmp_path, 3)
    name = (tmp_path / "latest").read_text().strip()
    corrupt(tmp_path / name / "state.pt")
    with Parts().checkpointer(tmp_path) as ck:
        with pytest.warns(UserWarning, match=rf"{name}: state\.pt is not what was written"):
            start = ck.resume()
        assert start.step == 2
        assert [one.name for one in start.rejected] == [name]


def test_if_all_are_damaged_nothing_begins_anew(tmp_path: Path) -> None:
    saved_at(tmp_path, 3)
    for path in tmp_path.glob("step-*/state.pt"):
        corrupt(path)
    with (
        Parts().checkpointer(tmp_path) as ck,
        pytest.raises(CheckpointError, match="None of the 3 checkpoints"),
    ):
        ck.resume()


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo pwned > pwned",)


def test_nothing_that_a_file_says_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if whoever wrote it made the digests fit."""
    monkeypatch.chdir(tmp_path)
    saved_at(tmp_path / "ck", 2)
    newest = tmp_path / "ck" / (tmp_path / "ck" / "latest").read_text().strip()
    torch.save({"model": Evil()}, newest / "state.pt")
    data, manifest = (newest / "state.pt").read_bytes(), json.loads((newest / "manifest.json").read_text())
    manifest["body"]["files"]["state.pt"] = [len(data), hashlib.sha256(data).hexdigest()]
    body = json.dumps(manifest["body"], sort_keys=True).encode()
    manifest["sha256"] = hashlib.sha256(body).hexdigest()
    (newest / "manifest.json").write_text(json.dumps(manifest))
    with Parts().checkpointer(tmp_path / "ck") as ck, pytest.warns(UserWarning, match="cannot be read"):
        assert ck.resume().step == 1
    assert not (tmp_path / "pwned").exists()
    assert pickle.dumps(Evil())


def test_what_could_only_be_loaded_by_running_code_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    parts = Parts()
    with parts.checkpointer(tmp_path, every="1h", extra={"when": random.Random()}) as ck:
        next(iter(parts.loader))
        with pytest.raises(UsageError, match=r"^\['extra'\]\['when'\] is a random\.Random, and loading one"):
            ck.step()


def test_plain_values_come_back_into_the_same_dict(tmp_path: Path) -> None:
    import numpy as np

    values = {"best": np.float32(0.5), "history": [1, (2.0, None)], "name": "a"}
    saved_at(tmp_path, 2, values=values)
    again: dict[str, Any] = {"old": 1}
    with Parts().checkpointer(tmp_path, values=again) as ck:
        ck.resume()
    assert again == {"best": 0.5, "history": [1, (2.0, None)], "name": "a"}


def test_other_batches_are_refused_or_carried_over(tmp_path: Path) -> None:
    saved_at(tmp_path, 4, Parts(DataLoader(Items(), 4)))  # 16 samples
    other = Parts(DataLoader(Items(), 8))
    with other.checkpointer(tmp_path) as ck:
        with pytest.raises(CheckpointError, match="loader: batch_size 4 then, 8 now"):
            ck.resume()
        start = ck.resume(remap=True)
        assert (start.step, start.batch) == (4, 2)
        assert next(iter(other.loader))[0].tolist() == list(range(16, 24))
    with (
        Parts(DataLoader(Items(), 5)).checkpointer(tmp_path) as ck,
        pytest.raises(CheckpointError, match="cannot be carried over"),
    ):
        ck.resume(remap=True)


def test_another_data_set_is_refused_even_so(tmp_path: Path) -> None:
    class More(Items):
        def __len__(self) -> int:
            return ITEMS + 2

    saved_at(tmp_path, 4, Parts(DataLoader(Items(), 4)))
    with Parts(DataLoader(More(), 4)).checkpointer(tmp_path) as ck:
        for remap in (False, True):
            with pytest.raises(CheckpointError, match="items 30 then, 32 now"):
                ck.resume(remap=remap)


class FourRanks:
    """As if there were four of them, of which this is the first."""

    rank, world = 0, 4

    def highest(self, flag: int) -> int:
        return flag

    def forget(self) -> None:
        pass

    def same(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        pass


def test_another_number_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank has read 16 samples in batches of 4; four ranks go on with their second batch of 2 each."""

    def dealt(rank: int, ranks: int, batch: int) -> DataLoader:
        return DataLoader(Items(), batch, sampler=DistributedSampler(Items(), ranks, rank, shuffle=False))

    saved_at(tmp_path, 4, Parts(dealt(0, 1, 4)))
    monkeypatch.setattr(module, "Ranks", FourRanks)
    parts = Parts(dealt(0, 4, 2))
    with parts.checkpointer(tmp_path) as ck:
        with pytest.raises(CheckpointError, match="1 ranks then, 4 now"):
            ck.resume()
        start = ck.resume(remap=True)
        assert start.batch == 2
        assert "the random states are not those of a straight run" in str(start)
        assert next(iter(parts.loader))[0].tolist() == [16, 20]
    with (
        Parts(DataLoader(Items(), 1)).checkpointer(tmp_path) as ck,  # not dealt among the ranks
        pytest.raises(CheckpointError, match="cannot be carried over"),
    ):
        ck.resume(remap=True)


def test_launched_ranks_without_a_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="2 ranks were launched"):
        rankagreement.Ranks()


class Fickle(Sampler):
    """Draws from a generator that nobody can find."""

    def __init__(self) -> None:
        self.own = [random.Random(5)]

    def __len__(self) -> int:
        return ITEMS

    def __iter__(self) -> Any:
        return iter(self.own[0].sample(range(ITEMS), ITEMS))


def test_an_order_that_cannot_be_had_again_is_refused(tmp_path: Path) -> None:
    def loader() -> DataLoader:
        return DataLoader(Items(), batch_sampler=BatchSampler(Fickle(), BATCH, False))

    saved_at(tmp_path, 11, Parts(loader()))  # in the second pass, whose order is not that of a first one
    parts = Parts(loader())
    with parts.checkpointer(tmp_path) as ck:
        ck.resume()
        with pytest.raises(UsageError, match="The sampler of loader does not give the same order again"):
            iter(parts.loader)


def test_other_things_are_refused(tmp_path: Path) -> None:
    saved_at(tmp_path, 2, ema={"decay": 0.9})
    with Parts().checkpointer(tmp_path, best={}) as ck, pytest.raises(CheckpointError) as error:
        ck.resume()
    assert "it holds ema, not given here; it does not hold best" in str(error.value)
    with (
        Parts(width=5).checkpointer(tmp_path, ema={}) as ck,
        pytest.raises(CheckpointError, match=r"The state of model does not fit it: .*size mismatch"),
    ):
        ck.resume()


def test_a_stream_with_state_is_not_read_again(tmp_path: Path) -> None:
    saved_at(tmp_path, 5, Parts(DataLoader(StreamWithState(), BATCH)))
    stream = StreamWithState()
    parts = Parts(DataLoader(stream, BATCH))
    with parts.checkpointer(tmp_path) as ck:
        ck.resume()
        assert next(iter(parts.loader))[0].tolist() == [21, 22, 23, 24]
        assert stream.reads == BATCH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": "soon"}, "'soon' is no time"),
        ({"every": 0}, "not every 0"),
        ({"keep": 0}, "not 0"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Parts().checkpointer(tmp_path, **options)


def test_things_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ema is a float, which has no state_dict"):
        Parts().checkpointer(tmp_path, ema=0.9)
    with pytest.raises(UsageError, match="The passes over loader, a list, cannot be counted"):
        Parts().checkpointer(tmp_path, loader=[1, 2])
    fast = DataLoader(Items(), BATCH, num_workers=1, in_order=False)
    with pytest.raises(UsageError, match="in_order=False"):
        Parts().checkpointer(tmp_path, loader=fast)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Parts().checkpointer(tmp_path / "file" / "folder")


def test_in_an_object_store(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("fsspec")
    address: Any = f"memory://gpuprof-{request.node.name}"
    saved_at(address, 5)
    with Parts().checkpointer(address) as ck:
        assert ck.resume().step == 5


def test_beside_a_profiled_run(tmp_path: Path) -> None:
    """Both look at the same loader; each sees all of it, and neither stays in torch."""
    from jupyter_gpuprof import profile

    parts = Parts()
    optimizer = torch.optim.SGD(parts.model.parameters(), 0.1)
    with (
        parts.checkpointer(tmp_path, every=5, optimizer=optimizer) as ck,
        profile(save=False, warmup=0) as p,
    ):
        for _ in range(2):
            for _, x in parts.loader:
                optimizer.zero_grad()
                parts.model(x).sum().backward()
                optimizer.step()
                ck.step()
    assert p.run.steps.counted == 16
    assert ck.newest.startswith("step-0000000015-")
