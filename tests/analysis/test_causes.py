"""Stacks of known work: made by hand, and those of real libraries while they do it."""

from __future__ import annotations

import io
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis import frames
from jupyter_gpuprof.analysis.causes import host_causes, input_causes, wilson
from jupyter_gpuprof.analysis.frames import callee, library
from jupyter_gpuprof.analysis.stacks import host_activity, input_activity, takes_over, waits_for_workers
from jupyter_gpuprof.records.causes import HOST_CAUSES, INPUT_CAUSES, Causes
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.samples import Frame, Samples, StackCount

SITE = "/home/me/env/lib/python3.11/site-packages/"
STD = "/usr/lib/python3.11/"
CELL = "/tmp/ipykernel_12/345.py"


def own(text: str, function: str = "Data.__getitem__", line: int = 7, file: str = CELL) -> Frame:
    return Frame(file, line, function, text)


def lib(path: str, function: str = "f", text: str = "") -> Frame:
    return Frame((STD if "/" not in path or path.split("/")[0] in STDLIB else SITE) + path, 1, function, text)


STDLIB = {"multiprocessing", "http", "json", "logging", "urllib"}
FETCH = (
    lib("torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", "self.dataset[idx]"),
    lib("torch/utils/data/dataloader.py", "_SingleProcessDataLoaderIter._next_data", "fetch(index)"),
    Frame("/home/me/train.py", 3, "<module>", "for x in loader:"),
)
COLLATE = (
    lib("torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", "self.collate_fn(data)"),
    lib("torch/utils/data/_utils/worker.py", "_worker_loop"),
)
WAITS = (
    lib("multiprocessing/connection.py", "wait"),
    lib("multiprocessing/queues.py", "Queue.get", "self._poll(timeout)"),
    lib("torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data"),
)
UNPICKLES = (
    lib("torch/multiprocessing/reductions.py", "rebuild_storage_fd"),
    lib("multiprocessing/queues.py", "Queue.get", "_ForkingPickler.loads(res)"),
    *WAITS[2:],
)
ASKS = (lib("multiprocessing/connection.py", "Connection._recv"), *UNPICKLES)
IDLE = (
    *WAITS[:2],
    lib("torch/utils/data/_utils/worker.py", "_worker_loop", "index_queue.get(timeout=5)"),
)
GETITEM = own("self.load(path)")


@pytest.mark.parametrize(
    ("activity", "stack"),
    [
        # reading
        ("reading", [own("open(path, 'rb').read()")]),
        ("reading", [own("np.load(path)")]),
        ("reading", [lib("numpy/lib/_npyio_impl.py", "load"), own("np.load(path)")]),
        (
            "reading",
            [lib("ssl.py", "SSLSocket.read"), lib("http/client.py"), lib("requests/api.py"), GETITEM],
        ),
        ("reading", [lib("h5py/_hl/dataset.py", "Dataset.__getitem__"), own("self.file['x'][i]")]),
        ("reading", [lib("codecs.py", "IncrementalDecoder.decode"), own("open(path).read()")]),
        ("reading", [lib("socket.py"), lib("PIL/ImageFile.py", "ImageFile.load"), GETITEM]),
        ("reading", [own("time.sleep(0.01)", "read_object"), GETITEM]),
        # decoding
        ("decoding", [own("cv2.imdecode(data, 1)")]),
        ("decoding", [own("Image.open(path).load", "decode_jpeg")]),
        (
            "decoding",
            [lib("PIL/ImageFile.py", "ImageFile.load"), lib("PIL/Image.py", "Image.convert"), GETITEM],
        ),
        ("decoding", [lib("torchvision/io/image.py", "decode_jpeg"), GETITEM]),
        ("decoding", [lib("json/decoder.py", "JSONDecoder.decode"), GETITEM]),
        # transforming
        ("transforming", [own("x @ w", "Data._augment"), GETITEM]),
        ("transforming", [own("np.sort(np.load(path))")]),
        ("transforming", [lib("PIL/Image.py", "Image.resize"), GETITEM]),
        ("transforming", [lib("torchvision/transforms/functional.py", "resize"), GETITEM]),
        # collating
        ("collating", [lib("torch/utils/data/_utils/collate.py", "collate"), *COLLATE]),
        ("collating", [own("torch.stack(xs)", "<lambda>"), *COLLATE]),
        ("collating", [*COLLATE]),
        # handing over
        ("handing over", [lib("multiprocessing/queues.py", "Queue.put"), COLLATE[1]]),
        ("handing over", [lib("torch/utils/data/_utils/pin_memory.py", "pin_memory"), *FETCH[1:]]),
        # other
        ("other", [own("time.sleep(0.01)")]),
        ("other", [lib("torch/utils/data/sampler.py", "RandomSampler.__iter__")]),
        ("other", []),
    ],
)
def test_what_a_fetch_does(activity: str, stack: list[Frame]) -> None:
    assert input_activity([*stack, *FETCH])[0] == activity


@pytest.mark.parametrize(
    ("activity", "stack"),
    [
        ("synchronising", [own("loss.item()", "train")]),
        ("synchronising", [own("losses.append(loss.item())", "train")]),  # a line, before 3.11
        ("synchronising", [own("float(loss)", "train")]),
        ("synchronising", [lib("torch/_tensor_str.py", "_str"), own("print(loss)", "train")]),
        ("synchronising", [lib("torch/cuda/__init__.py", "synchronize"), own("sync()", "train")]),
        ("logging", [lib("ipykernel/iostream.py", "OutStream.write"), own("print(i)", "train")]),
        ("logging", [lib("logging/__init__.py", "Handler.emit"), own("log.info(i)", "train")]),
        ("logging", [lib("tqdm/std.py", "tqdm.refresh"), own("bar.set_postfix(loss=x)", "train")]),
        ("metrics", [lib("torchmetrics/functional/a.py", "_update"), own("metric(x)", "train")]),
        ("metrics", [own("(x == y).mean()", "accuracy"), own("accuracy(x, y)", "train")]),
        ("checkpoint", [lib("torch/serialization.py", "_save"), own("torch.save(state, f)", "train")]),
        ("checkpoint", [own("f.write(data)", "File.write"), lib("torch/serialization.py", "save")]),
        ("checkpoint", [own("time.sleep(1)", "save_checkpoint"), own("save_checkpoint()", "train")]),
        ("launching", [lib("torch/nn/functional.py", "relu"), own("net(x)", "train")]),
        ("launching", [lib("torch/autograd/graph.py"), own("loss.backward()", "train")]),
        (
            "launching",
            [own("x * 2", "Net.forward"), lib("torch/nn/modules/module.py"), own("net(x)", "train")],
        ),
        ("launching", [own("x.to(torch.float16)", "train")]),
        ("moving data", [own("x.to(device)", "train")]),
        ("moving data", [own("torch.from_numpy(x)", "train")]),
        ("python", [own("sorted(pool)", "train")]),
        ("python", [lib("numpy/lib/function.py", "interp"), own("np.interp(a, b, c)", "train")]),
        ("other", [lib("unheard_of/thing.py")]),
    ],
)
def test_what_the_host_does(activity: str, stack: list[Frame]) -> None:
    assert host_activity([*stack, lib("IPython/core/shell.py"), lib("asyncio/runners.py")])[0] == activity


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("open(path).read()", ".read"),
        ("np.load(f(a), b)", "np.load"),
        ("self.net(x)", "self.net"),
        ("x + 1", ""),
        ("json.loads('(')", ""),
        (")", ""),
        ("", ""),
    ],
)
def test_what_is_called(text: str, called: str) -> None:
    assert callee(text) == called


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("/env/lib/python3.11/site-packages/PIL/Image.py", "PIL/Image.py"),
        ("/usr/lib/python3/dist-packages/PIL/Image.py", "PIL/Image.py"),
        ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py"),
        ("C:\\Users\\me\\miniconda3\\Lib\\json\\decoder.py", "json/decoder.py"),
        ("C:\\env\\Lib\\site-packages\\PIL\\Image.py", "PIL/Image.py"),
        (frames.__file__, "jupyter_gpuprof/analysis/frames.py"),
        ("/home/me/python-projects/lib/train.py", ""),
        ("/home/me/torch/train.py", ""),
        (CELL, ""),
    ],
)
def test_whose_file_it_is(file: str, found: str) -> None:
    assert library(file) == found


# -- stacks of real libraries ------------------------------------------------------------------------


def stacks_while(work: Callable[[], object]) -> Iterator[tuple[str, list[Frame]]]:
    """The stack at every call inside `work`, calls into C too, with the name of what is called."""
    seen: list[tuple[str, list[Frame]]] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event not in ("call", "c_call") or len(seen) > 20_000:
            return
        name = called.__name__ if event == "c_call" else frame.f_code.co_name
        stack, at = [], frame
        while at is not None and at.f_code is not stacks_while.__code__:
            code = at.f_code
            function = getattr(code, "co_qualname", code.co_name)
            text = linecache.getline(code.co_filename, at.f_lineno).strip()
            stack.append(Frame(code.co_filename, at.f_lineno, function, text))
            at = at.f_back
        seen.append((name, stack))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return iter(seen)


def activities(
    work: Callable[[], object], of: Callable[..., tuple[str, Frame | None]], called: str
) -> set[str]:
    """What the stacks are taken for in which `called` is called."""
    found = {of(stack)[0] for name, stack in stacks_while(work) if name == called}
    assert found, f"{called} was not called"
    return found


def test_pillow_and_a_loader_do_what_their_frames_say() -> None:
    torch = pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    jpeg = io.BytesIO()
    image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(jpeg, "JPEG")

    class Images(torch.utils.data.Dataset):  # type: ignore[name-defined, misc]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            small = image.open(io.BytesIO(jpeg.getvalue())).convert("L").resize((8, 8))
            return torch.from_numpy(np.asarray(small, np.float32))

    def work() -> None:
        for _ in torch.utils.data.DataLoader(Images(), batch_size=2):
            pass

    assert activities(work, input_activity, "decode") == {"decoding"}
    assert activities(work, input_activity, "resize") == {"transforming"}
    assert activities(work, input_activity, "from_numpy") == {"transforming"}
    assert activities(work, input_activity, "stack") == {"collating"}


def test_torch_does_what_its_frames_say() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen = []

    def step() -> None:
        loss = net(torch.ones(2)).sum()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        repr(loss)
        torch.save(net.state_dict(), io.BytesIO())

    assert activities(step, host_activity, "run_backward") == {"launching"}
    assert activities(step, host_activity, "linear") == {"launching"}
    assert activities(step, host_activity, "_str_intern") == {"synchronising"}
    assert "synchronising" in activities(step, host_activity, "item")
    assert activities(step, host_activity, "write_record") == {"checkpoint"}


# -- shares ------------------------------------------------------------------------------------------


def samples(*stacks: tuple[list[Frame] | tuple[Frame, ...], str, int], **changes: Any) -> Samples:
    counts = tuple(StackCount(tuple(frames), where, count) for frames, where, count in stacks)  # type: ignore[arg-type]
    return Samples(**{"source": "training thread", "stacks": counts, "period_s": 0.01, **changes})


DECODE = [lib("PIL/ImageFile.py", "ImageFile.load"), own("Image.open(p).convert('RGB')"), *FETCH]
READ = [own("open(path, 'rb').read()", line=4), *FETCH]


def test_shares_lines_and_cost_of_a_batch_made_in_process() -> None:
    train = [lib("torch/nn/functional.py"), own("net(x)", "train", 20)]
    found = input_causes(
        samples((DECODE, "fetch", 150), (READ, "fetch", 50), (train, "step", 999)), None, 100
    )
    assert isinstance(found, Causes)
    assert [(part.name, part.share.value) for part in found.parts] == [("decoding", 0.75), ("reading", 0.25)]
    assert found.batch_s == pytest.approx(200 * 0.01 / 100)
    assert [(line.place, line.cause, line.text) for line in found.lines] == [
        ("cell, line 7", "decoding", "Image.open(p).convert('RGB')"),
        ("cell, line 4", "reading", "open(path, 'rb').read()"),
    ]
    assert found.hints == ()


def test_workers_tell_by_their_busy_samples_and_the_consumer_adds_handing_over() -> None:
    workers = samples(
        (DECODE, "fetch", 100),
        (READ, "fetch", 100),
        (IDLE, "step", 500),
        source="workers",
        threads=4,
        cpu_s=1.5,
    )
    training = samples((WAITS, "fetch", 75), (UNPICKLES, "fetch", 25))
    found = input_causes(training, workers, 50)
    assert isinstance(found, Causes)
    shares = {part.name: part.share.value for part in found.parts}
    assert shares == pytest.approx({"decoding": 0.375, "reading": 0.375, "handing over": 0.25})
    assert found.batch_s == pytest.approx(200 * 0.01 / 50)  # being idle is no work
    assert found.cpu_ratio == pytest.approx(1.5 / 2.0)
    assert found.serial_s == pytest.approx(25 * 0.01 / 50)
    assert "4 loader workers" in found.how


def test_too_few_samples_are_no_shares_and_few_are_rough() -> None:
    few = input_causes(samples((DECODE, "fetch", 19)), None, 5)
    assert few == Missing("only 19 samples of fetching a batch, 20 are needed: run longer")
    rough = input_causes(samples((DECODE, "fetch", 20)), None, 5)
    assert isinstance(rough, Causes)
    assert "rough" in rough.hints[0]


def test_waiting_for_workers_that_were_not_sampled_is_no_share() -> None:
    denied = samples(source="py-spy", remarks=("py-spy may not read them: SYS_PTRACE is missing",))
    found = input_causes(samples((WAITS, "fetch", 500)), denied, 10)
    assert isinstance(found, Missing)
    assert "not sampled; py-spy may not read them" in found.reason


def test_names_of_cells_and_files() -> None:
    lines = [
        own("a()", "train", 1),
        own("b()", "train", 2, "<ipython-input-3-abc>"),
        own("c()", "train", 4, "/home/me/train.py"),
        own("d()", "train", 5, "/tmp/ipykernel_1/99.py"),
    ]
    stacks = samples(*(([line], "step", 40 - 10 * i) for i, line in enumerate(lines)))
    found = host_causes(stacks, 10, {"/tmp/ipykernel_1/99.py": "cell [8]"})
    assert isinstance(found, Causes)
    assert [line.place for line in found.lines] == [
        "cell, line 1",
        "cell [3], line 2",
        "train.py:4",
        "cell [8], line 5",
    ]
    assert found.batch_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.278), (5, 10, 0.237, 0.763), (10, 10, 0.722, 1.0), (81, 263, 0.255, 0.366)],
)
def test_wilsons_interval(count: int, total: int, low: float, high: float) -> None:
    """Against published values (Newcombe 1998, table I, for 81 of 263)."""
    found = wilson(count, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-4)


FILES = st.sampled_from(
    [frame.file for frame in itertools.chain(DECODE, READ, WAITS, UNPICKLES, IDLE, COLLATE)]
    + ["", "C:\\x.py"]
) | st.text(max_size=30)
FRAMES = st.builds(Frame, FILES, st.integers(), st.text(max_size=20), st.text(max_size=40))
STACKS = st.lists(
    st.builds(
        StackCount,
        st.lists(FRAMES, max_size=6).map(tuple),
        st.sampled_from(["fetch", "step"]),
        st.integers(1, 50),
    ),
    max_size=12,
).map(tuple)
SAMPLES = st.builds(
    Samples,
    st.sampled_from(["training thread", "workers", "py-spy"]),
    STACKS,
    st.floats(0, 1),
    st.integers(0, 9),
    st.just(Missing("unread")) | st.floats(0, 9),
)


@given(training=st.none() | SAMPLES, workers=st.none() | SAMPLES, count=st.integers(0, 9))
def test_any_stacks_are_shares(training: Samples | None, workers: Samples | None, count: int) -> None:
    for found, known in (
        (input_causes(training, workers, count), INPUT_CAUSES),
        (host_causes(training, count), HOST_CAUSES),
    ):
        if isinstance(found, Missing):
            assert found.reason
            continue
        shares = [part.share for part in found.parts]
        assert {part.name for part in found.parts} <= set(known)
        assert sum(share.value for share in shares) == pytest.approx(1)
        assert [share.value for share in shares] == sorted((share.value for share in shares), reverse=True)
        assert all(holds(share) for share in shares)
        assert all(holds(line.share) for line in found.lines)
        assert len(found.lines) <= 5


def holds(share: Estimate) -> bool:
    return 0 <= share.low <= share.value <= share.high <= 1


def test_waiting_for_a_workers_answer_is_waiting_for_the_worker() -> None:
    assert takes_over(UNPICKLES)
    assert not takes_over(ASKS)
    assert waits_for_workers(ASKS)
