from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.records.causes import HOST_CAUSES, INPUT_CAUSES, Causes, CauseShare, HotLine
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import NO_SAMPLES, Device, Remedy, Run
from jupyter_gpuprof.views.html import run_html, run_page
from jupyter_gpuprof.views.text import run_text
from tests.traced_run import HOSTILE
from tests.views.test_view_html import parse, words

CODE = "Image.open(path).convert('RGB')"
INPUT = Causes(
    of="input",
    samples=412,
    parts=(
        CauseShare("decoding", Estimate(0.62, 0.57, 0.67)),
        CauseShare("reading", Estimate(0.31, 0.26, 0.36)),
        CauseShare("handing over", Estimate(0.07, 0.05, 0.1)),
    ),
    lines=(
        HotLine("cell [3], line 7", CODE, "decoding", Estimate(0.62, 0.57, 0.67)),
        HotLine("data.py:21", "open(path, 'rb').read()", "reading", Estimate(0.31, 0.26, 0.36)),
    ),
    batch_s=0.031,
    cpu_ratio=0.95,
    how="sampling 4 loader workers every 10 ms",
    hints=("one worker could not be read.",),
)
HOST = Causes(
    of="host",
    samples=90,
    parts=(CauseShare("launching", Estimate(1.0, 0.96, 1.0)),),
    batch_s=0.0101,
    how="sampling the training thread outside of fetching every 10 ms",
    hints=("The shares are rough: they rest on 90 samples.",),
)
LEVERS = (
    Lever("autocast", "mixed precision (autocast)", "off", "no autocast seen", "products dominate"),
    Lever("tf32", "TF32", "on", "allowed for products", "products stay in float32"),
)
TEXT = """\
What making a batch consists of
  decoding      62.0 %  [57.0, 67.0]  ██████████████████████████
  reading       31.0 %  [26.0, 36.0]  █████████████
  handing over   7.0 %   [5.0, 10.0]  ███
  31.0 ms of work in a batch, 95 % of it on a processor; 412 samples, by
  sampling 4 loader workers every 10 ms.
  The lines that cost most
    62.0 %  decoding  cell [3], line 7  Image.open(path).convert('RGB')
    31.0 %  reading   data.py:21        open(path, 'rb').read()
  - One worker could not be read.
"""


@pytest.fixture(scope="session")
def caused(make_run) -> Run:
    """A run with all there is of causes."""
    remedy = Remedy("w", "Load in 8 worker processes", 0.005, "measured cost", "num_workers=8")
    return make_run(
        input_causes=INPUT,
        host_causes=HOST,
        levers=LEVERS,
        remedies=(remedy, Remedy("x", "Other", 0.006, "how")),
        no_help=("Pinned memory: no, copies take 0.1 ms of a step",),
    )


def test_the_text_tells_causes_lines_and_hints(caused):
    text = run_text(caused, 80)
    assert TEXT in text
    assert "What the host does\n  launching  100.0 %" in text
    assert "10.1 ms of the training thread per step; 90 samples, by" in text
    assert "     %gpuprof try num_workers=8\n" in text
    assert text.count("%gpuprof try") == 1
    assert "What would not help\n  - Pinned memory: no, copies take 0.1 ms of a step\n" in text
    assert "Levers: on: TF32; off: mixed precision (autocast)\n" in text


def test_the_text_tells_levers_whole_where_they_come_first(caused):
    verdict = dataclasses.replace(caused.verdict, label="correctly sized")
    text = run_text(dataclasses.replace(caused, verdict=verdict), 80)
    assert (
        "  mixed precision (autocast): off (no autocast seen)\n      helps when products dominate\n" in text
    )
    assert "  TF32: on (allowed for products)\n" in text
    assert "products stay" not in text


def test_the_html_tells_the_same(caused):
    read = words(parse(run_html(caused)))
    for part in (
        "What making a batch consists of Activity Share 95 % interval",
        "decoding 62.0 % [57.0, 67.0]",
        "31.0 ms of work in a batch, 95 % of it on a processor; 412 samples, by sampling 4 loader workers",
        f"62.0 % [57.0, 67.0] decoding cell [3], line 7 {CODE}",
        "One worker could not be read.",
        "What the host does Activity",
        "Measured cost %gpuprof try num_workers=8",
        "What would not help Pinned memory: no, copies take 0.1 ms of a step",
        "mixed precision (autocast) off no autocast seen products dominate",
    ):
        assert part in read
    codes = [words(code).strip() for code in parse(run_html(caused)).iter("code")]
    assert "%gpuprof try num_workers=8" in codes
    assert CODE in codes


def test_what_the_verdict_is_not_about_is_folded_away(caused, make_run):
    def folded(run: Run) -> list[str]:
        return [words(summary).strip() for summary in parse(run_html(run)).iter("summary")]

    assert "What making a batch consists of" not in folded(caused)  # input-bound, also host-bound
    other = dataclasses.replace(caused.verdict, label="correctly sized", also=())
    sized = dataclasses.replace(caused, verdict=other)
    assert {"What making a batch consists of", "What the host does"} <= set(folded(sized))
    assert "Levers" in folded(caused)
    assert "Levers" not in folded(sized)


def test_why_there_are_no_causes_is_told_where_it_matters(make_run):
    few = Missing("only 12 samples of busy workers, 20 are needed: run longer")
    run = make_run(input_causes=few, host_causes=NO_SAMPLES)
    assert "What making a batch consists of\n  not measured: only 12 samples" in run_text(run)
    assert "What making a batch consists of not measured: only 12" in words(parse(run_html(run)))
    assert "What the host does" not in run_text(run)
    other = make_run(
        verdict=dataclasses.replace(run.verdict, label="compute-bound", also=()), input_causes=few
    )
    assert "only 12 samples" not in run_text(other)
    assert "only 12 samples" not in run_html(other)


def test_on_a_cpu_launching_is_torchs_own_work(caused):
    run = dataclasses.replace(caused, device=Device("cpu", "cpu", 2, Missing("main memory"), False))
    assert "torch's own work  100.0 %" in run_text(run)
    assert "torch's own work 100.0 %" in words(parse(run_html(run)))


def test_without_any_nothing_is_said(make_run):
    for shown in (run_text(make_run()), words(parse(run_html(make_run())))):
        for head in ("consists of", "What the host does", "would not help", "Levers", "%gpuprof try"):
            assert head not in shown


def test_hostile_words_stay_words(caused):
    line = HotLine(HOSTILE, HOSTILE, HOSTILE, Estimate(1.0, 0.9, 1.0))
    part = CauseShare(HOSTILE, Estimate(1.0, 0.9, 1.0))
    causes = Causes(
        "input", 9, (part,), (line,), Missing(HOSTILE), Missing(HOSTILE), how=HOSTILE, hints=(HOSTILE,)
    )
    run = dataclasses.replace(
        caused,
        input_causes=causes,
        host_causes=dataclasses.replace(causes, of="host"),
        levers=(Lever(HOSTILE, HOSTILE, "off", HOSTILE, HOSTILE),),
        remedies=(Remedy(HOSTILE, HOSTILE, 0.1, HOSTILE, HOSTILE),),
        no_help=(HOSTILE,),
    )
    tags = {element.tag for element in parse(run_page(caused)).iter()}
    assert {element.tag for element in parse(run_page(run)).iter()} <= tags
    assert "<script" not in run_page(run)
    assert all(c.isprintable() or c == "\n" for c in run_text(run))


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
ABSURD = st.builds(Estimate, FLOATS, FLOATS, FLOATS)
SANE = st.floats(0, 1).map(lambda x: Estimate(x, x * 0.9, min(x * 1.1, 1.0)))
NUMBERS = st.builds(Missing, st.text(max_size=9)) | FLOATS
TEXTS = st.text(max_size=60)


def causes_of(share: st.SearchStrategy[Estimate], name: st.SearchStrategy[str]) -> st.SearchStrategy[Causes]:
    return st.builds(
        Causes,
        of=st.sampled_from(["input", "host"]),
        samples=st.integers(0, 10**9),
        parts=st.lists(st.builds(CauseShare, name, share), max_size=4).map(tuple),
        lines=st.lists(st.builds(HotLine, TEXTS, TEXTS, TEXTS, share), max_size=3).map(tuple),
        batch_s=NUMBERS,
        cpu_ratio=NUMBERS,
        how=TEXTS,
        hints=st.lists(TEXTS, max_size=2).map(tuple),
    )


@settings(deadline=None, max_examples=30)
@given(causes=causes_of(ABSURD, TEXTS), text=TEXTS)
def test_any_causes_can_be_shown(make_run, causes, text):
    levers = (Lever(text, text, "off", text, text),)
    run = make_run(input_causes=causes, host_causes=causes, no_help=(text,), levers=levers)
    parse(run_page(run))
    assert run_text(run)


@settings(deadline=None, max_examples=50)
@given(
    causes=causes_of(SANE, st.sampled_from(INPUT_CAUSES + HOST_CAUSES)),
    text=TEXTS,
    width=st.integers(-5, 160),
)
def test_no_line_is_wider_than_asked(make_run, causes, text, width):
    levers = (Lever(text, text, "off", text, text),)
    run = make_run(input_causes=causes, host_causes=causes, no_help=(text,), levers=levers)
    assert max(map(len, run_text(run, width).splitlines())) <= max(width, 48)


def test_causes_survive_saving_and_older_runs_are_read(caused):
    assert Run.from_dict(json.loads(json.dumps(caused.to_dict()))) == caused
    values = caused.to_dict()
    for name in ("input_causes", "host_causes", "levers", "no_help"):
        del values[name]
    read = Run.from_dict(values)
    assert (read.input_causes, read.levers, read.no_help) == (NO_SAMPLES, (), ())


def test_there_are_no_scripts(caused):
    assert not re.search(r"<script|javascript:|\son\w+=", run_page(caused))
