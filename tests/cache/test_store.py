"""Kept results come back bit by bit; what is damaged or half written is never taken for a result."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from jupyter_gpuprof import cached
from jupyter_gpuprof.errors import CacheRefused
from jupyter_gpuprof.probes.itemlayout import pack, unpacker
from jupyter_gpuprof.store import derivedplace
from tests.cache.pipeline import Files, Scale, write_files


def round_trip(item: Any) -> Any:
    packed = pack(item)
    lying = b"\1" * 64 + packed.data
    return unpacker(packed.layout)(lying, 64, len(lying), packed.plain_at)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Image.Image):
        return a.mode == b.mode and a.size == b.size and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def bits(x: torch.Tensor) -> bytes:
    return bytes(x.contiguous().reshape(-1).view(torch.uint8).numpy()) if x.numel() else b""


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        LEAVES, lambda s: st.lists(s) | st.tuples(s, s) | st.dictionaries(st.text(), s), max_leaves=8
    )
)
def test_plain_data_comes_back(item: Any) -> None:
    assert same(round_trip(item), item)


@pytest.mark.parametrize(
    "item",
    [
        np.arange(24, dtype=">f4").reshape(2, 3, 4)[:, ::-1],
        np.float32(1.5),
        np.empty((0, 3), np.int8),
        torch.arange(6).reshape(2, 3).t(),
        torch.randn(3, 5).to(torch.bfloat16),
        torch.empty(0, 4),
        torch.tensor(True),
        Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)),
        Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5)),
        (torch.ones(3, dtype=torch.uint8), np.zeros(2), 7, "x"),
        {"image": [torch.zeros(2), {"id": 1}], "boxes": np.ones((2, 4), np.float32)},
    ],
    ids=lambda item: type(item).__name__,
)
def test_arrays_tensors_and_images_come_back(item: Any) -> None:
    found = round_trip(item)
    assert same(found, item)
    if isinstance(found, np.ndarray) and found.size:
        found[...] = 0  # its memory is its own


@pytest.mark.parametrize(
    "item", [object(), {1, 2}, np.array([object()]), 2**70, [len], torch.ones(2).to_sparse()]
)
def test_what_would_need_unpickling_is_refused(item: Any) -> None:
    with pytest.raises(CacheRefused, match="cannot be kept"):
        pack(item)


def filled(tmp_path: Path, **options: Any) -> tuple[Files, Any]:
    data = Files(write_files(tmp_path / "data"), Scale(2))
    kept = cached(data, **options)
    for i in range(len(kept)):
        kept[i]
    kept.flush()
    return data, kept


def shards(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("*/*.shard") if path.parent.name != "quarantine")


def test_the_next_run_reads_what_this_one_computed(tmp_path: Path, cache: Path) -> None:
    data, kept = filled(tmp_path)
    made = data.made
    again = cached(Files(tmp_path / "data", Scale(2)))
    assert again.key == kept.key
    assert all(again[i][0].tolist() == [2.0 * (i + j) for j in range(5)] for i in range(20))
    assert again[-1][1] == 19
    assert again.dataset.made == 0
    again[3][0][:] = -1
    assert again[3][0].tolist() == [6.0, 8.0, 10.0, 12.0, 14.0], "what a person changes is a copy"
    assert (data.made, len(shards(cache))) == (made, 1)
    moved = cache.rename(tmp_path / "elsewhere")
    there = cached(Files(tmp_path / "data", Scale(2)), folder=moved)
    assert there[5][1] == 5
    assert there.dataset.made == 0, "the cache may be moved"


@pytest.mark.parametrize("how", ["a result", "the end", "the table", "empty"])
def test_damage_is_put_aside_and_computed_anew(tmp_path: Path, cache: Path, how: str) -> None:
    filled(tmp_path)
    (path,) = shards(cache)
    raw = bytearray(path.read_bytes())
    os.chmod(path, 0o644)
    if how == "a result":
        raw[64 + 3] ^= 1
    elif how == "the table":
        raw[-60] ^= 1
    path.write_bytes({"the end": raw[:-7], "empty": b""}.get(how, raw))
    again = cached(Files(tmp_path / "data", Scale(2)))
    assert all(again[i][0].tolist() == [2.0 * (i + j) for j in range(5)] for i in range(20))
    assert again.dataset.made == 20
    again.flush()
    assert len(list((cache / "quarantine").glob("*.shard"))) == 1
    (new,) = shards(cache)
    assert new != path
    assert derivedplace.verify(cache, derivedplace.report(cache).entries[0]) == 0


def test_the_least_recently_used_goes_first(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(derivedplace.LIMIT_VARIABLE, str(3 * 90_000))

    def fill(name: str) -> str:
        kept = cached(lambda i, name=name: np.full(10_000, i, np.float64), deterministic=True)
        kept(1)
        kept.flush()
        return kept.key

    first, second, third = fill("a"), fill("b"), fill("c")
    os.utime(cache / first / "entry.json", (2e9, 2e9))  # used since
    os.utime(cache / second / "entry.json", (1e9, 1e9))
    fourth = fill("d")
    assert {path.name for path in cache.iterdir()} == {first, third, fourth}
    big = cached(lambda i: np.zeros(100_000), deterministic=True)
    assert big(0).shape == (100_000,)
    big.flush()
    with pytest.warns(UserWarning, match="the cache is full. Results are computed as before"):
        assert big(1).shape == (100_000,)


def test_a_sample_of_another_kind_is_a_warning(tmp_path: Path) -> None:
    odd = cached([1, 2, 3], deterministic=True)
    odd.dataset[1] = object()
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert odd[1] is odd.dataset[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd[1]


RACE = """
import os, random, resource, signal, sys, warnings
import numpy as np
from pathlib import Path
from jupyter_gpuprof import cached
from jupyter_gpuprof.store import derived, derivedplace

root = Path(os.environ["JUPYTER_GPUPROF_CACHE"])
N = 200

def made(i):
    return np.full((40, 50), i, np.int32), i

class Data:
    def __len__(self): return N
    def __getitem__(self, i): return made(i)

def in_child(work):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = work() or 0
        finally:
            os._exit(status)
    return pid

def right(kept, order):
    for i in order:
        x, label = kept[i]
        if label != i or x.shape != (40, 50) or x.min() != i or x.max() != i:
            return 1
    return 0

# 8 processes race on one key: 8 * 1300 reads, small shards, flushed all the time
derived.SHARD_BYTES = 40_000
def racer(seed):
    def work():
        kept = cached(Data())
        bad = right(kept, random.Random(seed).choices(range(N), k=1300))
        for _ in range(200):
            if kept.flush(): break
        return bad
    return work
pids = [in_child(racer(seed)) for seed in range(8)]
assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
(entry,) = derivedplace.report().entries
assert entry.items == N, (entry.items, "each result is kept once")
assert derivedplace.verify(root, entry) == 0 and not (root / "quarantine").exists()
print("race")

# killed in the middle of a write, and between write and rename
for place in ("write", "rename"):
    derivedplace.prune(root, 0)
    def killed():
        kept = cached(Data())
        def write(path, results):
            results = list(results)
            path.write_bytes(b"GPUPROFD" + results[0].data)
            os.kill(os.getpid(), signal.SIGKILL)
        if place == "write":
            derived.write_shard = write
        else:
            derived.os.chmod = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
        for i in range(N): kept[i]
        kept.flush()
    _, status = os.waitpid(in_child(killed), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert list(root.glob("*/.draft-*")), "it was killed while it wrote"
    kept = cached(Data())
    assert right(kept, range(N)) == 0 and kept.flush()
    assert not list(root.glob("*/.draft-*")) and derivedplace.report().entries[0].items == N
print("killed")

# a full disk
derivedplace.prune(root, 0)
def full():
    derived.SHARD_BYTES = 500_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kept = cached(Data())
        bad = right(kept, [*range(N), *range(N)])
        kept.flush()
    words = [str(w.message) for w in told]
    ok = len(words) == 1 and "Nothing more is kept" in words[0] and "File too large" in words[0]
    return bad or (0 if ok else 2)
assert os.waitpid(in_child(full), 0)[1] == 0
assert not list(root.glob("*/*.shard")) and not list(root.glob("*/.draft-*"))
print("full")
"""


@pytest.mark.slow
def test_races_kills_and_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RACE)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["race", "killed", "full"], ""), done.stderr
