"""Reading traces: real files, the dialects of ten years, folders and archives."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.traceevents import TraceCollector
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.probes.tracejson import TraceEvents
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.records.trace import OpKind, RankTrace
from tests.trace_events import (
    TRACES,
    Event,
    fetch,
    gpu_header,
    kernel,
    launch,
    rank_header,
    span,
    step,
    text,
    two_steps,
    write,
)


def read(path: Path) -> RankTrace:
    (trace,) = read_traces([path]).ranks
    return trace


def same_parts(trace: RankTrace) -> bool:
    """Whether the trace says the same as `two_steps`."""
    table = breakdown(trace).table
    parts = [
        table.part_s(p) for p in (Part.COMPUTE, Part.COMMUNICATION, Part.COPIES, Part.INPUT, Part.HOST_GAP)
    ]
    return np.allclose(parts, [80e-6, 20e-6, 10e-6, 40e-6, 50e-6], atol=2e-9)


# -- what is read ----------------------------------------------------------------------------------


def test_what_a_trace_tells(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "a.json", two_steps(), **rank_header(3, 8), **gpu_header()))
    assert (trace.source, trace.rank, trace.world_size) == ("a.json", 3, 8)
    assert (trace.device.kind, trace.device.name, trace.device.count) == ("cuda", "NVIDIA A100", 1)
    assert trace.device.memory_bytes == 40 << 30
    assert trace.ops.kind.tolist() == [OpKind.COPY, OpKind.COMPUTE, OpKind.COMPUTE, OpKind.COMMUNICATION] * 2
    assert trace.ops.stream.tolist() == [9, 7, 7, 20] * 2
    assert trace.ops.span_ns[0].tolist() == [1_000_000, 1_005_000]
    assert [trace.names[i] for i in trace.steps.name_id] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert trace.names[trace.ops.collective_id[3]] == "AllReduce"
    assert (len(trace.loaders), len(trace.optimizers), len(trace.host_op_ns)) == (2, 0, 0)
    assert trace.events == len(two_steps())
    assert trace.complete
    assert not trace.notes
    assert same_parts(trace)


@pytest.mark.parametrize(
    ("file", "kind", "name", "gib"),
    [
        ("resnet50_workers0.pt.trace.json.gz", "cuda", "Tesla V100-DGXS-32GB", 31.7),
        ("ddp_a100_rank3.json.gz", "cuda", "NVIDIA A100-PG509-200", 39.6),
        ("mi250_minitoy.json.gz", "rocm", "AMD Radeon Graphics", 64.0),
    ],
)
def test_devices_of_real_traces(file: str, kind: str, name: str, gib: float) -> None:
    device = read(TRACES / file).device
    assert (device.kind, device.name, device.count, device.simulated) == (kind, name, 1, False)
    assert device.memory_bytes / 2**30 == pytest.approx(gib, abs=0.1)


def test_progress_goes_from_nothing_to_all() -> None:
    path = TRACES / "ddp_a100_rank3.json.gz"
    seen: list[tuple[int, int]] = []
    read_traces([path], lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {path.stat().st_size}
    assert seen[-1][0] == path.stat().st_size
    assert len(seen) > 20


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_an_interrupt_passes_and_leaves_nothing_open(tmp_path: Path) -> None:
    path = TRACES / "ddp_a100_rank3.json.gz"

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(KeyboardInterrupt):
        read_traces([path], stop)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert not list(tmp_path.iterdir())


# -- blocks ----------------------------------------------------------------------------------------

nested = [
    {
        **kernel(i, 1),
        "args": {"device": 0, "stream": 7, "tensors": [{"name": 'a}, {"ph": "X"'}, {"b": '\\"},{'}]},
    }
    for i in range(6)
]


@given(block=st.integers(1, 400), compact=st.booleans())
def test_events_do_not_depend_on_where_blocks_end(block: int, compact: bool) -> None:
    separators = (",", ":") if compact else None
    file = json.dumps(
        {"a": [{"b": 1}], "traceEvents": [*two_steps(), *nested], "z": [{}, {}]}, separators=separators
    )
    events = TraceEvents(io.BytesIO(file.encode()).read, "x", block)
    names = [event.name for some in events for event in some]
    assert names == [event["name"] for event in [*two_steps(), *nested]]
    assert not events.cut_off
    assert not events.unreadable


def test_memory_does_not_grow_with_the_file() -> None:
    block = ",".join(json.dumps(launch(i)) for i in range(9000)).encode()

    def peak(blocks: int) -> int:
        file = iter([b'{"traceEvents": [', *[block + b","] * blocks, block + b"]}"])
        collector = TraceCollector("x")
        tracemalloc.start()
        for events in TraceEvents(lambda _: next(file, b""), "x"):
            collector.add(events)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(12) < 1.2 * peak(3)


# -- dialects --------------------------------------------------------------------------------------


def times(events: list[Event], change: object) -> list[Event]:
    return [{**e, "ts": change(e["ts"]), "dur": change(e["dur"])} for e in events]  # type: ignore[operator]


@pytest.mark.parametrize(
    "change",
    [int, float, lambda us: us + 0.0004, str],
    ids=["int", "float", "below a nanosecond", "text"],
)
def test_times_of_any_type(tmp_path: Path, change: object) -> None:
    assert same_parts(read(write(tmp_path / "a.json", times(two_steps(), change))))


def test_a_base_time_shifts_the_clock_and_nothing_else(tmp_path: Path) -> None:
    base = 1_735_632_360_000_000_000
    path = write(tmp_path / "a.json", two_steps(), displayTimeUnit="ms", baseTimeNanoseconds=base)
    late = tmp_path / "b.json"  # Kineto writes it behind the events
    late.write_text(
        json.dumps({"traceEvents": two_steps(), "displayTimeUnit": "ns", "baseTimeNanoseconds": base})
    )
    for trace in (read(path), read(late)):
        assert trace.ops.span_ns[0, 0] == base + 1_000_000
        assert same_parts(trace)


def test_the_first_kineto_traces(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cpu_op": "Operator", "cuda_runtime": "Runtime"}
    events = [{**e, "cat": old.get(e["cat"], "Operator"), "tid": str(e["tid"])} for e in two_steps()]
    for event in events:
        if event["cat"] in ("Kernel", "Memcpy"):
            event["tid"] = f"stream {event['args'].pop('stream')}"
    trace = read(write(tmp_path / "a.json", events))
    assert same_parts(trace)
    assert set(trace.ops.stream.tolist()) == {7, 9, 20}


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(two_steps()))
    assert same_parts(read(path))


def test_the_autograd_profilers_list(tmp_path: Path) -> None:
    device = [
        {**kernel(10, 40), "pid": "CUDA functions", "tid": 0},
        {**kernel(60, 20), "pid": "CUDA functions", "tid": 0},
    ]
    host = [{**kernel(0, 100), "pid": "CPU functions", "tid": 1}]
    events = [
        {k: e[k] for k in ("name", "ph", "ts", "dur", "tid", "pid")} | {"args": {}} for e in device + host
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(events))
    assert breakdown(read(path)).table.total_s == pytest.approx(70e-6)
    path.write_text(json.dumps([events[-1]]))
    assert read(path).device.kind == "cpu"


def test_rocm_by_its_runtime(tmp_path: Path) -> None:
    blit = "__amd_rocclr_fillBufferAligned"
    trace = read(
        write(tmp_path / "a.json", [kernel(0, 5), kernel(5, 5, blit), launch(0, name="hipLaunchKernel")])
    )
    assert trace.device.kind == "rocm"
    assert trace.ops.kind.tolist() == [OpKind.COMPUTE, OpKind.COPY]


def test_xpu(tmp_path: Path) -> None:
    call = {**launch(0, name="urEnqueueKernelLaunch"), "cat": "xpu_runtime"}
    trace = read(
        write(tmp_path / "a.json", [kernel(0, 5), call], **gpu_header("Intel(R) Data Center GPU Max 1550"))
    )
    assert trace.device.kind == "xpu"


def test_streams_and_devices_as_text(tmp_path: Path) -> None:
    events = [{**kernel(0, 5), "args": {"stream": "0x10", "device": "1"}}, {**kernel(5, 5), "args": []}]
    trace = read(write(tmp_path / "a.json", events))
    assert trace.ops.stream.tolist() == [16, 7]
    assert trace.ops.device.tolist() == [0, 0]


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_ReduceScatter_LD(ncclSymkDevWorkArgs4K)",
        "void ncclKernel_Broadcast_RING_LL_Sum_int8_t()",
        "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)",
        "mscclKernel_Sum_half_Simple_Sum_false(ncclDevComm*, mscclAlgo*)",
        "oneccl_reduce_base<float, 2, 16, 1, 1, 2>",
        "ccl::reduce_kernel<float>",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ],
)
def test_communication_by_name(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / "a.json", [kernel(0, 5, name)])).ops.kind.tolist() == [OpKind.COMMUNICATION]


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1>(ReduceOp)",
        "my_fused_op(ncclDevComm*)",
        "cclassify",
        "triton_sendrecvless",
    ],
)
def test_computation_by_name(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / "a.json", [kernel(0, 5, name)])).ops.kind.tolist() == [OpKind.COMPUTE]


def test_collectives_are_named_with_their_group(tmp_path: Path) -> None:
    known = {"Collective name": "allreduce", "Process Group Name": "2", "Process Group Ranks": "[0, 1]"}
    events = [kernel(0, 5, "ncclDevKernel_Generic_1()", **known), kernel(5, 5, "ncclDevKernel_Generic_1()")]
    trace = read(write(tmp_path / "a.json", events))
    labels = [trace.names[i] for i in trace.ops.collective_id]
    assert labels == ["allreduce in process group 2 [0, 1]", "ncclDevKernel_Generic_1"]


@pytest.mark.parametrize(
    "name",
    ["enumerate(DataPipe)#MapperIterDataPipe", "[pl][profile][_TrainingEpochLoop].train_dataloader_next"],
)
def test_loaders_by_name(tmp_path: Path, name: str) -> None:
    mark = {**fetch(0, 5), "name": name}
    assert len(read(write(tmp_path / "a.json", [mark, kernel(5, 5)])).loaders) == 1


def test_without_properties_or_ranks(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "a.json", two_steps(), deviceProperties=None, distributedInfo=[]))
    assert (trace.rank, trace.world_size, trace.device.name) == (None, None, "unknown")
    assert isinstance(trace.device.memory_bytes, Missing)
    assert same_parts(trace)


def test_a_rank_in_the_files_name(tmp_path: Path) -> None:
    assert read(write(tmp_path / "worker12_step_3.json", two_steps())).rank == 12


# -- bytes that are not quite JSON -----------------------------------------------------------------


@pytest.mark.parametrize(
    "junk",
    [b"caf\xe9 \xff\xfe", b"bell \x07 and\ttab\nline", rb"C:\Users\new", rb"half \ud83d", rb"\x00"],
    ids=["latin-1", "control characters", "backslashes", "half a surrogate", "hex escape"],
)
@pytest.mark.parametrize("where", ["name", "args"])
def test_junk_in_text(tmp_path: Path, junk: bytes, where: str) -> None:
    odd = kernel(0, 5, "JUNK") if where == "name" else kernel(0, 5, note="JUNK")
    path = tmp_path / "a.json"
    path.write_bytes(text([*two_steps(), odd]).encode().replace(b"JUNK", junk))
    trace = read(path)
    assert len(trace.ops) == 9
    assert trace.complete
    assert not trace.notes
    assert same_parts(trace)


@pytest.mark.parametrize("number", ["nan", "NaN", "-nan(ind)", "inf", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_know(tmp_path: Path, number: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text([*two_steps(), kernel(0, 5, bandwidth=123456789)]).replace("123456789", number))
    assert len(read(path).ops) == 9


def test_a_byte_order_mark_and_blanks(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf\n  " + text(two_steps()).encode() + b"\n\n")
    assert same_parts(read(path))


def test_odd_values_in_events(tmp_path: Path) -> None:
    odd: list[object] = [
        {**kernel(0, 5), "name": None},
        {**kernel(0, 5), "name": 7, "args": "none"},
        {"ph": "M", "name": "process_name", "ts": None, "pid": {}},
        "not an event",
        None,
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [*two_steps(), *odd]}))
    trace = read(path)
    assert len(trace.ops) == 10
    assert trace.notes == ("a.json: 2 of 21 events could not be read.",)


# -- files, folders and archives -------------------------------------------------------------------


def ranks(folder: Path, size: int = 3) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [write(folder / f"r{i}.json", two_steps(), **rank_header(i, size)) for i in range(size)]


def test_what_a_file_is_does_not_depend_on_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(gzip.compress(text(two_steps()).encode()))
    assert same_parts(read(path))


def test_gzip_members_one_after_the_other(tmp_path: Path) -> None:
    whole = text(two_steps()).encode()
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(whole[:900]) + gzip.compress(whole[900:]) + b"\0" * 64)
    trace = read(path)
    assert same_parts(trace)
    assert trace.complete


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_of_ranks(tmp_path: Path, mode: str) -> None:
    files = ranks(tmp_path / "traces")
    (tmp_path / "traces" / "r2.json.gz").write_bytes(gzip.compress(files[2].read_bytes()))
    files[2].unlink()
    (tmp_path / "traces" / "._r0.json").write_bytes(b"\0\5")
    (tmp_path / "traces" / "notes.md").write_text("hello")
    path = tmp_path / "all.tar.gz"
    with tarfile.open(path, mode) as archive:
        archive.add(tmp_path / "traces", "traces")
    found = read_traces([path])
    assert [trace.rank for trace in found.ranks] == [0, 1, 2]
    assert all(map(same_parts, found.ranks))
    assert not found.notes


def test_a_folder_of_ranks_and_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    ranks(folder)
    (folder / "config.json").write_text('{"lr": 0.1}')
    (folder / "readme.txt").write_text("not looked at")
    seen: list[tuple[int, int]] = []
    found = read_traces([folder], lambda done, total: seen.append((done, total)))
    assert [trace.rank for trace in found.ranks] == [0, 1, 2]
    assert found.notes == ("Left out: config.json is JSON but no trace: it has no list traceEvents.",)
    assert seen[-1][0] == seen[-1][1] == sum(p.stat().st_size for p in folder.glob("*.json"))


def test_files_named_one_by_one_come_in_the_order_of_ranks(tmp_path: Path) -> None:
    files = ranks(tmp_path / "traces")
    assert [trace.rank for trace in read_traces(reversed(files)).ranks] == [0, 1, 2]


def test_no_file_named() -> None:
    with pytest.raises(TraceError, match="No trace was named"):
        read_traces([])


def test_steps_and_spans_of_other_tools_are_not_taken_for_ours(tmp_path: Path) -> None:
    path = write(tmp_path / "chrome.json", [span("devtools.timeline", "RunTask", 0, 5, 1, 1)])
    with pytest.raises(TraceError, match=r"chrome\.json holds no gpu ops, no host ops and no step marks"):
        read(path)


def test_a_step_mark_alone_is_enough_to_read(tmp_path: Path) -> None:
    assert len(read(write(tmp_path / "a.json", [step(0, 0, 5)])).steps) == 1
