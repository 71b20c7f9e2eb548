"""Stored traces of torch.profiler (Kineto): files, folders and archives of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.bytestream import ByteStream, Progress, open_streams
from jupyter_gpuprof.probes.traceevents import TraceCollector
from jupyter_gpuprof.probes.tracejson import TraceEvents
from jupyter_gpuprof.records.trace import RankTrace, TraceSet


def read_traces(paths: Iterable[str | PathLike[str]], progress: Progress | None = None) -> TraceSet:
    """Read traces in bounded memory; nothing is written, so it may be interrupted at any time.

    Args:
        paths: files (``.json``, ``.json.gz``, ``.tar.gz`` of ranks, told apart by their content) and
            folders of such files.
        progress: called with the bytes read so far and the bytes of all files, for each block that is read
            (64 KiB to 1 MiB); what it raises ends the reading.

    Returns:
        The ranks by rank, those without one last, by name. A file of a folder or an archive that is no
        trace is left out and noted.

    Raises:
        TraceError: a file named in `paths` is no trace, or no file is.
    """
    traces: list[RankTrace] = []
    notes: list[str] = []
    failures: list[TraceError] = []
    try:
        for source, named, stream in open_streams([Path(path) for path in paths], progress):
            try:
                traces.append(_read_rank(source, stream))
            except TraceError as error:
                if named:
                    raise
                failures.append(error)
    except TraceError as error:
        if not traces:
            raise
        failures.append(error)
    if not traces:
        raise failures[0] if failures else TraceError("No trace was named.")
    notes += [f"Left out: {error.args[0]}" for error in failures]
    traces.sort(key=lambda trace: (trace.rank is None, trace.rank or 0, trace.source))
    return TraceSet(tuple(traces), tuple(notes))


def _read_rank(source: str, stream: ByteStream) -> RankTrace:
    events = TraceEvents(stream.read, source)
    collector = TraceCollector(source)
    try:
        for some in events:
            collector.add(some)
    except TraceError as error:
        if stream.cut_off:
            raise TraceError(f"{source} is cut off or damaged: nothing could be read of it.") from error
        raise
    complete = not (events.cut_off or stream.cut_off)
    return collector.finish(events.header, events.unreadable, complete)
