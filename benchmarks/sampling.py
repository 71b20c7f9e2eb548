"""What sampling the training thread costs it, beside py-spy on the same loops, in one run.

    python benchmarks/sampling.py [--rounds 8] [--chunks 20]

Two loops of fixed work: pure Python that never lets go of the interpreter, and small steps of torch (one
thread). Chunks of it are timed bare, with our sampler on, and with ``py-spy record -r 100`` on this
process, with and without stopping it, in turn; printed is the time with over the time without, less 1, of
the lower quartiles, which other work on the machine disturbs least. Target: below 1 %. The hooks of a run
are in in all of them, so that only sampling differs.

Measured on 2 cores (torch 2.13.0; a busy machine, so the benchmark ran under ``chrt -f 10``; bare against
bare within 0.9 %), pure Python and torch steps: ours at 50 Hz 0.1 to 0.4 % and 0 to 1.1 %, at 100 Hz 1.0 %
and 1.8 %; py-spy 1.5 to 1.9 % and 3.0 to 4.4 %; py-spy --nonblocking -0.4 to 1.0 %: it reads from another
core, which needs the right to. So ours looks 50 times a second.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import hooks, pyspy, sampler
from jupyter_gpuprof.probes.recorder import Recorder

torch.set_num_threads(1)

#: Long enough for some samples, short enough that many of them meet a quiet moment of the machine.
CHUNK_S = 0.06


def python_loop(n: int) -> None:
    """Pure Python."""
    total = 0
    for i in range(n * 1000):
        total += i * i


def torch_loop(n: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """Small training steps."""
    for _ in range(n):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def loops() -> dict[str, Callable[[int], None]]:
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(32, 32)
    return {"pure Python": python_loop, "torch steps": lambda n: torch_loop(n, model, optimizer, x)}


@contextmanager
def bare(recorder: Recorder) -> Iterator[None]:
    yield


@contextmanager
def ours(recorder: Recorder) -> Iterator[None]:
    sampling = sampler.TrainingSampler(recorder)
    sampling.start()
    try:
        yield
    finally:
        sampling.stop()


def with_pyspy(*options: str) -> Callable[[Recorder], AbstractContextManager[None]]:
    """``py-spy record`` on this process."""

    @contextmanager
    def attached(recorder: Recorder) -> Iterator[None]:
        program = pyspy.find()
        assert program, "py-spy is not installed"
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "record", "-r", "100", "-d", "600", "-f", "raw", "-o", f"{folder}/raw"]
            process = subprocess.Popen(
                [*command, *options, "--pid", str(os.getpid())],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(0.4)  # until it has found its way
            try:
                assert process.poll() is None, "py-spy did not start"
                yield
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)

    return attached


KINDS: dict[str, Callable[[Recorder], AbstractContextManager[None]]] = {
    "bare, again": bare,
    "jupyter_gpuprof": ours,
    "py-spy record": with_pyspy(),
    "py-spy --nonblocking": with_pyspy("--nonblocking"),
}


def quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def timed(work: Callable[[int], None], n: int) -> float:
    begun = time.perf_counter()
    work(n)
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=20)
    args = parser.parse_args()
    recorder = Recorder(StepAssembler(), torch.is_grad_enabled)
    hooks.push(recorder)
    try:
        for name, work in loops().items():
            n = max(1, int(100 * CHUNK_S / min(timed(work, 100) for _ in range(5))))
            chunks: dict[str, list[list[float]]] = {kind: [[], []] for kind in KINDS}
            for _ in range(args.rounds):
                for kind, context in KINDS.items():
                    off, on = chunks[kind]
                    off += [timed(work, n) for _ in range(args.chunks // 2)]
                    with context(recorder):
                        on += [timed(work, n) for _ in range(args.chunks)]
                    off += [timed(work, n) for _ in range(args.chunks // 2)]
            print(
                f"{name}, chunks of {1e3 * CHUNK_S:.0f} ms, {args.rounds * args.chunks} of each; time added"
            )
            for kind, (off, on) in chunks.items():
                added = [100 * (quantile(on, q) / quantile(off, q) - 1) for q in (10, 25, 50)]
                print(f"  {kind:22} {added[1]:6.2f} %  (fastest tenth {added[0]:.2f}, median {added[2]:.2f})")
    finally:
        hooks.pop(recorder)


if __name__ == "__main__":
    main()
