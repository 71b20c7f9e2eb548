"""Steps drawn out: the still picture and the figures."""

from __future__ import annotations

import dataclasses
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.ops import Lane, OpSpan, StepTimeline
from jupyter_gpuprof.views.timeline import bokeh_figures, timeline_page
from jupyter_gpuprof.views.timeline_svg import timeline_svg
from tests.traced_run import WINDOW, a_timeline

parse = ElementTree.fromstring


# -- the still picture -------------------------------------------------------------------------------


def bars(svg: ElementTree.Element) -> list[tuple[str, float, float, float]]:
    """Title, left end, width and height of each bar."""
    return [
        (rect.findtext("title"), *(float(rect.get(name)) for name in ("x", "width", "height")))
        for rect in svg.iter("rect")
        if rect.find("title") is not None
    ]


def test_the_picture_is_to_scale():
    svg = parse(timeline_svg([a_timeline(), a_timeline("worst", duration_s=0.2)]))
    loader, _, whole, merged, communication, *_ = bars(svg)
    # 704 units are 0.2 s and begin at 104; bars leave 0.4 of them free.
    assert loader == ("enumerate(DataLoader)#__next__: 20.0 ms, from 0 s on", 104, 70, 14)
    assert whole[0] == "k<int>: 30.0 ms, from 20.0 ms on"
    assert merged[0].startswith("12 ops, the longest vectorized_elementwise_kernel<4, ")
    assert merged[0].endswith(": 10.0 ms of which 40 % busy, from 50.0 ms on")
    assert merged[3] == pytest.approx(14 * 0.4)
    assert communication[1] == pytest.approx(104 + 0.06 / 0.2 * 704, abs=0.1)
    ticks = [text.text for text in svg.iter("text") if text.text[-2:] == "ms" and text.text[0].isdecimal()]
    assert ticks == ["50 ms", "100 ms", "150 ms", "200 ms"]


def test_a_worst_step_far_longer_than_the_typical_has_a_scale_of_its_own():
    svg = parse(timeline_svg([a_timeline(), a_timeline("worst", duration_s=20)]))
    labels = [text.text for text in svg.iter("text")]
    assert {"20 ms", "100 ms", "5 s", "20 s"} <= set(labels)


def test_each_lane_has_its_colour_and_name():
    svg = parse(timeline_svg([a_timeline()]))
    colours = [group.get("class") for group in svg.iter("g")]
    assert colours == [
        f"jp-gpuprof-{part}"
        for part in ("exposed-input", "other", "device-compute", "exposed-communication", "copies")
    ]
    labels = [text.text for text in svg.iter("text")]
    assert labels[:3] == ["The only step, number 12, 100 ms", "loader", "optimizer"]
    assert "loader 20.0 ms" in svg.get("aria-label")


def test_too_many_bars_become_one_shape_per_lane():
    spans = tuple(OpSpan("k", i * 1e-4, 5e-5 + i * 1e-9) for i in range(1000))
    svg = parse(timeline_svg([StepTimeline("typical", 0, 1, 0.1, (Lane("compute", spans),))]))
    assert len(bars(svg)) == 700
    (specks,) = [path.get("d") for path in svg.iter("path") if path.get("class") is None]
    assert specks.count("M") == 300


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
SPANS = st.lists(st.builds(OpSpan, st.text(max_size=10), FLOATS, FLOATS, FLOATS), max_size=3).map(tuple)
LANES = st.lists(st.builds(Lane, st.text(max_size=5), SPANS), max_size=3).map(tuple)
TIMELINES = st.lists(
    st.builds(
        StepTimeline,
        st.sampled_from(["typical", "worst", "window", "?"]),
        st.integers(0, 3),
        st.integers(),
        FLOATS,
        LANES,
    ),
    max_size=4,
)


@settings(deadline=None)
@given(TIMELINES)
def test_any_timeline_can_be_drawn(timelines):
    parse(timeline_svg(timelines))


# -- figures -----------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else(traced):
    pytest.importorskip("bokeh")
    page = timeline_page(traced)
    assert page.startswith("<!DOCTYPE html>\n<html lang='en'>")
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=", page)
    assert "k&lt;int&gt;" in page.split("</main>")[1]


def test_figures_per_rank_share_their_time(traced):
    pytest.importorskip("bokeh")
    from bokeh.models import HoverTool, Legend
    from bokeh.plotting import figure

    plots = list(bokeh_figures(traced).select({"type": figure}))
    assert len(plots) == 4
    assert len({plot.x_range.id for plot in plots}) == 1
    assert plots[0].x_range.end == pytest.approx(120)
    assert all(plot.select_one({"type": HoverTool}) for plot in plots)
    legends = [legend for plot in plots for legend in plot.select({"type": Legend})]
    assert [item.label.value for item in legends[0].items] == [
        "loader",
        "optimizer",
        "compute",
        "communication",
        "copies",
    ]
    (compute,) = [renderer for renderer in plots[0].renderers if renderer.name == "compute"]
    assert compute.data_source.data["name"][0] == "k<int>"
    assert compute.data_source.data["took"][:2] == ["30.0 ms", "10.0 ms"]


def test_a_page_of_hostile_names_runs_no_script_of_theirs(hostile_trace):
    pytest.importorskip("bokeh")
    page = timeline_page(hostile_trace)
    assert "<script>alert" not in page
    assert page.count("</script>") == page.count("<script")


def test_a_run_without_timelines_says_why(make_run):
    with pytest.raises(UsageError, match="This run has no timeline: no kernel window"):
        timeline_page(make_run())
    with pytest.raises(UsageError, match="This run has no timeline"):
        bokeh_figures(make_run(ops=dataclasses.replace(WINDOW, timelines=())))


def test_without_bokeh_one_sentence(traced, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh.layouts", None)
    with pytest.raises(ImportError, match="The timeline needs bokeh, which is not installed"):
        timeline_page(traced)
