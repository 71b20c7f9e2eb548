"""The report over batch sizes: text, HTML, the still picture and the figures."""

from __future__ import annotations

import dataclasses
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.batch import BatchPoint, MemoryFit
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.views.batch_figure import batch_figure, batch_page
from jupyter_gpuprof.views.batch_html import batch_html
from jupyter_gpuprof.views.batch_svg import batch_svg
from jupyter_gpuprof.views.batch_text import batch_text
from jupyter_gpuprof.views.batch_words import fit_curve
from tests.rerun_records import DEVICE, FAKE, GIB, HOSTILE, a_curve, a_failure, a_point

parse = ElementTree.fromstring
CURVE = a_curve()
#: A whole GiB and a sixteenth per sample; 72 of the 80 GiB are full at 1136.
EXACT = a_curve((a_point(32, 1000, 3.0), a_point(64, 2000, 5.0), a_failure(4096)))
ON_CPU = a_curve(
    tuple(a_point(batch, 100.0 * batch, Missing("a CPU has none")) for batch in (8, 16)),
    device=dataclasses.replace(DEVICE, kind="cpu", name="CPU", memory_bytes=Missing("a CPU has none")),
)


def words(html: str) -> str:
    tree = parse(html)
    for parent in list(tree.iter()):
        for child in [child for child in parent if child.tag in ("style", "svg")]:
            parent.remove(child)
    return re.sub(r"\s+", " ", " ".join(tree.itertext()))


def titles(svg: ElementTree.Element) -> list[str]:
    return [title.text for title in svg.iter("title")]


# -- text and HTML -----------------------------------------------------------------------------------


def test_the_report_says_it_all():
    for told in (" ".join(batch_text(CURVE).split()), words(batch_html(CURVE))):
        for part in (
            "Throughput stops growing at a batch of 128",
            "extrapolated beyond the 256 that ran (2,048 ran out of memory)",
            "batch samples/s 95 % interval step peak memory outcome",
            "128 5,300 5,247 to 5,353 24.2 ms 9.2 GiB (12 %) measured",
            "out of memory",
            "Memory 1.1 GiB + 64.3 MiB per sample, the worst of 4 sizes off by",
            "in 90 % of 80.0 GiB, EXTRAPOLATED by the fit: at most 256 was measured",
            "throughput does not grow beyond 128",
            "2,048: out of memory. It asked for 2 GiB more.",
            "he machine was busy",
            "2026-12-01 11:00 UTC",
            "resnet18 on thumbnails",
        ):
            assert part in told, part


def test_a_line_through_two_sizes_is_called_so():
    assert "1.0 GiB + 64.0 MiB per sample, a line through two sizes" in batch_text(EXACT)


def test_a_fit_that_falls_has_its_sign():
    falling = dataclasses.replace(CURVE, memory=MemoryFit(2.0 * GIB, -1024.0, 0.01))
    assert "2.0 GiB - 1.0 KiB per sample" in batch_text(falling)


def test_measured_and_between_are_no_extrapolations():
    assert re.search(r"Largest batch +256 .*, measured$", batch_text(
        dataclasses.replace(CURVE, largest_batch=256)), re.MULTILINE)  # fmt: skip
    assert "200 in 90 % of 80.0 GiB, by the fit between measured sizes" in batch_text(
        dataclasses.replace(CURVE, largest_batch=200)
    )


def test_without_memory_the_reasons_are_said():
    text = " ".join(batch_text(ON_CPU).split())
    assert "Memory no fit: a CPU has none" in text
    assert "Largest batch not known: the memory of the device is not known (a CPU has none)" in text
    assert "Plateau not found: throughput still grows" in text


@pytest.mark.parametrize("paint", [batch_text, batch_html, batch_page], ids=["text", "html", "figure"])
def test_simulated_is_said(paint):
    assert "simulated device" in paint(a_curve(device=FAKE)).lower()
    assert "simulated device" not in paint(CURVE).lower()


@settings(deadline=None, max_examples=30)
@given(st.integers(-5, 200))
def test_no_line_is_wider_than_asked(width):
    assert max(map(len, batch_text(CURVE, width).splitlines())) <= max(width, 48)


# -- the still picture -------------------------------------------------------------------------------


def test_the_picture_is_to_scale():
    svg = parse(batch_svg(EXACT))
    squares = [tuple(float(rect.get(name)) + 4 for name in ("x", "y")) for rect in svg.iter("rect")]
    circles = [tuple(float(c.get(name)) for name in ("cx", "cy")) for c in svg.iter("circle")]
    assert [x for x, _ in squares] == [x for x, _ in circles]
    # A doubling is a seventh of the way from 32 to 4096.
    labels = {text.text: text for text in svg.iter("text")}
    first, last = (float(labels[size].get("x")) for size in ("32", "4,096"))
    assert circles[1][0] - circles[0][0] == pytest.approx((last - first) / 7, abs=0.1)
    # 1000 and 2000 of 1.08 * 2020; 3 and 5 of 1.2 * 80 GiB; each panel is 150 high.
    assert circles[0][1] - circles[1][1] == pytest.approx(150 * 1000 / (1.08 * 2020), abs=0.1)
    assert squares[0][1] - squares[1][1] == pytest.approx(150 * 2 / 96, abs=0.1)


def test_running_out_of_memory_is_a_shape_and_words():
    svg = parse(batch_svg(EXACT))
    assert "4,096: out of memory" in titles(svg)
    assert "out of memory" in [text.text for text in svg.iter("text")]
    assert "4,096: out of memory" in svg.get("aria-label")
    failed = parse(batch_svg(a_curve((a_point(32, 1000, 3.0), a_failure(64, "failed")))))
    assert "failed" in [text.text for text in failed.iter("text")]
    assert "64: failed" not in titles(failed)  # nothing says that it was above the device's memory


def test_what_is_drawn_has_words():
    labels = [text.text for text in parse(batch_svg(CURVE)).iter("text")]
    for told in ("stops growing here", "the device's 80.0 GiB", "90 % of it", "batch size"):
        assert told in labels
    assert any(label.endswith(" fits") for label in labels)
    assert "the fit, extrapolated" in titles(parse(batch_svg(CURVE)))


def test_the_fit_ends_where_the_share_is_full():
    near = a_curve((a_point(32, 1000, 3.0), a_point(512, 2000, 33.0)))
    inner, outer = fit_curve(near)
    assert inner[0] == (32, pytest.approx(3 * GIB))
    assert outer[-1] == (pytest.approx(1136), pytest.approx(72 * GIB))
    # Not farther than four times what was tried, so that what was measured stays in sight.
    far = a_curve((a_point(32, 1000, 3.0), a_point(64, 2000, 5.0)))
    assert fit_curve(far)[1][-1][0] == pytest.approx(256)


def test_without_memory_one_panel_is_left():
    svg = parse(batch_svg(ON_CPU))
    assert not list(svg.iter("rect"))
    assert len(list(svg.iter("circle"))) == 2


def test_nothing_to_draw():
    lost = a_curve((a_failure(8), a_failure(16)))
    assert batch_svg(lost) == ""
    assert "no batch size could be measured" in words(batch_html(lost))
    with pytest.raises(UsageError, match="could be drawn"):
        batch_figure(lost)


# -- the figures -------------------------------------------------------------------------------------


def drawn(layout: object, kind: str) -> list[object]:
    return [model for model in layout.references() if type(model).__name__ == kind]


def test_the_figures_share_the_axis_of_batch_sizes():
    layout = batch_figure(CURVE)
    plots = [plot for plot, *_ in layout.children]
    assert len(plots) == 2
    assert plots[0].x_range is plots[1].x_range
    assert plots[0].x_range.start < 32
    assert plots[0].x_range.end > 2048


def test_points_intervals_fit_and_lines_are_there():
    layout = batch_figure(CURVE)
    (bars,) = drawn(layout, "Whisker")
    assert list(bars.source.data["low"]) == pytest.approx([0.99 * rate for rate in (2650, 4400, 5300, 5400)])
    markers = {mark.marker for mark in drawn(layout, "Scatter") if isinstance(mark.marker, str)}
    assert {"circle", "square", "x", "diamond"} <= markers
    told = " ".join(label.text for label in drawn(layout, "Label"))
    for part in ("stops growing at 128", "the device's 80.0 GiB", "90 % of it", "fits"):
        assert part in told
    assert {"solid", "dashed"} <= {_dash(line) for line in drawn(layout, "Line")}
    overrides = layout.children[0][0].xaxis[0].major_label_overrides
    assert overrides[2048] == "2,048\nout of memory"


def _dash(line: object) -> str:
    return "dashed" if line.line_dash else "solid"


def test_the_page_needs_nothing_else():
    page = batch_page(CURVE)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page)
    assert "Throughput stops growing at a batch of 128" in page


def test_bokeh_missing_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh.layouts", None)
    with pytest.raises(ImportError, match=r"jupyter-gpuprof\[plot\]"):
        batch_figure(CURVE)


# -- whatever comes ----------------------------------------------------------------------------------


def hostile_curve():
    return a_curve(
        (*CURVE.points, a_failure(4096, "failed", HOSTILE)),
        curve_id=HOSTILE,
        run_id=HOSTILE,
        run_name=HOSTILE,
        started_at=HOSTILE,
        device=dataclasses.replace(DEVICE, name=HOSTILE, kind=HOSTILE),
        memory=Missing(HOSTILE),
        largest_batch=Missing(HOSTILE),
        plateau_batch=Missing(HOSTILE),
        sentence=HOSTILE,
        notes=(HOSTILE,),
    )


def test_hostile_words_stay_words():
    html = batch_html(hostile_curve())
    tree, tame = parse(html), parse(batch_html(CURVE))
    assert {element.tag for element in tree.iter()} <= {element.tag for element in tame.iter()}
    assert not re.search(r"<script|<img|javascript:|\x00|\u202e", html)
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]
    assert "<script>alert('x')</script>" in words(html)
    assert "<script>alert" not in batch_page(hostile_curve())
    assert not re.search("\x00|\u202e", batch_text(hostile_curve()))


def test_self_contained():
    assert not re.search(r"https?://|//|@import|url\(|<script|<link", batch_html(CURVE))


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
UNKNOWN = st.builds(Missing, st.text(max_size=20))
NUMBERS = st.one_of(UNKNOWN, st.integers(0, 2**60), FLOATS)
ESTIMATES = st.builds(Estimate, FLOATS, FLOATS, FLOATS)
ANY_POINT = st.builds(
    BatchPoint,
    st.integers(0, 2**40),
    st.sampled_from(["measured", "out of memory", "failed"]),
    st.one_of(UNKNOWN, ESTIMATES),
    NUMBERS,
    NUMBERS,
    st.text(max_size=20),
)


ANY_CURVE = st.builds(
    dataclasses.replace,
    st.just(CURVE),
    points=st.lists(ANY_POINT, max_size=5).map(tuple),
    memory=st.one_of(UNKNOWN, st.builds(MemoryFit, FLOATS, FLOATS, FLOATS)),
    largest_batch=NUMBERS,
    plateau_batch=NUMBERS,
    device=NUMBERS.map(lambda size: dataclasses.replace(DEVICE, memory_bytes=size)),
    sentence=st.text(max_size=20),
)


@settings(deadline=None)
@given(ANY_CURVE)
def test_any_curve_can_be_shown(curve):
    parse(batch_html(curve))
    assert batch_text(curve)


@settings(deadline=None, max_examples=20)
@given(ANY_CURVE)
def test_any_curve_can_be_a_figure(curve):
    try:
        batch_figure(curve)
    except UsageError:
        assert batch_svg(curve) == ""
