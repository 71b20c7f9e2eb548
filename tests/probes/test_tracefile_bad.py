"""Bad input: a sentence that names the file, or the answer from what could be read."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.probes.tracefile import read_traces
from jupyter_gpuprof.probes.tracejson import TraceEvents
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.records.trace import RankTrace
from tests.trace_events import TRACES, gpu_header, kernel, launch, rank_header, step, text, two_steps, write


def read(path: Path) -> RankTrace:
    (trace,) = read_traces([path]).ranks
    return trace


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "bad.json is empty."),
        (b" \n ", "bad.json is empty."),
        (b"hello", "bad.json is not JSON."),
        (b"\x89PNG\r\n\x1a\n", "bad.json is not JSON."),
        (b"{hello", "bad.json is not JSON."),
        (b'{"a": 1}', "bad.json is JSON but no trace: it has no list traceEvents."),
        (b'{"traceEvents": 3}', "bad.json is JSON but no trace: it has no list traceEvents."),
        (b'{"a": "\\"traceEvents\\": ["}', "bad.json is JSON but no trace: it has no list traceEvents."),
        (b'{"schemaVersion": 1, "dev', "bad.json is cut off before its first event."),
        (b'{"traceEvents": []}', "bad.json holds no events."),
        (b'{"traceEvents": [', "bad.json is cut off before its first event."),
        (b"[]", "bad.json holds no events."),
        (b"[1, 2, 3]", "bad.json holds no events."),
        (gzip.compress(b"", mtime=0), "bad.json is empty."),
        (
            gzip.compress(b"hello", mtime=0)[:12],
            "bad.json is cut off or damaged: nothing could be read of it.",
        ),
        (gzip.compress(b'{"a": 1}', mtime=0), "bad.json is JSON but no trace: it has no list traceEvents."),
    ],
)
def test_no_trace(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        read(path)
    assert raised.value.args[0] == sentence
    assert "torch.profiler" in raised.value.hint


def test_no_file_no_folder_no_permission(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"There is no file .*gone\.json"):
        read(tmp_path / "gone.json")
    with pytest.raises(TraceError, match="holds no trace files"):
        read(tmp_path)
    (tmp_path / "rank0.json").write_text("no")
    with pytest.raises(TraceError, match=r"rank0\.json is not JSON"):
        read(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.json", two_steps())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TraceError, match=r"a\.json cannot be read: Permission denied"):
        read(path)


# -- cut off ---------------------------------------------------------------------------------------


def long_trace(steps: int = 40) -> str:
    events = [
        e
        for i in range(steps)
        for e in (step(i, 100 * i, 100), kernel(100 * i + 10, 60), launch(100 * i + 5))
    ]
    return text(events, **rank_header(0, 1))


@pytest.mark.parametrize("packed", [False, True], ids=["json", "gzip"])
def test_cut_off(tmp_path: Path, packed: bool) -> None:
    whole = long_trace().encode()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(whole)[:-200] if packed else whole[: len(whole) // 2])
    trace = read(path)
    assert not trace.complete
    assert trace.rank == 0
    assert "cut.json is cut off" in trace.notes[0]
    found = breakdown(trace)
    assert 5 < found.steps < 40
    assert found.table.part_s(Part.COMPUTE) / found.table.total_s == pytest.approx(0.6)
    assert set(found.table.missing) == {Part.INPUT, Part.HOST_GAP}
    assert "cut.json is cut off" in found.notes[0]


def test_damaged_in_the_middle_of_gzip(tmp_path: Path) -> None:
    packed = bytearray((TRACES / "ddp_a100_rank3.json.gz").read_bytes())
    packed[len(packed) // 2 : len(packed) // 2 + 8] = b"\xff" * 8
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(packed)
    trace = read(path)
    assert not trace.complete
    assert trace.events > 1000


def test_cut_off_before_the_gpu_ops(tmp_path: Path) -> None:
    host_first = text([step(0, 0, 100), launch(5), *(kernel(10 * i, 5) for i in range(1, 9))], **gpu_header())
    path = tmp_path / "cut.json"
    path.write_text(host_first[: host_first.index('"kernel"')])
    with pytest.raises(TraceError, match=r"cut\.json shows no work of the device: the file is cut off"):
        breakdown(read(path))


def test_only_the_end_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(two_steps())[:-1])  # Chrome's own tracer leaves the bracket away
    trace = read(path)
    assert len(trace.ops) == 8
    assert not trace.complete


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 4000), block=st.sampled_from([64, 1000, 1 << 20]), bare=st.booleans())
def test_a_cut_anywhere_loses_the_events_behind_it_alone(cut: int, block: int, bare: bool) -> None:
    events = two_steps()
    whole = json.dumps(events) if bare else text(events, other=[{"a": 1}, {"b": 2}])
    cut = min(cut, len(whole) - 1)
    reader = TraceEvents(io.BytesIO(whole[:cut].encode()).read, "x", block)
    try:
        found = [event.name for some in reader for event in some]
    except TraceError:
        assert cut < whole.index('"ph"')
        return
    assert reader.cut_off
    assert found == [event["name"] for event in events[: len(found)]]
    ends = [i + 1 for i, c in enumerate(whole) if c == "}"]
    assert len(found) >= sum(e <= cut for e in ends) // 2 - 3  # two braces per event, few in the header


# -- broken events ---------------------------------------------------------------------------------


def test_one_broken_event_costs_one_event(tmp_path: Path) -> None:
    events = [kernel(10 * i, 5, name=f"k{i}") for i in range(20000)]
    whole = text(events)
    broken = whole.replace('"name": "k12345"', '"name": "k12345').replace('"name": "k3"', '"name" "k3"')
    path = tmp_path / "broken.json"
    path.write_text(broken)
    trace = read(path)
    assert trace.complete
    assert len(trace.ops) == 19998
    assert trace.notes == ("broken.json: 2 of 20000 events could not be read.",)


def test_a_broken_event_in_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text([*two_steps(), kernel(0, 1, "zzz"), kernel(1, 1)]).replace('"zzz"', '"z"z"'))
    trace = read(path)
    assert len(trace.ops) == 9
    assert "1 of" in trace.notes[0]


def test_times_that_cannot_be(tmp_path: Path) -> None:
    odd = [
        kernel(0, -5),
        kernel(0, 1.8446744073709552e16),
        kernel(10**30, 5),
        {**kernel(0, 5), "dur": None},
        {k: v for k, v in kernel(0, 5).items() if k != "ts"},
    ]
    trace = read(write(tmp_path / "a.json", [*two_steps(), *odd]))
    assert len(trace.ops) == 8
    assert trace.notes == (
        "a.json: 2 of 21 events have no time or duration.",
        "a.json: 3 of 21 events have a negative or impossible duration.",
    )


def test_events_out_of_order(tmp_path: Path) -> None:
    events = two_steps()
    random.Random(1).shuffle(events)
    shuffled = breakdown(read(write(tmp_path / "a.json", events))).table.seconds
    assert shuffled == pytest.approx(breakdown(read(write(tmp_path / "b.json", two_steps()))).table.seconds)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_a_sentence_or_events(content: bytes) -> None:
    for whole in (content, b'{"traceEvents": [' + content, b'[{"ph": "X"},' + content + b"]"):
        reader = TraceEvents(io.BytesIO(whole).read, "x", 100)
        with suppress(TraceError):
            for _ in reader:
                pass


def test_deep_nesting(tmp_path: Path) -> None:
    deep = "[" * 20000 + "]" * 20000
    path = tmp_path / "deep.json"
    path.write_text(text([kernel(0, 5), kernel(5, 5, x="DEEP")]).replace('"DEEP"', deep))
    trace = read(path)
    assert len(trace.ops) == 1
    assert "1 of 2 events could not be read" in trace.notes[0]


# -- archives --------------------------------------------------------------------------------------


def test_an_archive_cut_off_gives_the_ranks_before_the_cut(tmp_path: Path) -> None:
    whole = (TRACES / "dlrm_8ranks_kineto.tar.gz").read_bytes()
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole[: len(whole) // 2])
    found = read_traces([path])
    assert 2 <= len(found.ranks) < 8
    assert [trace.complete for trace in found.ranks].count(False) <= 1
    assert any("The archive cut.tar.gz is cut off" in note for note in found.notes)


def test_an_archive_without_traces(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("hello")
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(tmp_path / "readme.md", "readme.md")
    with pytest.raises(TraceError, match=r"The archive a\.tar holds no trace files"):
        read_traces([path])


def test_a_link_that_leads_nowhere_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing.json")
    whole = Path(__file__).parents[1] / "data" / "traces" / "mi250_minitoy.json.gz"
    (tmp_path / "a.json.gz").write_bytes(whole.read_bytes())
    assert len(read_traces([tmp_path]).ranks) == 1
