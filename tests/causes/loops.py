"""A training loop whose costs are set part by part, and what each part really took.

Reading is a request to an object store or of a local file, decoding is Pillow on a JPEG, transforming is
numpy on its pixels, collating is a `collate_fn`. How often each is done makes it cheap or dear.
"""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, get_worker_info

from jupyter_gpuprof import profile
from jupyter_gpuprof.records.causes import Causes, CauseShare
from jupyter_gpuprof.records.run import Run

PARTS = ("reading", "decoding", "transforming", "collating")
#: What the dearest line of each part has in it, as it stands below. A request waits for its answer to begin.
LINES = {
    "reading": "connection.getresponse()",
    "decoding": "Image.open",
    "transforming": "np.sqrt",
    "collating": "np.sort",
}
#: Each worker has a row of its own in what was measured.
MOST_WORKERS = 64
#: How far a share may be from the truth besides what chance explains.
MARGIN = 0.08


class Truth:
    """Seconds that each part took, in whatever process it was done."""

    def __init__(self) -> None:
        self._seconds = torch.zeros(1 + MOST_WORKERS, len(PARTS), dtype=torch.float64).share_memory_()

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        worker = get_worker_info()
        row = 0 if worker is None else 1 + worker.id
        self._seconds[row, PARTS.index(part)] += time.perf_counter() - begun

    def share(self, part: str) -> float:
        seconds = self._seconds.sum(0)
        return float(seconds[PARTS.index(part)] / seconds.sum())


class Photos(Dataset):
    """Items that cost what is set: so many requests, decodings and rounds of numpy each."""

    def __init__(
        self, truth: Truth, file: Path, items: int, *, port: int = 0, reading: int = 1, decoding: int = 1,
        transforming: int = 1,
    ) -> None:  # fmt: skip
        self.truth, self.file, self.items, self.port = truth, file, items, port
        self.times = {"reading": reading, "decoding": decoding, "transforming": transforming}

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> np.ndarray:
        with self.truth.clock("reading"):
            for _ in range(self.times["reading"]):
                data = self.fetch(f"/{i}") if self.port else self.file.read_bytes()
        with self.truth.clock("decoding"):
            for _ in range(self.times["decoding"]):
                image = Image.open(io.BytesIO(data)).convert("RGB")
        with self.truth.clock("transforming"):
            x = np.asarray(image)[::4, ::4].astype(np.float32)
            for _ in range(self.times["transforming"]):
                x = np.sqrt(x * 0.9 + 1)
        return x.mean(axis=(0, 1))

    def fetch(self, key: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", key)
            answer = connection.getresponse()
            return answer.read()
        finally:
            connection.close()


class Collate:
    """A `collate_fn` that sorts a long array so often."""

    def __init__(self, truth: Truth, times: int) -> None:
        self.truth, self.times = truth, times

    def __call__(self, items: list[np.ndarray]) -> torch.Tensor:
        with self.truth.clock("collating"):
            x = np.linspace(0, 1e3, 40_000) % 1
            for _ in range(self.times):
                np.sort(x)
            return torch.from_numpy(np.stack(items))


def loader_of(
    file: Path, *, workers: int = 0, items: int = 400, collating: int = 1, **costs: int
) -> tuple[DataLoader, Truth]:
    """A loader of batches of 4 with these costs, and what they really were."""
    truth = Truth()
    data = Photos(truth, file, items, **costs)
    return DataLoader(data, 4, num_workers=workers, collate_fn=Collate(truth, collating)), truth


def net() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), 1e-4)


def train(loader: DataLoader, **options: Any) -> Run:
    """The run of a plain training loop over it."""
    model, optimizer = net()
    with profile(save=False, **options) as p:
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    return p.run


def largest(causes: Any) -> CauseShare:
    """The part with the largest share."""
    assert isinstance(causes, Causes), causes
    return causes.parts[0]


def assert_true(causes: Any, part: str, truth: float, line: str) -> None:
    """The part is the largest, its share is the true one within its interval, and its line comes first.

    The truth is of what makes the batch: how long it takes to hand it over is torch's affair.
    """
    found = largest(causes)
    assert found.name == part, causes
    truth *= 1 - causes.share_of("handing over").value
    assert found.share.low - MARGIN <= truth <= found.share.high + MARGIN, (truth, found)
    hot = causes.lines[0]
    assert (hot.cause, line in hot.text) == (part, True), causes.lines
    assert "loops.py" in hot.place, hot
