"""Hand-made traces: events as Kineto writes them, times in microseconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parent / "data" / "traces"

Event = dict[str, Any]


def span(cat: str, name: str, ts: float, dur: float, pid: Any, tid: Any, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts: float, dur: float, name: str = "gemm", stream: int = 7, device: int = 0, **args: Any) -> Event:
    return span("kernel", name, ts, dur, device, stream, device=device, stream=stream, **args)


def copy(ts: float, dur: float, name: str = "Memcpy HtoD (Pinned -> Device)", stream: int = 9) -> Event:
    return span("gpu_memcpy", name, ts, dur, 0, stream, device=0, stream=stream)


def step(number: int, ts: float, dur: float, tid: int = 100) -> Event:
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur, 100, tid)


def fetch(ts: float, dur: float, tid: int = 100) -> Event:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return span("user_annotation", name, ts, dur, 100, tid)


def optimize(ts: float, dur: float, name: str = "SGD") -> Event:
    return span("user_annotation", f"Optimizer.step#{name}.step", ts, dur, 100, 100)


def host_op(ts: float, dur: float, name: str = "aten::addmm", tid: int = 100) -> Event:
    return span("cpu_op", name, ts, dur, 100, tid)


def launch(ts: float, dur: float = 1, name: str = "cudaLaunchKernel") -> Event:
    return span("cuda_runtime", name, ts, dur, 100, 100)


def rank_header(rank: int, world_size: int) -> dict[str, Any]:
    return {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}}


def gpu_header(name: str = "NVIDIA A100", memory_bytes: int = 40 << 30) -> dict[str, Any]:
    return {"deviceProperties": [{"id": 0, "name": name, "totalGlobalMem": memory_bytes}]}


def text(events: Sequence[Event], **header: Any) -> str:
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}, indent=1)


def write(path: Path, events: Sequence[Event], **header: Any) -> Path:
    path.write_text(text(events, **header))
    return path


def two_steps() -> list[Event]:
    """Two steps of 100 us: 40 computing, 10 exposed communication, 5 copying, 20 exposed input, 25 idle."""
    events = []
    for number in (0, 1):
        t = 1000 + 100 * number
        events += [
            step(number, t, 100),
            fetch(t, 30),  # 10 of them while a copy and a kernel run
            copy(t, 5),
            kernel(t + 5, 5),
            kernel(t + 30, 35),
            kernel(t + 50, 25, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", stream=20),
            host_op(t + 32, 60),
            launch(t + 33),
        ]
    return events
