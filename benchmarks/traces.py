"""Reading and breaking down stored traces, side by side with HolisticTraceAnalysis.

    python benchmarks/traces.py            time and peak memory on the traces in tests/data/traces
    python benchmarks/traces.py --routes   the ways to read their JSON
    python benchmarks/traces.py --big 2    a synthetic trace of so many GB: memory, speed, interruption

Ours reads the file, finds the steps and breaks them down; HTA only loads it (`Trace.parse_traces`, with its
memory profiling off). Each measurement is a process of its own, the tools take turns, imports are not
timed. Peak memory is the process's, so it includes interpreter and imports. For the archive of 8 ranks
HTA gets the unpacked files, with and without its worker processes; the faster is compared, and the
memory of the one without (workers' memory is not in the parent's).

Measured on 2026-12-01, 2 cores of an x86-64 server under other load, Python 3.11, HTA 0.5.0,
msgspec 0.23, orjson 3.13, pysimdjson 7.0, ijson 3.6 (yajl2_c):

    file                                             ours           HTA load   faster   memory
    resnet50_workers0.pt.trace.json.gz    110 ms   43 MB   1737 ms  265 MB    15.8x      16%
    resnet50_workers4.pt.trace.json.gz    100 ms   42 MB   1452 ms  253 MB    14.6x      17%
    ddp_a100_rank3.json.gz                190 ms   44 MB   2651 ms  321 MB    16.0x      14%
    mi250_minitoy.json.gz                   3 ms   33 MB     31 ms  117 MB    13.1x      28%
    dlrm_8ranks_kineto.tar.gz              59 ms   39 MB    825 ms  157 MB    12.2x      25%

    a synthetic trace of 2.02 GB: 11.7 s (165 MB/s), peak 184 MB; interrupted: ended within 0.1 s

Ways to read the JSON (inflate, decode, sum the durations of gpu ops), 34.8 MB and 35.2 MB of it:

                              ddp_a100_rank3    resnet50_workers0
    json                    1017 ms   155 MB    767 ms   140 MB
    ijson                    657 ms    17 MB    391 ms    17 MB
    orjson                   899 ms   250 MB    617 ms   218 MB
    simdjson                 240 ms   167 MB    251 ms   154 MB
    msgspec, dicts          1073 ms   177 MB    719 ms   157 MB
    msgspec, typed           201 ms    98 MB    157 ms    88 MB
    msgspec, typed, blocks   134 ms    27 MB    154 ms    27 MB

Building dicts is what costs, so the parsers that build them are all slow. simdjson parses fastest (24 ms of
the 240) but then hands over one value at a time, and needs the whole text at once. msgspec skips what its
types do not name, and a list of events cut out of the text is all that it needs: so typed, in blocks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TRACES = Path(__file__).parent.parent / "tests" / "data" / "traces"
FILES = [
    "resnet50_workers0.pt.trace.json.gz",
    "resnet50_workers4.pt.trace.json.gz",
    "ddp_a100_rank3.json.gz",
    "mi250_minitoy.json.gz",
    "dlrm_8ranks_kineto.tar.gz",
]
OPS = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
MIB = 2**20


# -- one measurement, in a process of its own ------------------------------------------------------


def ours(path: Path) -> Callable[[], object]:
    from jupyter_gpuprof.analysis.ranks import compare, ranks_of_one_job
    from jupyter_gpuprof.analysis.trace_breakdown import breakdown
    from jupyter_gpuprof.probes.tracefile import read_traces

    def run() -> object:
        ranks = ranks_of_one_job(read_traces([path])).ranks
        return compare(ranks, [breakdown(trace) for trace in ranks])

    return run


def hta(path: Path, workers: bool = False) -> Callable[[], object]:
    import logging

    from hta.common.trace import Trace

    logging.disable(logging.CRITICAL)
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]

    def run() -> object:
        trace = Trace(trace_files={i: str(file) for i, file in enumerate(files)}, trace_dir="")
        trace.parse_traces(use_multiprocessing=workers, use_memory_profiling=False)
        return trace

    return run


def route(name: str) -> Callable[[Path], Callable[[], object]]:
    """Sum the durations of gpu ops over the events as one JSON library gives them."""

    def of_dicts(events: Iterator[dict] | list[dict]) -> float:
        return sum(e["dur"] for e in events if e.get("cat") in OPS and e.get("ph") == "X")

    def make(path: Path) -> Callable[[], object]:
        def whole() -> bytes:
            return gzip.decompress(path.read_bytes())

        if name == "json":
            return lambda: of_dicts(json.loads(whole())["traceEvents"])
        if name == "orjson":
            import orjson

            return lambda: of_dicts(orjson.loads(whole())["traceEvents"])
        if name == "simdjson":
            import simdjson

            return lambda: of_dicts(simdjson.Parser().parse(whole())["traceEvents"])
        if name == "ijson":
            import ijson

            def read_ijson() -> float:
                with gzip.open(path) as file:
                    return of_dicts(ijson.items(file, "traceEvents.item", use_float=True))

            return read_ijson
        import msgspec

        from jupyter_gpuprof.probes.bytestream import ByteStream
        from jupyter_gpuprof.probes.tracejson import Header, TraceEvents

        if name == "msgspec, dicts":
            return lambda: of_dicts(msgspec.json.decode(whole())["traceEvents"])
        if name == "msgspec, typed":
            decoder = msgspec.json.Decoder(Header)
            return lambda: sum(
                e.dur for e in decoder.decode(whole()).traceEvents if e.cat in OPS and e.ph == "X"
            )

        def read_blocks() -> float:
            with path.open("rb") as file:
                blocks = TraceEvents(ByteStream(file.read).read, path.name)
                return sum(e.dur for events in blocks for e in events if e.cat in OPS and e.ph == "X")

        return read_blocks

    return make


ROUTES = [
    "json",
    "ijson",
    "orjson",
    "simdjson",
    "msgspec, dicts",
    "msgspec, typed",
    "msgspec, typed, blocks",
]
TOOLS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "ours": ours,
    "hta": hta,
    "hta with workers": lambda path: hta(path, workers=True),
    **{f"route {name}": route(name) for name in ROUTES},
}


def peak_bytes() -> int:
    """Peak resident memory of this process."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_here(tool: str, path: Path) -> None:
    run = TOOLS[tool](path)
    begin = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - begin
    print(
        json.dumps({"seconds": seconds, "peak": peak_bytes(), "result": result if "route" in tool else None})
    )


# -- side by side ----------------------------------------------------------------------------------


def measure(tool: str, path: Path) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, "--one", tool, str(path)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def side_by_side(repeat: int) -> None:
    print(f"{'file':38} {'ours':>18} {'HTA load':>18} {'faster':>17} {'memory':>7}   (medians of {repeat})")
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            path, unpacked = TRACES / name, TRACES / name
            tools = ["ours", "hta"]
            if name.endswith(".tar.gz"):
                unpacked = Path(folder) / name
                with tarfile.open(path) as archive:
                    archive.extractall(unpacked, filter="data")
                tools.append("hta with workers")
            found: dict[str, list[dict]] = {tool: [] for tool in tools}
            for _ in range(repeat):
                for tool in tools:
                    found[tool].append(measure(tool, path if tool == "ours" else unpacked))
            seconds = {tool: [r["seconds"] for r in results] for tool, results in found.items()}
            peaks = {tool: statistics.median(r["peak"] for r in results) for tool, results in found.items()}
            best = min(tools[1:], key=lambda tool: statistics.median(seconds[tool]))
            ratios = [theirs / own for theirs, own in zip(seconds[best], seconds["ours"], strict=True)]
            print(
                f"{name:38} {_cell(seconds['ours'], peaks['ours'])} {_cell(seconds[best], peaks['hta'])}"
                f" {statistics.median(ratios):5.1f}x ({min(ratios):.1f}-{max(ratios):.1f})"
                f" {peaks['ours'] / peaks['hta']:7.0%}"
            )


def _cell(seconds: list[float], peak: float) -> str:
    return f"{statistics.median(seconds) * 1e3:7.1f} ms {peak / MIB:4.0f} MB"


def routes(repeat: int) -> None:
    for file in ("ddp_a100_rank3.json.gz", "resnet50_workers0.pt.trace.json.gz"):
        print(f"{file}: inflate, decode, sum the durations of gpu ops; median of {repeat}")
        found: dict[str, list[dict]] = {name: [] for name in ROUTES}
        for _ in range(repeat):
            for name in ROUTES:
                found[name].append(measure(f"route {name}", TRACES / file))
        assert len({round(r["result"]) for results in found.values() for r in results}) == 1
        for name, results in found.items():
            print(f"  {name:28} {_cell([r['seconds'] for r in results], results[0]['peak'])}")


# -- a big one -------------------------------------------------------------------------------------


def write_big(path: Path, size: float) -> int:
    """Repeat a real trace with shifted times until the file has `size` bytes; returns the repetitions."""
    text = gzip.decompress((TRACES / "ddp_a100_rank3.json.gz").read_bytes()).decode()
    head, _, rest = text.partition('"traceEvents": [')
    events = rest[: rest.rindex("]")]
    begin = min(map(int, re.findall(r'"ts": (\d+)', events)))
    pieces = re.split(r'("ts": )(\d+)', events)
    stamps = range(2, len(pieces), 3)
    relative = [int(pieces[i]) - begin for i in stamps]
    period = 600_000  # microseconds; the recording is 540 ms long
    copies = 0
    with path.open("w") as file:
        file.write(head + '"traceEvents": [')
        while file.tell() < size:
            shift = begin + copies * period
            for i, ts in zip(stamps, relative, strict=True):
                pieces[i] = str(ts + shift)
            file.write("," * bool(copies) + "".join(pieces))
            copies += 1
        file.write("]}\n")
    return copies


def big(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.json"
        copies = write_big(path, gigabytes * 1e9)
        size = path.stat().st_size
        print(f"{size / 1e9:.2f} GB of JSON, {copies} x {FILES[2]}")
        result = measure("ours", path)
        print(
            f"read and broken down in {result['seconds']:.1f} s, {size / MIB / result['seconds']:.0f} MB/s,"
            f" peak {result['peak'] / MIB:.0f} MB"
        )
        process = subprocess.Popen(
            [sys.executable, __file__, "--one", "ours", str(path)], stderr=subprocess.DEVNULL
        )
        time.sleep(min(3.0, result["seconds"] / 2))
        process.send_signal(signal.SIGINT)
        begin = time.perf_counter()
        code = process.wait()
        left = sorted(p.name for p in Path(folder).iterdir())
        print(
            f"interrupted: ended with {code} after {time.perf_counter() - begin:.2f} s, folder holds {left}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--routes", action="store_true")
    parser.add_argument("--big", type=float, metavar="GB")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure_here(options.one[0], Path(options.one[1]))
    elif options.routes:
        routes(options.repeat)
    elif options.big:
        big(options.big)
    else:
        side_by_side(options.repeat)


if __name__ == "__main__":
    main()
