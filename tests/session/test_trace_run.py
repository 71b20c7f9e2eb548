"""Stored traces to runs: the labels of the real files, and what a person sees of broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jupyter_gpuprof import Run, load_run
from jupyter_gpuprof.errors import TraceError
from jupyter_gpuprof.session.trace import trace_run
from jupyter_gpuprof.views.html import run_page
from jupyter_gpuprof.views.text import run_text

TRACES = Path(__file__).parents[1] / "data" / "traces"
HOST, COMM = "host-bound", "communication-bound"


@pytest.mark.parametrize(
    ("file", "label", "strength", "shares"),
    [
        # The right numbers of the data's README, in % of the window.
        ("resnet50_workers0.pt.trace.json.gz", "input-bound", "strong",
         {"exposed_input": 33.89, "device_compute": 54.89, "exposed_communication": 0}),
        ("resnet50_workers4.pt.trace.json.gz", HOST, None,
         {"exposed_input": 0.85, "device_compute": 70.06, "host_gap": 27.6 - 0.85}),
        ("ddp_a100_rank3.json.gz", COMM, None,
         {"exposed_communication": 18.90, "exposed_input": 0.09, "device_compute": 60.48}),
    ],
)  # fmt: skip
def test_labels_and_shares_of_real_traces(
    file: str, label: str, strength: str | None, shares: dict[str, float]
) -> None:
    run = trace_run([TRACES / file])
    assert run.verdict.label == label
    assert strength is None or run.verdict.strength == strength
    present = run.shares.present()
    for name, percent in shares.items():
        assert 100 * present[name].value == pytest.approx(percent, abs=0.1), name
    assert sum(share.value for share in present.values()) == pytest.approx(1.0, abs=1e-3)
    assert run.source == "trace"
    assert any("steps were counted" in doubt for doubt in run.verdict.doubts)
    assert load_run("last") == run
    assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_the_dlrm_job_is_host_bound_with_communication_behind_it_and_rank_7_late() -> None:
    run = trace_run([TRACES / "dlrm_8ranks_kineto.tar.gz"])
    assert (run.verdict.label, run.verdict.also) == (HOST, (COMM,))
    assert run.ranks is not None
    assert run.ranks.late_rank == 7
    both = {True: f"{COMM}, also {HOST}", False: f"{HOST}, also {COMM}"}
    assert [row.label for row in run.ranks.rows] == [both[rank in (1, 3)] for rank in range(7)] + [HOST]
    exposed = [100 * float(row.exposed_communication_ratio) for row in run.ranks.rows]
    assert exposed == pytest.approx([38.31, 55.55, 24.71, 48.93, 36.43, 34.90, 25.12, 12.63], abs=0.1)
    gaps = [100 * float(row.host_gap_ratio) for row in run.ranks.rows]
    assert gaps == pytest.approx([46.8, 33.4, 57.1, 38.2, 51.3, 53.1, 56.8, 69.5], abs=0.1)
    assert any("Rank 7 is late" in sentence for sentence in run.ranks.sentences)
    titles = [remedy.title for remedy in run.remedies]
    assert any("rank 7" in title for title in titles)
    # Nearly all of the communication is waiting for rank 7: fewer devices would not give it back.
    assert not any("Fewer devices" in title for title in titles)
    assert not any("host-bound" in near for near in run.verdict.near)


def test_two_gloo_ranks_of_which_one_sleeps_before_each_all_reduce() -> None:
    run = trace_run([TRACES / "gloo_cpu_2ranks.tar.gz"])
    assert run.ranks is not None
    assert run.ranks.late_rank == 1
    assert [row.label for row in run.ranks.rows] == [COMM, HOST]


def test_reports_of_every_real_trace_render() -> None:
    for file in TRACES.glob("*.gz"):
        run = trace_run([file], save=False)
        assert run.verdict.label.upper() in run_text(run)
        assert "<svg" in run_page(run)


def test_a_trace_without_loader_marks_doubts_host_bound() -> None:
    run = trace_run([TRACES / "mi250_minitoy.json.gz"])
    assert run.verdict.label == HOST
    assert any("waiting for input" in doubt for doubt in run.verdict.doubts)


def test_progress_is_told_and_may_interrupt() -> None:
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace_run([TRACES / "ddp_a100_rank3.json.gz"], progress=stop)
    assert seen
    assert seen[0][1] == (TRACES / "ddp_a100_rank3.json.gz").stat().st_size


@pytest.mark.parametrize("content", [b"", b"not a trace", b'{"a": 1}', b"[]", b"\x1f\x8b\x08broken"])
def test_what_is_no_trace_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"broken\.json"):
        trace_run([path])


def test_a_cut_off_trace_gives_what_could_be_read_and_says_so(tmp_path: Path) -> None:
    whole = gzip.decompress((TRACES / "ddp_a100_rank3.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    run = trace_run([path])
    assert any("cut off" in note for note in run.notes)
    assert "exposed_input" not in run.shares.present()
