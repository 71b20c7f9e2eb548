"""What looking at the devices costs, beside a plain loop over the same calls of pynvml.

    python benchmarks/devices.py [--devices 8] [--kernels 40] [--looks 60]

A look is what the server does once a second: read all devices, find the processes, say who holds what. The
driver is the pretend one of the tests (a real one adds its own time to both columns); the kernels are
processes that sleep, each with a child, and each holds memory of one device. Looks are 0.11 s apart, so that
counters are read and caches are as cold as in use; printed is processor time of all threads. Target: at
most 10 ms a look, which is 1 % of one core at 1 Hz.

Measured on 2 cores with other work going on, four runs: a look takes 4.6 to 5.5 ms, of which reading the
devices 1.1 to 1.3 (the plain loop 0.5 to 0.6) and finding the processes 2.6 to 2.9; with 200 kernels 14 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.attribution import attribute
from jupyter_gpuprof.probes.nvml import NvmlReader
from jupyter_gpuprof.probes.processes import ProcessTable, process_id
from jupyter_gpuprof.records.devices import Snapshot
from jupyter_gpuprof.records.processes import KernelProcess, KernelReport, KernelTag
from tests.fakenvml import GIB, FakeNvml, Gpu

APART_S = 0.11
COUNTERS = {1: 90.0, 2: 40.0, 3: 12.5, 5: 30.0, 10: 55.0}
KERNEL = ["sh", "-c", "sleep 600 & wait"]


def ms(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and its processor time in ms."""
    begun = time.process_time_ns()
    value = work()
    return value, (time.process_time_ns() - begun) * 1e-6


def plain(nvml: Any, handles: list[Any], samples: list[list[Any]]) -> None:
    """The same calls without any of our care."""
    for handle, pair in zip(handles, samples, strict=True):
        nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        nvml.nvmlDeviceGetUtilizationRates(handle)
        nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        try:
            nvml.nvmlDeviceGetProcessUtilization(handle, 0)
        except nvml.NVMLError:
            pass
        pair.reverse()
        nvml.nvmlGpmSampleGet(handle, pair[1])
        get = nvml.c_nvmlGpmMetricsGet_t()
        get.version, get.numMetrics, get.sample1, get.sample2 = 1, len(COUNTERS), *pair
        for place, number in enumerate(COUNTERS):
            get.metrics[place].metricId = number
        nvml.nvmlGpmMetricsGet(get)


def run(devices: int, started: list[subprocess.Popen[bytes]], looks: int, folder: Path) -> None:
    import pynvml

    pids = [process.pid for process in started]
    gpus = [
        Gpu(
            used_bytes=40 * GIB,
            utilisation=50,
            metrics=COUNTERS,
            processes=dict.fromkeys(pids[index::devices], GIB),
            samples=[(pid, 1, 10) for pid in pids[index::devices]],
        )
        for index in range(devices)
    ]
    fake = FakeNvml(folder, gpus)
    identities = [process_id(pid) for pid in pids]
    tag = KernelTag(os.getpid(), "")
    kernels = [KernelProcess(f"k{id.pid}", f"{id.pid}.ipynb", id, tag) for id in identities if id]
    reports = [
        KernelReport(k.id, gpus[i % devices].uuid, None, GIB, GIB, False, 0.0)
        for i, k in enumerate(kernels)
        if k.id
    ]
    with fake.in_process():
        reader, table = NvmlReader(), ProcessTable()
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(devices)]
        samples = [[pynvml.nvmlGpmSampleAlloc() for _ in range(2)] for _ in handles]
        for handle, pair in zip(handles, samples, strict=True):
            pynvml.nvmlGpmSampleGet(handle, pair[1])
        costs: dict[str, list[float]] = {"plain": [], "read": [], "processes": [], "attribute": []}
        for look in range(looks + 2):
            time.sleep(APART_S)

            def find(snapshot: Snapshot) -> Any:
                listed = {p.pid for d in snapshot.devices for p in d.processes}  # type: ignore[union-attr]
                return table.look([os.getpid(), *pids], listed)

            _, plain_ms = ms(lambda: plain(pynvml, handles, samples))
            snapshot, read_ms = ms(reader.read)
            assert snapshot.state == "ok", snapshot
            processes, processes_ms = ms(lambda snapshot=snapshot: find(snapshot))
            found, attribute_ms = ms(
                lambda snapshot=snapshot, processes=processes: attribute(
                    snapshot, processes, kernels, reports, own_uid=os.getuid(), server_pid=os.getpid()
                )
            )
            assert len(found.holders) == len(kernels)
            if look >= 2:  # imports, the init and the first counters are not what a look costs
                for name, cost in zip(costs, (plain_ms, read_ms, processes_ms, attribute_ms), strict=True):
                    costs[name].append(cost)
        reader.close()
        pynvml.nvmlShutdown()
    mean = {name: statistics.mean(values) for name, values in costs.items()}
    whole = mean["read"] + mean["processes"] + mean["attribute"]
    entries = len(os.listdir("/proc"))
    print(f"{devices} devices, {len(kernels)} kernels, {entries} entries in /proc, {looks} looks")
    times = mean["read"] / mean["plain"]
    print(f"  plain loop over pynvml   {mean['plain']:6.2f} ms")
    print(f"  devices                  {mean['read']:6.2f} ms   {times:.1f} times the loop")
    print(f"  processes                {mean['processes']:6.2f} ms")
    print(f"  who holds what           {mean['attribute']:6.2f} ms")
    verdict = "met" if whole <= 10 else "MISSED"
    print(f"  a look                   {whole:6.2f} ms   {whole / 10:.2f} % of one core at 1 Hz", end=" ")
    print(f"(target 1 %: {verdict})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--looks", type=int, default=60)
    args = parser.parse_args()
    started = [subprocess.Popen(KERNEL, start_new_session=True) for _ in range(args.kernels)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(args.devices, started, args.looks, Path(folder))
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


if __name__ == "__main__":
    begun_ns = clock.now_ns()
    main()
    print(f"  ({(clock.now_ns() - begun_ns) * 1e-9:.0f} s in all)")
