"""Standing in line for a core is no work, and a function around the whole training names no part of it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any

import pytest

from jupyter_gpuprof.analysis.causes import host_causes, input_causes
from jupyter_gpuprof.probes.corewait import core_wait_ns
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.samples import Frame, Samples, StackCount

PACKAGES = "/env/lib/python3.11/site-packages"
FETCH = Frame(f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 50, "_MapDatasetFetcher.fetch")
WORKER = Frame(f"{PACKAGES}/torch/utils/data/_utils/worker.py", 300, "_worker_loop", "fetcher.fetch(index)")


def frame(text: str, function: str) -> Frame:
    return Frame("/home/me/train.py", 7, function, text)


def made_by_workers(cpu_s: Number, core_wait_s: Number) -> Causes:
    """The causes of 100 batches from 10 busy seconds."""
    stack = (frame("cv2.imdecode(data, 1)", "Data.__getitem__"), FETCH, WORKER)
    samples = Samples(
        source="workers",
        stacks=(StackCount(stack, "fetch", 1000),),
        period_s=0.01,
        threads=4,
        cpu_s=cpu_s,
        core_wait_s=core_wait_s,
    )
    found = input_causes(None, samples, 100)
    assert isinstance(found, Causes)
    return found


@pytest.mark.parametrize(
    ("cpu_s", "core_wait_s", "batch_s", "cpu_ratio"),
    [
        (2.0, 0.0, 0.10, 0.2),  # waits for something else than a core
        (2.0, 8.0, 0.02, 1.0),  # computes all the time that it has a core
        (2.0, 4.0, 0.06, 1 / 3),
        (2.0, 9.5, 0.02, 1.0),  # at other times, too, when it was not busy
        (2.0, Missing("not counted"), 0.10, 0.2),
        (12.0, 0.0, 0.10, 1.0),  # its other threads compute as well
    ],
)
def test_what_a_batch_takes_without_waiting_for_a_core(
    cpu_s: Number, core_wait_s: Number, batch_s: float, cpu_ratio: float
) -> None:
    found = made_by_workers(cpu_s, core_wait_s)
    assert found.batch_s == pytest.approx(batch_s)
    assert found.cpu_ratio == pytest.approx(cpu_ratio)


def test_without_its_processor_time_all_of_it_is_work() -> None:
    found = made_by_workers(Missing("unread"), 5.0)
    assert found.batch_s == pytest.approx(0.1)
    assert found.cpu_ratio == Missing("unread")


def _spin(queue: Any) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    begun, wait, cpu = time.perf_counter(), core_wait_ns(), time.process_time()
    while time.perf_counter() - begun < 0.5:
        pass
    then = core_wait_ns()
    assert wait is not None
    assert then is not None
    queue.put((time.perf_counter() - begun, time.process_time() - cpu, (then - wait) * 1e-9))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or core_wait_ns() is None, reason="the kernel does not count it")
def test_four_on_one_core_wait_for_it() -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_spin, args=(queue,)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    for wall_s, cpu_s, waited_s in found:
        assert cpu_s + waited_s == pytest.approx(wall_s, abs=0.1)
    assert max(waited_s for _, _, waited_s in found) > 0.2


def test_where_it_is_not_counted() -> None:
    assert core_wait_ns(2**22 + 1) is None  # no such process


# -- names of functions --------------------------------------------------------------------------------


TRAIN = frame("loss.backward()", "train_and_report_metrics")
BACKWARD = (
    Frame(f"{PACKAGES}/torch/autograd/__init__.py", 300, "backward"),
    Frame(f"{PACKAGES}/torch/_tensor.py", 500, "Tensor.backward"),
    TRAIN,
)


def test_a_function_around_the_training_says_nothing_by_its_name() -> None:
    stacks = (
        StackCount(BACKWARD, "step", 50),
        StackCount((frame("net(x)", "train_and_report_metrics"),), "step", 30),
        StackCount((frame("np.mean(a == b)", "accuracy"), TRAIN), "step", 20),
    )
    found = host_causes(Samples("training thread", stacks, 0.01), 10)
    assert isinstance(found, Causes)
    assert {part.name: part.share.value for part in found.parts} == {
        "launching": 0.5,
        "python": 0.3,
        "metrics": 0.2,
    }
