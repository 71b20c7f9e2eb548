"""What we put into torch: it changes nothing, it comes out whole, and its failures are ours alone."""

from __future__ import annotations

import queue
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from jupyter_gpuprof import watch
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import hooks
from jupyter_gpuprof.probes.recorder import MAX_FAILURES, Recorder
from jupyter_gpuprof.probes.sources import MAX_SOURCES, Sources


def new_recorder() -> Recorder:
    return Recorder(StepAssembler(), torch.is_grad_enabled)


@pytest.fixture
def recorder():
    recorder = new_recorder()
    hooks.push(recorder)
    yield recorder
    hooks.pop(recorder)


class Net:
    """A network and its optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def train(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).sum().backward()
        self.optimizer.step()


def batches(n: int = 6) -> DataLoader:
    return DataLoader([torch.full((4,), float(i)) for i in range(n)], batch_size=None)


def finish(recorder: Recorder) -> StepAssembler:
    recorder.finish()
    assert not recorder.failures
    sink = recorder.sink
    assert isinstance(sink, StepAssembler)
    return sink


# -- in and out -------------------------------------------------------------------------------------


def test_only_the_last_run_takes_the_hooks_out() -> None:
    original = DataLoader.__iter__
    outer, inner = new_recorder(), new_recorder()
    hooks.push(outer)
    patched = DataLoader.__iter__
    assert patched is not original
    hooks.push(inner)
    assert DataLoader.__iter__ is patched
    hooks.pop(inner)
    assert DataLoader.__iter__ is patched
    hooks.pop(outer)
    assert DataLoader.__iter__ is original
    hooks.pop(outer)  # once too often
    assert not hooks.installed()


def test_runs_that_end_in_the_wrong_order() -> None:
    outer, inner = new_recorder(), new_recorder()
    hooks.push(outer)
    hooks.push(inner)
    hooks.pop(outer)
    assert hooks.current() is inner
    hooks.pop(inner)
    assert not hooks.installed()


def test_what_others_patch_over_ours_stays_and_ours_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, calls = new_recorder(), []
    original = torch.save
    hooks.push(recorder)
    ours = torch.save

    def theirs(*args, **kwargs):
        calls.append(args)
        return ours(*args, **kwargs)

    torch.save = theirs
    hooks.pop(recorder)
    try:
        assert torch.save is theirs
        marks = len(recorder.pending)
        torch.save({}, queue_like := _Sink())
        assert calls
        assert queue_like.written
        assert len(recorder.pending) == marks
    finally:
        torch.save = original


class _Sink:
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> int:
        self.written += len(data)
        return len(data)

    def flush(self) -> None:
        pass


def test_an_installation_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("no such class")

    monkeypatch.setattr(hooks.calls, "patch_saving", broken)
    recorder = new_recorder()
    with pytest.raises(RuntimeError, match="no such class"):
        hooks.push(recorder)
    assert not hooks.installed()
    assert hooks.current() is None
    monkeypatch.undo()
    hooks.push(recorder)  # and the next one works
    hooks.pop(recorder)


def test_loaders_keep_their_face(recorder: Recorder) -> None:
    loader = batches()
    iterator = iter(loader)
    assert type(iterator).__name__ == "_SingleProcessDataLoaderIter"
    assert len(iterator) == len(loader) == 6
    assert type(iterator).__next__.__name__ == "__next__"
    assert torch.save.__doc__.startswith("save(obj")


# -- failures of ours -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["begin_fetch", "end_fetch", "begin_iter", "end_iter", "backward", "optimizer"]
)
def test_a_hook_that_fails_three_times_is_off_and_the_loop_goes_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def broken(self, *args, **kwargs):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(Recorder, method, broken)
    recorder.read_back_at_once()  # the long way through the hooks, where more can fail
    net = Net()
    got = []
    for _ in range(3):  # epochs
        for x in batches():
            got.append(float(x[0]))
            net.train(x)
    assert got == [0, 1, 2, 3, 4, 5] * 3
    assert len(recorder.failures) == MAX_FAILURES
    assert "ZeroDivisionError: ours" in recorder.failures[0]
    assert not recorder.active
    assert hooks.current() is None
    monkeypatch.undo()
    recorder.failures.clear()


def test_a_sink_that_fails_costs_marks_but_no_step_of_the_person(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self, *args, **kwargs):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(StepAssembler, "end_fetch", broken)
    net = Net()
    assert sum(1 for x in batches(400) if net.train(x) is None) == 400
    assert len(recorder.failures) == MAX_FAILURES
    recorder.failures.clear()


def test_errors_of_the_loader_and_of_saving_pass_unchanged(recorder: Recorder) -> None:
    class Broken(Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> None:
            raise OSError("bad image")

    with pytest.raises(OSError, match="bad image"):
        next(iter(DataLoader(Broken())))
    with pytest.raises((RuntimeError, OSError)):
        torch.save({}, "/no/such/folder/x.pt")
    with pytest.raises(RuntimeError):
        torch.zeros(2).sum().backward()
    assert not recorder.failures
    assert finish(recorder).backwards == 0


# -- which thread, which process --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["loader", "watch", "function"])
def test_fetches_on_another_thread_are_counted_and_no_stall(recorder: Recorder, kind: str) -> None:
    q: queue.Queue = queue.Queue()

    def produce() -> None:
        if kind == "loader":
            for x in batches():
                q.put(x)
        elif kind == "watch":
            for x in watch(list(batches_plain())):
                q.put(x)
        else:
            get = watch(iter(batches_plain()).__next__)
            for _ in range(6):
                q.put(get())

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    net = Net()
    for _ in range(6):
        net.train(q.get())
    a = finish(recorder)
    assert recorder.off_thread_fetches == 6
    assert not a.loader_seen
    assert a.training.steps == 5


def batches_plain() -> list[torch.Tensor]:
    return [torch.full((4,), float(i)) for i in range(6)]


def test_training_on_a_thread_of_its_own_is_followed(recorder: Recorder) -> None:
    def run() -> None:
        net = Net()
        for x in batches(20):
            net.train(x)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    a = finish(recorder)
    assert a.training.steps >= 18  # the first fetch was before it was known


class AsksWhoRecords(IterableDataset):
    """What a worker process sees of the run, and what happens to hooks called in there."""

    def __iter__(self):
        for x in watch([torch.zeros(4)] * 3):
            Net().train(x)
            yield torch.tensor([hooks.current() is None, hooks._current is None, not hooks._stack])


@pytest.mark.slow
def test_no_run_is_on_in_the_loaders_workers(recorder: Recorder) -> None:
    (seen,) = list(DataLoader(AsksWhoRecords(), batch_size=3, num_workers=1, multiprocessing_context="fork"))
    assert seen.all()
    assert hooks.current() is recorder


# -- what counts as training ------------------------------------------------------------------------


def test_gradients_of_forces_do_not_make_validation_training(recorder: Recorder) -> None:
    net = Net()
    for _ in range(2):
        for x in batches(5):
            x.requires_grad_()
            energy = net.model(x).sum()
            (forces,) = torch.autograd.grad(energy, x, create_graph=True)
            (energy + forces.square().sum()).backward()
            net.optimizer.step()
        for x in batches(3):
            x.requires_grad_()
            torch.autograd.grad(net.model(x).sum(), x)
    a = finish(recorder)
    assert (a.training.steps, a.failed) == (10, 0)
    assert sorted(a.roles.values()) == ["training", "validation"]


def test_a_loop_that_trains_by_autograd_grad_alone(recorder: Recorder) -> None:
    net = Net()
    for x in batches():
        grads = torch.autograd.grad(net.model(x).sum(), list(net.model.parameters()))
        with torch.no_grad():
            for p, g in zip(net.model.parameters(), grads, strict=True):
                p -= 0.1 * g
    a = finish(recorder)
    assert (a.training.steps, a.backwards) == (6, 6)


# -- sources ----------------------------------------------------------------------------------------


def test_a_loader_made_anew_over_the_same_data_is_one_source() -> None:
    sources, data = Sources(), [1, 2, 3]
    keys = set()
    for _ in range(5):
        loader = DataLoader(data, batch_size=2)
        keys.add(sources.of_loader(loader).key)
        del loader
    assert keys == {0}


def test_other_data_at_the_old_address_is_another_source() -> None:
    class Data(Dataset):
        def __len__(self) -> int:
            return 3

    sources, keys, addresses = Sources(), [], set()
    for _ in range(20):
        data = Data()
        addresses.add(id(data))
        keys.append(sources.of_loader(DataLoader(data)).key)
        del data
    assert len(addresses) < 20  # else nothing was tested
    assert keys == list(range(20))


def test_loaders_over_the_same_data_at_the_same_time_are_two() -> None:
    sources, data = Sources(), [1, 2, 3]
    a, b = DataLoader(data, batch_size=2), DataLoader(data, batch_size=2)
    assert sources.of_loader(a) is not sources.of_loader(b)
    assert sources.of_loader(a) is sources.of_loader(a)


def test_sources_without_number_take_bounded_memory() -> None:
    sources = Sources()
    for i in range(20 * MAX_SOURCES):
        loader = DataLoader([i] * 3, batch_size=2)  # other data each time
        source = sources.of_loader(loader)
        iterator = iter(loader)
        sources.began(source, iterator)
        assert sources.of_iterator(iterator) is source
        del loader, iterator
    assert len(sources.all) <= MAX_SOURCES + 1
    assert len(sources._by_loader) <= 2 * 256
    assert len(sources.by_iterator) <= 2 * 256


def test_many_loaders_alive_at_once_are_kept_apart() -> None:
    sources, data = Sources(), [1, 2, 3]
    loaders = [DataLoader(data, batch_size=2) for _ in range(300)]
    iterators = [iter(loader) for loader in loaders]
    for _ in range(2):
        for loader, iterator in zip(loaders, iterators, strict=True):
            sources.began(sources.of_loader(loader), iterator)
        found = [sources.of_iterator(iterator) for iterator in iterators]
        assert [source.key for source in found] == list(range(300))
    assert len(sources.all) == 300


def test_an_iterator_begun_before_the_run() -> None:
    iterator = iter(batches())
    next(iterator)
    recorder = new_recorder()
    hooks.push(recorder)
    try:
        net = Net()
        for x in iterator:
            net.train(x)
    finally:
        hooks.pop(recorder)
    a = finish(recorder)
    assert (a.training.steps, a.failed) == (5, 0)
    assert [s.fetches for s in recorder.sources.all] == [5]
