"""Real loops with set costs: the samples must say where they went, and nothing may stay behind."""

from __future__ import annotations

import functools
import gc
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, get_worker_info

from jupyter_gpuprof.probes import pyspy, workerreports
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.samples import Samples
from jupyter_gpuprof.session.profile import Options, Session
from jupyter_gpuprof.session.sampling import Sampled
from tests.session.live import steady

torch.set_num_threads(1)

#: How far a share may be from the truth on a noisy machine, besides what chance explains.
MARGIN = 0.07


def sampled(loop: Callable[[], object]) -> Sampled:
    """What sampling a loop gave; its exception passes."""
    session = Session(Options(warmup=0), save=False)
    session.start()
    try:
        loop()
    finally:
        session.finish()
    return session._samples


def share(samples: Samples, function: str) -> float:
    """The share of the samples in which a function was on the stack."""
    names = [(s.count, {frame.function.rpartition(".")[2] for frame in s.frames}) for s in samples.stacks]
    return sum(count for count, functions in names if function in functions) / samples.total


def assert_share(samples: Samples, function: str, truth: float, margin: float = MARGIN) -> None:
    """The share is the true one, within the interval of a share of so many samples (2 sigma) and a margin."""
    chance = 2 * (truth * (1 - truth) / samples.total) ** 0.5
    assert share(samples, function) == pytest.approx(truth, abs=margin + chance)


@pytest.fixture(autouse=True)
def no_folder_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The run's folder is made in one of the test's own, and is gone after it; so are the workers."""
    make = functools.partial(tempfile.mkdtemp, dir=tmp_path)
    monkeypatch.setattr(workerreports, "tempfile", SimpleNamespace(mkdtemp=make))
    before = sys.getswitchinterval()
    gc.collect()
    yield tmp_path
    gc.collect()
    for child in multiprocessing.active_children():
        child.terminate()
        child.join()
    assert not list(tmp_path.glob("gpuprof*"))
    assert sys.getswitchinterval() == before


# -- the training thread ----------------------------------------------------------------------------------


def in_python(ms: float) -> None:
    end = time.perf_counter() + ms * 1e-3
    while time.perf_counter() < end:
        pass


def in_numpy(ms: float) -> None:
    end, x = time.perf_counter() + ms * 1e-3, np.ones(1000)
    while time.perf_counter() < end:
        np.sqrt(x)


@steady
def test_two_functions_that_share_a_step() -> None:
    truth = {"in_python": 0.0, "in_numpy": 0.0}

    def loop() -> None:
        for _ in range(60):
            for work, ms in ((in_python, 30), (in_numpy, 10)):
                begun = time.perf_counter()
                work(ms)
                truth[work.__name__] += time.perf_counter() - begun

    training = sampled(loop).training
    assert training is not None
    assert training.total >= 90
    for name, seconds in truth.items():
        assert_share(training, name, seconds / sum(truth.values()))
    lines = {f.text for s in training.stacks for f in s.frames if f.function.endswith("loop")}
    assert "work(ms)" in lines or sys.version_info < (3, 11)
    assert all(s.where == "step" for s in training.stacks)
    assert isinstance(training.cpu_s, float)
    assert training.cpu_s < training.wall_s * 1.2


@steady
def test_python_between_short_work_without_the_interpreter_is_seen() -> None:
    """With the interpreter's own switch interval it would be 0: see probes/sampler.py."""
    x = torch.ones(256, 256)

    def in_torch(ms: float) -> None:
        end = time.perf_counter() + ms * 1e-3
        while time.perf_counter() < end:
            x @ x

    def loop() -> None:
        for _ in range(400):
            in_python(3)
            in_torch(1)

    training = sampled(loop).training
    assert training is not None
    assert share(training, "in_python") > 0.2


@steady
def test_fetching_in_the_main_process_is_told_apart() -> None:
    def loop() -> None:
        for _ in DataLoader(Naps(40, 0.02), batch_size=None):
            in_python(20)

    training = sampled(loop).training
    assert training is not None
    fetching = sum(s.count for s in training.stacks if s.where == "fetch")
    assert fetching / training.total == pytest.approx(0.5, abs=0.15)
    for stack in training.stacks:
        if stack.frames[0].function.endswith("in_python"):
            assert stack.where == "step"


# -- workers ----------------------------------------------------------------------------------------------


class Naps(Dataset):
    """Items that take their time."""

    def __init__(self, items: int, seconds: float) -> None:
        self.items, self.seconds = items, seconds

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(4)


class Store(BaseHTTPRequestHandler):
    """An object store with a latency."""

    image = b""

    def do_GET(self) -> None:
        time.sleep(0.008)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.image)))
        self.end_headers()
        self.wfile.write(self.image)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    Store.image = buffer.getvalue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/image"
    server.shutdown()
    server.server_close()
    thread.join()


class Photos(Dataset):
    """Read, decode and augment; an item carries what each took."""

    def __init__(self, url: str, items: int) -> None:
        self.url, self.items = url, items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> dict[str, Any]:
        a = time.perf_counter()
        data = self.read()
        b = time.perf_counter()
        image = self.decode(data)
        c = time.perf_counter()
        pixels = self.augment(image)
        d = time.perf_counter()
        return {"pixels": pixels, "read": b - a, "decode": c - b, "augment": d - c}

    def read(self) -> bytes:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(self.url).read()

    def decode(self, data: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def augment(self, image: np.ndarray) -> torch.Tensor:
        x = image[:, ::-1].astype(np.float32)
        for _ in range(4):
            x = np.sqrt(x * 0.9 + 1)
        return torch.from_numpy(x)


STARTS = ["fork", pytest.param("spawn", marks=pytest.mark.slow)]


@steady
@pytest.mark.parametrize("start", STARTS)
def test_what_two_workers_do(store: str, start: str) -> None:
    truth = {"read": 0.0, "decode": 0.0, "augment": 0.0}
    loader = DataLoader(Photos(store, 160), batch_size=8, num_workers=2, multiprocessing_context=start)
    before = dict(vars(loader))

    def loop() -> None:
        for batch in loader:
            for name in truth:
                truth[name] += float(batch[name].sum())

    found = sampled(loop)
    assert dict(vars(loader)) == before
    (inside,) = found.workers
    assert (inside.source, inside.threads) == ("workers", 2)
    busy_s = inside.total * inside.period_s
    assert busy_s <= 1.2 * inside.wall_s
    for name, seconds in truth.items():
        assert_share(inside, name, seconds / busy_s, margin=0.1)
    assert 0 < share(inside, "default_collate") < 0.3
    assert isinstance(inside.cpu_s, float)
    assert 0.3 * (truth["decode"] + truth["augment"]) < inside.cpu_s < busy_s + 1
    for stack in inside.stacks:  # no frames of ours, nor of the process that it was forked from
        functions = [frame.function.rpartition(".")[2] for frame in stack.frames]
        assert functions[-1] in ("_worker_loop", "_bootstrap")
        assert not any("gpuprof" in f.file and "probes" in f.file for f in stack.frames)
    for memory in (found.worker_memory_bytes, found.free_memory_bytes):
        assert isinstance(memory, int)
        assert memory > 1 << 20
    assert not found.remarks
    assert not inside.remarks


@pytest.mark.slow
def test_workers_of_a_fork_server() -> None:
    loader = DataLoader(Naps(30, 0.02), batch_size=2, num_workers=1, multiprocessing_context="forkserver")
    (inside,) = sampled(lambda: list(loader)).workers
    assert share(inside, "__getitem__") > 0.7


@steady
def test_waiting_for_work_is_not_busy() -> None:
    def loop() -> None:
        for _ in DataLoader(Naps(20, 0.005), batch_size=None, num_workers=1, prefetch_factor=1):
            time.sleep(0.05)

    (inside,) = sampled(loop).workers
    assert inside.total * inside.period_s < 0.4 * inside.wall_s
    assert inside.wall_s == pytest.approx(1.0, abs=0.3)


class Big(Dataset):
    """Items that are cheap to make and dear to hand over."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> list[str]:
        return WORDS


WORDS = [str(n) for n in range(200_000)]


def as_it_is(batch: Any) -> Any:
    return batch


@steady
def test_handing_over_is_seen() -> None:
    loader = DataLoader(Big(), batch_size=None, num_workers=1, collate_fn=as_it_is)
    (inside,) = sampled(lambda: [None for _ in loader]).workers
    assert share(inside, "_feed") > 0.5


# -- the person's own function ------------------------------------------------------------------------------

_seen: list[int] = []


def remember(worker_id: int) -> None:
    _seen.append(worker_id)


class Seen(Naps):
    """Says what the person's function saw in this worker."""

    def __getitem__(self, i: int) -> torch.Tensor:
        super().__getitem__(i)
        info = get_worker_info()
        assert info is not None
        return torch.tensor([info.id, *_seen])


def refuse(worker_id: int) -> None:
    raise LookupError("no data for this worker")


@pytest.mark.parametrize("start", STARTS)
def test_the_persons_function_is_called_first_and_once(start: str) -> None:
    loader = DataLoader(
        Seen(8, 0.01), None, num_workers=2, worker_init_fn=remember, multiprocessing_context=start
    )
    batches: list[Any] = []
    found = sampled(lambda: batches.extend(loader))
    assert loader.worker_init_fn is remember
    assert {tuple(batch.tolist()) for batch in batches} == {(0, 0), (1, 1)}
    assert found.workers[0].threads == 2


@pytest.mark.slow  # torch takes 5 s to end such a worker
def test_its_exception_passes() -> None:
    loader = DataLoader(Naps(4, 0.01), None, num_workers=1, worker_init_fn=refuse)
    with pytest.raises(LookupError, match="no data for this worker"):
        sampled(lambda: list(loader))
    assert loader.worker_init_fn is refuse


def test_a_loader_that_cannot_begin_is_as_it_was() -> None:
    loader = DataLoader(
        Naps(4, 0.01), None, num_workers=1, worker_init_fn=lambda n: None, multiprocessing_context="spawn"
    )
    own = loader.worker_init_fn
    with pytest.raises(Exception, match="pickle"):
        sampled(lambda: list(loader))
    assert loader.worker_init_fn is own


# -- workers that live long, or not long enough --------------------------------------------------------------


def threads_of(pid: int) -> int:
    return psutil.Process(pid).num_threads()


def test_persistent_workers_are_sampled_over_epochs_and_no_longer_than_the_run() -> None:
    loader = DataLoader(Naps(20, 0.02), None, num_workers=2, persistent_workers=True)

    def epochs() -> None:
        for _ in range(3):
            list(loader)

    found = sampled(epochs)
    (inside,) = found.workers
    assert (inside.source, inside.threads) == ("workers", 2)
    assert share(inside, "__getitem__") > 0.7
    assert inside.wall_s > 0.5  # but for what came after the last report
    workers = pyspy.running_workers()
    assert len(workers) == 2
    time.sleep(0.5)
    bare = DataLoader(Naps(20, 0.02), None, num_workers=2, persistent_workers=True)
    list(bare)
    fresh = set(pyspy.running_workers()) - set(workers)
    assert sorted(map(threads_of, workers)) == sorted(map(threads_of, fresh))


def test_a_killed_worker_leaves_what_it_had_reported() -> None:
    loader = DataLoader(Naps(1000, 0.02), None, num_workers=1)

    def loop() -> None:
        for i, _ in enumerate(loader):
            if i == 50:
                (worker,) = pyspy.running_workers()
                os.kill(worker, signal.SIGKILL)

    session = Session(Options(warmup=0), save=False)
    session.start()
    try:
        with pytest.raises(RuntimeError, match=r"killed|exited unexpectedly"):
            loop()
    finally:
        session.finish()
    (inside,) = session._samples.workers
    assert share(inside, "__getitem__") > 0.7
    assert inside.total >= 10
    assert inside.remarks == ("1 workers were killed; what they did last is missing.",)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_interrupted_loop_leaves_nothing(workers: int) -> None:
    def loop() -> None:
        for i, _ in enumerate(DataLoader(Naps(1000, 0.01), None, num_workers=workers)):
            if i == 30:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sampled(loop)


def test_files_of_many_epochs_are_put_together(monkeypatch: pytest.MonkeyPatch, no_folder_left: Path) -> None:
    monkeypatch.setattr(workerreports, "MAX_FILES", 2)
    most = 0

    def epochs() -> None:
        nonlocal most
        for _ in range(5):
            for _ in DataLoader(Naps(4, 0.02), None, num_workers=1):
                most = max(most, len(list(no_folder_left.glob("gpuprof*/*.json"))))

    (inside,) = sampled(epochs).workers
    assert inside.threads == 5
    assert most <= 3


def test_a_folder_that_cannot_be_made_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workerreports, "tempfile", SimpleNamespace(mkdtemp=full))
    got: list[Any] = []
    found = sampled(lambda: got.extend(DataLoader(Naps(4, 0.01), None, num_workers=1)))
    assert len(got) == 4
    assert not found.workers
    assert "No space left" in found.remarks[0]


def test_a_forked_child_that_finishes_the_run_leaves_the_parents_alone() -> None:
    session = Session(Options(warmup=0), save=False)
    session.start()
    try:
        iterator = iter(DataLoader(Naps(30, 0.02), None, num_workers=1))
        next(iterator)
        child = os.fork()
        if not child:
            try:
                session.finish()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        list(iterator)
    finally:
        session.finish()
    (inside,) = session._samples.workers
    assert inside.total > 10


# -- from outside --------------------------------------------------------------------------------------------


def may_look() -> bool:
    """Whether py-spy is there and may look at a worker."""
    program = pyspy.find()
    if program is None:
        return False
    loader = DataLoader(Naps(1000, 0.01), None, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    (worker,) = pyspy.running_workers()
    return os.system(f"'{program}' dump --nonblocking --pid {worker} >/dev/null 2>&1") == 0


@pytest.mark.slow
def test_workers_that_ran_before_are_seen_from_outside() -> None:
    if not may_look():
        pytest.skip("py-spy may not look at processes here")
    loader = DataLoader(Naps(120, 0.02), None, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    found = sampled(lambda: list(iterator))
    (outside,) = found.workers
    assert (outside.source, outside.threads) == ("py-spy", 1)
    assert share(outside, "__getitem__") > 0.5
    assert 0 < outside.total * outside.period_s <= outside.wall_s * 1.5  # two threads may be busy
    assert any("time.sleep" in frame.text for stack in outside.stacks for frame in stack.frames)
    assert not isinstance(found.worker_memory_bytes, Missing)


def test_when_py_spy_may_not_look_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho 'Permission Denied: Try running again' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "find", lambda: str(program))
    iterator = iter(DataLoader(Naps(30, 0.02), None, num_workers=1))
    next(iterator)
    (outside,) = sampled(lambda: list(iterator)).workers
    assert outside.total == 0
    assert len(outside.remarks) == 1
    assert "begin the iterator there" in outside.remarks[0]


def test_a_look_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "find", lambda: str(program))
    iterator = iter(DataLoader(Naps(10, 0.02), None, num_workers=1))
    next(iterator)
    begun = time.perf_counter()
    sampled(lambda: list(iterator))
    assert time.perf_counter() - begun < 10
    assert not [p for p in psutil.Process().children() if "sleep" in p.name()]


def test_without_py_spy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspy, "find", lambda: None)
    iterator = iter(DataLoader(Naps(4, 0.02), None, num_workers=1))
    next(iterator)
    assert "pip install py-spy" in sampled(lambda: list(iterator)).remarks[0]
