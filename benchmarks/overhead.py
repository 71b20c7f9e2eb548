"""What our hooks add to a training step, beside the peers, in one run on one machine.

    make bench                      # or: python benchmarks/overhead.py [--steps 500] [--rounds 7]

The loop is a tiny network (32-64-10, batch 32, SGD, one torch thread) over batches made beforehand, so
that nothing but the profilers' own cost differs. Bare and profiled runs are interleaved in one process;
a round's figure is the difference of the median step times; printed is the median over rounds. TraceML
records only under its own launcher, so it is measured as pairs of separate processes. A peer that is not
installed is left out and said so. Targets: at most 8 us added, a tenth of each peer.

Measured on 2 cores (torch 2.13.0, bare step 230 us), several runs: ours 10 to 14 us, torch.profiler 69 to 81,
gpuprof 110 to 131, TraceML 108 to 113. The targets are missed: with torch's own work in between, each Python
call of ours costs about a microsecond, and wrappers that do nothing cost 4 already.

    --million     one million empty steps: memory, and no step lost
    --render      load_ext, rendering, and how soon a cell ends
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

os.environ.setdefault("JUPYTER_GPUPROF_DATABASE", str(Path(tempfile.mkdtemp()) / "ledger.db"))

LOOP = """
import json, statistics, sys, time
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.manual_seed(0)
batches = [(torch.randn(32, 32), torch.randint(0, 10, (32,))) for _ in range({steps})]
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
criterion = torch.nn.CrossEntropyLoss()

def one_run():
    stamps = []
    for x, y in DataLoader(batches, batch_size=None):
        stamps.append(time.perf_counter())
        {before}
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        {after}
    steps = [b - a for a, b in zip(stamps[10:], stamps[11:])]
    return statistics.median(steps)
"""


def loop(steps: int) -> Callable[[], float]:
    """The training loop; its value is the median step in seconds."""
    names: dict[str, object] = {}
    exec(LOOP.format(steps=steps, before="pass", after="pass"), names)
    run = names["one_run"]
    assert callable(run)
    return run


@contextmanager
def bare() -> Iterator[None]:
    yield


@contextmanager
def ours() -> Iterator[None]:
    from jupyter_gpuprof import profile

    with profile("overhead", save=False):
        yield


@contextmanager
def torch_profiler() -> Iterator[None]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]):
        yield


@contextmanager
def gpuprof() -> Iterator[None]:
    import gpuprof as peer

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)  # it writes a database where it stands
        try:
            with peer.profile("overhead", summary=False):
                yield
        finally:
            os.chdir(here)


def added_us(
    run: Callable[[], float], context: Callable[[], AbstractContextManager[None]], rounds: int
) -> list[float]:
    """Microseconds added per step, one figure a round, bare and profiled in turn."""
    found = []
    for _ in range(rounds):
        off = run()
        with context():
            on = run()
        off_again = run()
        found.append(1e6 * (on - (off + off_again) / 2))
    return found


def traceml_added_us(steps: int, rounds: int) -> list[float]:
    """The same for TraceML, each run a process of its own under its launcher."""
    body = LOOP.format(steps=steps, before="step = traceml.trace_step(model); step.__enter__()",
                       after="step.__exit__(None, None, None)")  # fmt: skip
    source = f"import traceml_ai as traceml\ntraceml.init()\n{body}\nprint('MEDIAN', one_run())\n"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(source)
        for i in range(rounds):
            off = _traceml(script, folder, f"off{i}", "--disable-traceml")
            on = _traceml(script, folder, f"on{i}")
            found.append(1e6 * (on - off))
    return found


def _traceml(script: Path, folder: str, name: str, *options: str) -> float:
    command = Path(sys.executable).with_name("traceml")
    arguments = [command, "run", "--logs-dir", f"{folder}/logs", "--run-name", name, *options, script]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, timeout=300)
    for line in done.stdout.splitlines():
        if "MEDIAN" in line:
            return float(line.split("MEDIAN")[1])
    raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])


def overhead(steps: int, rounds: int) -> None:
    """Print the table."""
    run = loop(steps)
    run()
    step_us = 1e6 * min(run() for _ in range(3))
    print(f"bare step {step_us:.0f} us; {steps} steps, {rounds} rounds; added per step, median (range)")
    figures: dict[str, list[float]] = {}
    for name, measure in {
        "jupyter_gpuprof": lambda: added_us(run, ours, rounds),
        "torch.profiler (CPU)": lambda: added_us(run, torch_profiler, rounds),
        "gpuprof 0.7.1": lambda: added_us(run, gpuprof, rounds),
        "TraceML 0.5.0": lambda: traceml_added_us(steps, max(3, rounds // 2)),
    }.items():
        try:
            figures[name] = measure()
        except ImportError as error:
            print(f"  {name:22} left out: {error}")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"  {name:22} did not run: {str(error)[:200]}")
    our = statistics.median(figures["jupyter_gpuprof"])
    for name, values in figures.items():
        middle = statistics.median(values)
        ratio = (
            "" if name == "jupyter_gpuprof" else f"   ours is 1/{middle / our:.0f} of it" if our > 0 else ""
        )
        print(f"  {name:22} {middle:7.1f} us  ({min(values):.1f} to {max(values):.1f}){ratio}")


def million() -> None:
    """One million empty steps in constant memory, none lost."""
    import psutil
    import torch
    from torch.utils.data import DataLoader

    from jupyter_gpuprof import profile

    class Empty(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(1_000_000))

    process = psutil.Process()
    sizes = []
    with profile("million", save=False) as p:
        for i in DataLoader(Empty(), batch_size=None):
            if i in (100_000, 999_999):
                sizes.append(process.memory_info().rss)
    run = p.run
    print(f"one million steps: {run.steps.counted + run.steps.warmup} seen,"
          f" {(sizes[1] - sizes[0]) / 2**20:+.1f} MiB between step 100,000 and the last")  # fmt: skip


def render() -> None:
    """load_ext, rendering and the end of a cell."""
    code = (
        "import time\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nt = time.perf_counter()\n"
        "shell.run_line_magic('load_ext', 'jupyter_gpuprof')\nprint(time.perf_counter() - t)"
    )
    loads = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    print(f"%load_ext: {1e3 * statistics.median(loads):.0f} ms (target 150)")

    from jupyter_gpuprof import profile
    from jupyter_gpuprof.views.html import run_html
    from jupyter_gpuprof.views.text import run_text

    run = loop(5000)
    with profile("render") as p:
        run()
        ended = time.perf_counter()
    print(f"end of training to end of block: {1e3 * (time.perf_counter() - ended):.0f} ms (target 500)")
    run_html(p.run)
    began = time.perf_counter()
    run_html(p.run), run_text(p.run)
    print(f"rendering: {1e3 * (time.perf_counter() - began):.1f} ms (target 50)")


def main() -> None:
    """Read the options and run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--render", action="store_true")
    args = parser.parse_args()
    if args.million:
        million()
    if args.render:
        render()
    if not (args.million or args.render):
        overhead(args.steps, args.rounds)


if __name__ == "__main__":
    main()
