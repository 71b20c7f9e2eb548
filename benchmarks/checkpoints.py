"""What checkpoints that work cost beside plain ones.

    python benchmarks/checkpoints.py [--mib 256] [--folder .]

- The place in the loader: what each batch costs more, as a share of the microsecond it may; and `step()`.
- Writing: a save (files with digests, all of it safe, read back) beside a plain `torch.save` with an fsync.
- Digests: bytes a second while a file is checked, beside plain reading of the same file from the storage.
- In the background: how long training stands still, beside the whole save.

Each figure is the best of several rounds, in which the two things take turns.

Measured on 2 cores shared with other work, 256 MiB: 0.6 to 0.9 µs a batch; a checkpoint 2.2 times as long as
a plain save, for the digest and the reading back; checking 1.4 GiB/s, as fast as SHA-256 is, where reading
was 2.6; standing still 0.06 of 0.68 s.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from jupyter_gpuprof.probes import checkpointfiles
from jupyter_gpuprof.session.checkpoints.checkpointer import Checkpointer
from jupyter_gpuprof.store.digests import digest

ROUNDS = 7
PASSES = 100


class Numbers(Dataset):
    def __len__(self) -> int:
        return 3_000

    def __getitem__(self, i: int) -> int:
        return i


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def taking_turns(*works: Callable[[], object]) -> list[float]:
    """The fewest seconds of each: what other work on the machine adds is not theirs."""
    took = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*took, strict=True)]


def position(folder: Path) -> None:
    """Short passes, many of them in turns, by the processor's time: what else runs adds little."""
    loader, other = (DataLoader(Numbers(), batch_size=None, shuffle=True) for _ in range(2))

    def pass_s(loader: Any, after: Callable[[], object]) -> float:
        begun = time.thread_time()
        for _ in loader:
            after()
        return time.thread_time() - begun

    def nothing() -> None:
        pass

    with Checkpointer(folder / "position", every="1h", loader=loader) as ck:
        rows = [
            (pass_s(other, nothing), pass_s(loader, nothing), pass_s(loader, ck.step)) for _ in range(PASSES)
        ]
    plain, counted, stepped = (min(times) / len(Numbers()) for times in zip(*rows, strict=True))
    each_s = counted - plain
    print(
        f"the place in the loader  {each_s * 1e9:6.0f} ns a batch"
        f"   {each_s / 1e-6:5.2f} of what it may   {counted / plain:5.2f} of the loop"
    )
    print(f"ck.step()                {(stepped - counted) * 1e9:6.0f} ns a batch, where nothing is due")


def saving(folder: Path, mib: int) -> None:
    model = torch.nn.ParameterList([torch.randn(mib * 2**18 // 8) for _ in range(8)])

    def plain() -> None:
        with open(folder / "plain.pt", "wb") as file:
            torch.save(model.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())

    ck = Checkpointer(folder / "blocking", every="1h", async_=False, model=model, keep=1)
    step = 0

    def ours() -> None:
        nonlocal step
        ck.step_count = step = step + 1
        ck.save()

    bare, whole = taking_turns(plain, ours)
    ck.close()
    print(f"torch.save and fsync     {bare:6.2f} s {mib / bare:8.0f} MiB/s")
    print(f"a checkpoint             {whole:6.2f} s {mib / whole:8.0f} MiB/s   {whole / bare:5.2f} of that")

    path = next((folder / "blocking").glob("step-*/state.pt"))

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass

    def check() -> None:
        with open(path, "rb") as file:
            digest(file)

    def cold(work: Callable[[], None]) -> Callable[[], None]:
        def after() -> None:
            work()
            checkpointfiles.forget_cached(path)

        return after

    checkpointfiles.forget_cached(path)
    disk, checked = taking_turns(cold(read), cold(check))
    print(f"reading                  {disk:6.2f} s {mib / disk:8.0f} MiB/s")
    print(
        f"checking                 {checked:6.2f} s {mib / checked:8.0f} MiB/s   {checked / disk:5.2f} of it"
    )

    ck = Checkpointer(folder / "background", every=1, async_=True, model=model, keep=1)
    stalls, durable = [], []
    for _ in range(ROUNDS):
        stalls.append(seconds(ck.step))
        durable.append(stalls[-1] + seconds(ck.wait))
    ck.close()
    stall, safe = min(stalls), min(durable)
    print(f"standing still           {stall:6.2f} s   {stall / safe:18.2f} of {safe:.2f} s until it is safe")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=Path())
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        position(Path(folder))
        saving(Path(folder), asked.mib)


if __name__ == "__main__":
    main()
