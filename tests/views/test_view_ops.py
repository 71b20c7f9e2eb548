"""Gpu ops, ranks and steps drawn out, in text, in HTML and as figures."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.records.ops import Lane, OpSpan, StepTimeline
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device, Run
from jupyter_gpuprof.views.html import run_html, run_page
from jupyter_gpuprof.views.op_words import chosen_ranks, op_name
from jupyter_gpuprof.views.text import run_text
from tests.traced_run import ADD, NCCL, RANKS, TEMPLATE, WINDOW, many

OPS_TEXT = """\
What the device did
  6 steps of rank 2 in 465 ms, by ProfilerStep marks.
  device busy 83.5 %, communication 35.2 %, input wait 0.1 %
  Window and events agree: the input wait is 0.1 % and 0.2 %.
  count    total  of busy  kind           op
     42   131 ms   33.6 %  communication  ncclDevKernel_AllReduce_Sum_f32_RING_LL
  1,750  36.2 ms    9.3 %  compute        vectorized_elementwise_kernel<4, CUDAFunctor_add<float>,…
      6  15.2 ms    3.9 %  compute        k<int>
      3   5.1 ms    1.3 %  copies         Memcpy HtoD (Pinned -> Device)
      3   4.0 ms    1.0 %  compute        volta_sgemm_128x32_nt
"""

RANKS_TEXT = """\
Ranks: 4
  - Rank 2 is starved: it waits 23.7 ms per step for its data, the others 0.3 ms.
  rank                    step  input wait   comm.  waiting    busy  host gap  verdict
     0                 76.5 ms       0.4 %  38.0 %   36.2 %  94.0 %    10.0 %  communication-bound
     1                 76.5 ms       0.4 %  38.0 %   35.9 %  93.0 %    10.0 %  communication-bound
     2  late, starved  76.5 ms      31.0 %  38.0 %    0.4 %  60.0 %    10.0 %  input-bound
     3                 76.5 ms       0.5 %  38.0 %      n/a  92.0 %    10.0 %  communication-bound
"""


def parse(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.replace("<!DOCTYPE html>", ""))


def read(html: str) -> str:
    tree = parse(html)
    for parent in list(tree.iter()):
        for child in [child for child in parent if child.tag in ("style", "title")]:
            parent.remove(child)
    return re.sub(r"\s+", " ", " ".join(tree.itertext()))


# -- text --------------------------------------------------------------------------------------------


def test_the_text_tells_ops_and_ranks(traced):
    text = run_text(traced)
    assert RANKS_TEXT in text
    assert OPS_TEXT in text


def test_without_them_nothing_is_said(make_run):
    for told in (run_text(make_run()), run_html(make_run())):
        for words in ("Ranks", "What the device did", "Timeline"):
            assert words not in told


def test_unknown_steps_are_said(make_run):
    ops = dataclasses.replace(WINDOW, steps=0, edges="first to last op")
    run = make_run(ops=ops, device=Device("cpu", "CPU", 1, Missing("host"), simulated=False))
    text = run_text(run)
    assert (
        "What the host did\n  465 ms, first to last op; where steps begin is not known.\n  busy 83.5 %"
        in text
    )


@pytest.mark.parametrize("width", [48, 60, 80, 100, 140])
def test_no_line_is_wider_than_asked(traced, width):
    text = run_text(traced, width)
    assert max(map(len, text.splitlines())) <= width
    assert "late, starved" in text
    assert "input wait" in text


def test_of_many_ranks_the_text_tells_the_extremes(make_run):
    text = run_text(make_run(ranks=many(64)))
    block = text[text.index("Ranks: 64") :].split("\n\n")[0]
    ranks = [int(line.split()[0]) for line in block.splitlines() if line.split()[0].isdecimal()]
    assert len(ranks) == 16
    assert {0, 33, 40, 57, 63} <= set(ranks)
    assert ranks == sorted(ranks)
    assert "The 16 ranks that stand out most of 64; 48 nearer to the median are left out here" in block
    assert re.search(r"33  starved +76.5 ms +20.0 %", block)


def test_few_ranks_are_all_told():
    assert chosen_ranks(RANKS, 16) == (0, 1, 2, 3)
    assert chosen_ranks(many(64), 3) == (0, 33, 57)


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (TEMPLATE, "k<int>"),
        (ADD, "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<char*, 3> >"),
        (NCCL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("enumerate(DataLoader)#_Iter.__next__", "enumerate(DataLoader)#_Iter.__next__"),
        ("aten::addmm", "aten::addmm"),
        ("gloo:all_reduce", "gloo:all_reduce"),
        ("void at::native::(anonymous namespace)::cat<float, 2>(float*, at::Meta<2>)", "cat<float, 2>"),
        (
            "void k<at::native::add(at::Iter&)::{lambda()#1}::operator()() const::{lambda()#2}>(int)",
            "k<add::{lambda()#1}::operator() const::{lambda()#2}>",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("()", "()"),
    ],
)
def test_names_without_what_makes_them_long(name, words):
    assert op_name(name, 100) == words


@given(st.text(max_size=60), st.integers(2, 40))
def test_any_name_is_cut(name, width):
    assert len(op_name(name, width)) <= width


# -- HTML --------------------------------------------------------------------------------------------


def test_the_report_tells_ops_and_ranks(traced):
    words = read(run_html(traced))
    for part in (
        "Ranks: 4 Rank 2 is starved",
        "2 late starved input-bound 76.5 ms 31.0 % 38.0 % 0.4 % 60.0 % 10.0 %",
        "1 communication-bound also host-bound",
        "6 steps of rank 2 in 465 ms, by ProfilerStep marks.",
        "83.5 % device busy 35.2 % communication n/a fetching batches 0.1 % input wait",
        "Window and events agree",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL communication 42 131 ms 33.6 %",
        "the sixth compute 3 3.0 ms <0.1 %",
        "Timeline: 6 steps drawn out",
        "Of 4 ranks these are drawn, the first and those that stand out: 0, 1, 2.",
        "Rank 2: worst step, number 14, 120 ms",
    ):
        assert part in words
    assert "title='no loader marks'" in run_html(traced)
    assert f"title='{ADD.replace('>', '&gt;').replace('<', '&lt;')}'" in run_html(traced)


def test_the_report_has_no_scripts_and_is_well_formed(traced):
    tree = parse(run_page(traced))
    assert not {"script", "link", "img", "foreignObject", "use"} & {element.tag for element in tree.iter()}
    assert not re.search(r"https?://|url\(|javascript:", run_page(traced))


def test_hostile_names_stay_words(hostile_trace, traced):
    tags = {element.tag for element in parse(run_page(traced)).iter()}
    assert {element.tag for element in parse(run_page(hostile_trace)).iter()} <= tags
    assert "<script" not in run_page(hostile_trace)
    assert all(c.isprintable() or c == "\n" for c in run_text(hostile_trace))


def test_it_is_small(make_run):
    """Eight ranks with as many bars as there can be."""
    spans = tuple(OpSpan(ADD[:120], i * 3e-4, 2e-4 + i * 1e-7, 0.7) for i in range(300))
    lanes = tuple(Lane(kind, spans) for kind in ("compute", "communication", "copies"))
    timelines = tuple(
        StepTimeline(which, rank, 1, 0.1, lanes) for rank in range(8) for which in ("typical", "worst")
    )
    ranks = dataclasses.replace(many(64), rows=many(64).rows[:8], late_rank=3, starved_rank=5)
    run = make_run(ops=dataclasses.replace(WINDOW, timelines=timelines), ranks=ranks)
    assert len(run_html(run).encode()) < 400_000


# -- records -----------------------------------------------------------------------------------------


def test_ops_and_ranks_survive_saving(traced, make_run):
    for run in (traced, make_run(ops=WINDOW), make_run(ops=Missing("another profiler was on"))):
        assert Run.from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_a_run_of_before_there_were_ops_is_read(make_run):
    values = make_run().to_dict()
    del values["ops"], values["ranks"]
    assert Run.from_dict(values) == make_run()
