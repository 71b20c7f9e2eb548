"""Cached samples against decoding them, a bare memory-mapped read, joblib.Memory, diskcache and HF datasets.

python benchmarks/cache.py [--images 300]    # needs pip install "jupyter-gpuprof[bench]"
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE, ROUNDS = 224, 5
_ORDER = np.random.default_rng(1)


class Pictures:
    """JPEG files, decoded and scaled to what a network takes."""

    def __init__(self, root: Path) -> None:
        self.files = sorted(map(str, root.glob("*.jpg")))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return decode(self.files[i]), i


def decode(file: str) -> Any:
    picture = Image.open(file).convert("RGB").resize((SIDE, SIDE))
    return np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))


def write_pictures(root: Path, count: int) -> None:
    """Photographs are smooth; noise would be far slower to decode."""
    rng = np.random.default_rng(0)
    for i in range(count):
        small = rng.integers(0, 255, (12, 16, 3), np.uint8)
        Image.fromarray(small).resize((500, 375), Image.BICUBIC).save(root / f"{i:05}.jpg", quality=90)


def each_us(reads: dict[str, Callable[[int], Any]], count: int) -> dict[str, float]:
    """Microseconds of one read in random order, in turn: the best of some rounds after a first one."""
    best = dict.fromkeys(reads, float("inf"))
    for number in range(ROUNDS + 1):
        order = _ORDER.permutation(count).tolist()
        for name, read in reads.items():
            began = time.perf_counter()
            for i in order:
                read(i)
            if number:
                best[name] = min(best[name], (time.perf_counter() - began) / count * 1e6)
    return best


def key_ms(make: Callable[[], Any]) -> float:
    make()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        make()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def readers(root: Path, work: Path) -> dict[str, tuple[Callable[[int], Any], Callable[[], Any] | None]]:
    """By name: how an item is read, and how a key is made, where there is one."""
    from jupyter_gpuprof import cached
    from jupyter_gpuprof.session.cache.plan import plan_of

    plain = Pictures(root)
    count = len(plain)
    bare = np.lib.format.open_memmap(work / "bare.npy", "w+", np.uint8, (count, 3, SIDE, SIDE))
    for i in range(count):
        bare[i] = plain[i][0]
    bare.flush()
    mapped = np.load(work / "bare.npy", mmap_mode="r")
    ours = cached(plain, folder=work / "ours")
    for i in range(count):
        ours[i]
    ours.flush()
    found: dict[str, tuple[Callable[[int], Any], Callable[[], Any] | None]] = {
        "decode": (plain.__getitem__, None),
        "bare memory map": (lambda i: (np.array(mapped[i]), i), None),
        "cached": (ours.__getitem__, lambda: plan_of(plain, "Pictures").key),
    }
    try:
        import joblib

        remembered = joblib.Memory(work / "joblib", verbose=0).cache(decode)
        found["joblib.Memory"] = (lambda i: (remembered(plain.files[i]), i), None)
    except ImportError:
        pass
    try:
        import diskcache

        table = diskcache.Cache(str(work / "diskcache"))
        for i in range(count):
            table[plain.files[i]] = plain[i][0]
        found["diskcache"] = (lambda i: (table[plain.files[i]], i), None)
    except ImportError:
        pass
    try:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import datasets
        from datasets.fingerprint import Hasher

        datasets.disable_progress_bars()
        features = datasets.Features({"x": datasets.Array3D((3, SIDE, SIDE), "uint8")})
        source = datasets.Dataset.from_dict({"file": plain.files})
        mapped_hf = source.map(
            lambda row: {"x": decode(row["file"])},
            remove_columns=["file"],
            features=features,
            cache_file_name=str(work / "hf.arrow"),
        ).with_format("numpy")
        found["HF datasets map"] = (lambda i: (mapped_hf[i]["x"], i), lambda: Hasher.hash(decode))
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    count = parser.parse_args().images
    with tempfile.TemporaryDirectory() as folder:
        root, work = Path(folder) / "jpeg", Path(folder) / "work"
        root.mkdir()
        work.mkdir()
        write_pictures(root, count)
        found = readers(root, work)
        times = each_us({name: read for name, (read, _) in found.items()}, count)
        for name, (_, key) in found.items():
            against = f"{times['decode'] / times[name]:7.1f} x faster than decoding"
            bare = f"{times[name] / times['bare memory map']:7.2f} x a bare read"
            made = f"  key {key_ms(key):.2f} ms" if key is not None else ""
            print(f"{name:<18} {times[name]:9.1f} us  {against} {bare}{made}")


if __name__ == "__main__":
    main()
