"""A curve as text, as a still picture and as a figure that is updated in place."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.planning.scaling import point
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.scaling import FitCurve, Scaling, ScalingFit, ScalingPoint, ScalingProgress
from jupyter_gpuprof.views.scaling_figure import ScalingFigure, figure_html, report_html
from jupyter_gpuprof.views.scaling_html import scaling_html, scaling_page
from jupyter_gpuprof.views.scaling_series import COLUMNS, curve_series
from jupyter_gpuprof.views.scaling_svg import curve_svg
from jupyter_gpuprof.views.scaling_text import scaling_line, scaling_text
from tests.scaled_curve import RUNNING, a_point, a_scaling
from tests.traced_run import HOSTILE

SKIPPED = point(16, (), outcome="skipped", why="this machine has 8 devices")
HOSTILE_SCALING = a_scaling(
    point(16, (), outcome="failed", why=HOSTILE),
    scaling_id=HOSTILE,
    run_id=HOSTILE,
    run_name=HOSTILE,
    started_at=HOSTILE,
    backend=HOSTILE,
    device_name=HOSTILE,
    rule=HOSTILE,
    worth_it_count=Missing(HOSTILE),
    notes=(HOSTILE,),
)
HOSTILE_PROGRESS = ScalingProgress(HOSTILE, 0.5, 1.0, (16, 700.0))


# -- text ------------------------------------------------------------------------------------------


def test_the_table_has_every_reading_in_a_terminal_of_100() -> None:
    lines = scaling_text(a_scaling(SKIPPED)).splitlines()
    (head,) = [i for i, line in enumerate(lines) if line.startswith("  devices  samples/s")]
    assert [line.split() for line in lines[head + 3 : head + 6]] == [
        ["4", "549", "[535,", "563]", "0.95", "12.0", "%", "2.1", "%", "3.0", "GiB", "6.10", "s", "3"],
        ["8", "820", "[800,", "840]", "0.71", "12.0", "%", "2.1", "%", "3.0", "GiB", "6.10", "s", "3"],
        ["16", *["n/a"] * 6, "skipped"],
    ]
    assert "  - 16 devices: skipped: this machine has 8 devices." in lines
    assert "8 devices bring 1.5x over 4 at twice the cost" in " ".join(lines)


@pytest.mark.parametrize("width", [20, 60, 100, 200])
@pytest.mark.parametrize(
    "scaling", [a_scaling(SKIPPED, price=2.5), HOSTILE_SCALING], ids=["usual", "hostile"]
)
def test_no_line_is_too_wide(scaling: Scaling, width: int) -> None:
    text = scaling_text(scaling, width, HOSTILE_PROGRESS)
    assert max(map(len, text.splitlines())) <= max(width, 48)
    assert "\x00" not in text
    assert "\u202e" not in text


def test_money_stands_in_the_table_where_prices_are_known() -> None:
    assert "price of a million samples" in scaling_text(a_scaling(price=2.5))
    assert "price" not in scaling_text(a_scaling())


def test_where_it_stands() -> None:
    line = scaling_line(a_scaling(finished=False), RUNNING)
    assert line == (
        "gpuprof: 40 % done: 4 devices, repeat 2, measuring, 500 samples/s so far; about 90.0 s left"
    )
    assert "not finished" in scaling_line(a_scaling(finished=False))
    assert scaling_line(a_scaling()).startswith("gpuprof: stops improving at 4: 8 devices")
    assert "NOT WORTH MORE SO FAR" in scaling_text(a_scaling(finished=False))


# -- every view ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "weak scaling (the batch per device is fixed)"),
        ({"mode": "strong"}, "strong scaling (the batch of all devices together is fixed)"),
        ({"ranks": "CPU processes"}, "CPU processes, not devices"),
        ({"ranks": "CPU processes"}, "Throughput over CPU processes"),
        ({"simulated": True}, "SIMULATED"),
    ],
)
def test_titles_and_banners(changes: dict[str, object], words: str) -> None:
    pytest.importorskip("bokeh")
    scaling = a_scaling(**changes)
    assert words in scaling_text(scaling)
    assert words in scaling_html(scaling)
    if words != "Throughput over CPU processes":
        assert words in f"{ScalingFigure(scaling).plot.title.text}"
    if "scaling" in words:
        assert words in curve_svg(scaling)


def test_a_saved_curve_looks_the_same() -> None:
    scaling = a_scaling(SKIPPED)
    again = Scaling.from_dict(json.loads(json.dumps(scaling.to_dict())))
    assert scaling_html(again) == scaling_html(scaling)


# -- the still picture -----------------------------------------------------------------------------


def picture(scaling: Scaling, progress: ScalingProgress | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(curve_svg(scaling, progress))


def test_the_picture_is_to_scale() -> None:
    dots = [
        (float(dot.get("cx")), float(dot.get("cy")))
        for dot in picture(a_scaling()).iter("circle")
        if dot.get("class") == "jp-gpuprof-dot"
    ]
    across = [b[0] - a[0] for a, b in itertools.pairwise(dots)]
    assert across == pytest.approx([across[0]] * 3, rel=1e-3)  # each is a doubling
    down = [a[1] - b[1] for a, b in itertools.pairwise(dots)]
    gains = [math.log(281 / 144), math.log(549 / 281), math.log(820 / 549)]
    assert [d / down[0] for d in down] == pytest.approx([g / gains[0] for g in gains], rel=1e-2)


def test_the_law_is_dashed_beyond_what_was_measured() -> None:
    series = curve_series(a_scaling())
    assert max(series["fit"]["count"]) == min(series["beyond"]["count"]) == 8
    assert max(series["beyond"]["count"]) == 16
    assert series["points"]["count"] == [1, 2, 4, 8]  # and no point of its own there
    classes = [path.get("class") for path in picture(a_scaling()).iter("path")]
    assert "jp-gpuprof-fit jp-gpuprof-beyond" in classes
    labels = [text.text for text in picture(a_scaling()).iter("text")]
    assert {"ideal", "Amdahl's law", "devices", "samples/s of all devices together", "71 %"} <= set(labels)


def test_what_runs_and_what_is_not_there() -> None:
    labels = [text.text for text in picture(a_scaling(SKIPPED), RUNNING).iter("text")]
    assert {"running", "skipped"} <= set(labels)
    assert curve_svg(a_scaling(points=())) == ""


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(FLOATS, st.just(Missing("?")))
POINTS = st.builds(
    ScalingPoint,
    st.integers(),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.builds(Estimate, FLOATS, FLOATS, FLOATS),
    st.just(Missing("?")),
    NUMBERS,
    st.lists(FLOATS, max_size=2).map(tuple),
    NUMBERS,
    st.sampled_from(["measured", "failed"]),
)
CURVES = st.builds(
    FitCurve,
    st.just("USL"),
    *[st.lists(FLOATS, min_size=2, max_size=4).map(tuple)] * 4,
    FLOATS,
)


@settings(deadline=None, max_examples=400)
@given(st.lists(POINTS, max_size=4).map(tuple), CURVES, st.tuples(st.integers(), FLOATS))
def test_any_curve_can_be_drawn(
    points: tuple[ScalingPoint, ...], curve: FitCurve, running: tuple[int, float]
) -> None:
    fit = ScalingFit(Missing("?"), Missing("?"), curve)
    scaling = a_scaling(points=points, fit=fit)
    progress = ScalingProgress("?", 0.5, 1.0, running)
    drawn = curve_svg(scaling, progress)
    if drawn:
        ElementTree.fromstring(drawn)
        assert not re.search(r"[ '\"](nan|-?inf)", drawn.partition(">")[2])
    assert scaling_text(scaling, progress=progress)
    json.dumps(curve_series(scaling, progress), allow_nan=False)


# -- HTML ------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_else_and_no_script() -> None:
    page = scaling_page(a_scaling(SKIPPED, price=2.0))
    assert not re.search(r"<script|<link|src=|http", page)
    assert page.count("<svg") == 1


def test_hostile_words_stay_words() -> None:
    pytest.importorskip("bokeh")
    for html in (
        scaling_html(HOSTILE_SCALING, HOSTILE_PROGRESS),
        report_html(HOSTILE_SCALING, HOSTILE_PROGRESS),
        figure_html(HOSTILE_SCALING, HOSTILE_PROGRESS),
    ):
        assert "<script>alert" not in html
        assert html.count("</script>") == html.count("<script")


# -- the figure ------------------------------------------------------------------------------------


def test_the_figure_is_updated_in_place() -> None:
    pytest.importorskip("bokeh")
    from bokeh.models import ColumnDataSource

    scaling = a_scaling(points=(a_point(1, 144.0), point(2, ())), fit=a_scaling(points=()).fit)
    drawn = ScalingFigure(scaling)
    sources = {source.name: source for source in drawn.plot.select({"type": ColumnDataSource})}
    assert set(sources) == {f"gpuprof {name}" for name in COLUMNS}
    assert sources["gpuprof points"].data["count"] == [1]
    drawn.update(a_scaling(), RUNNING)
    assert sources["gpuprof points"].data["count"] == [1, 2, 4, 8]
    assert sources["gpuprof running"].data["throughput"] == [500.0]
    assert drawn.plot.xaxis.axis_label == "devices"
    assert drawn.plot.yaxis.axis_label == "samples/s of all devices together"


def test_updates_name_the_figure_and_its_columns() -> None:
    """The report's script hands the columns of each source to the figures of this curve on the page."""
    pytest.importorskip("bokeh")
    scaling = a_scaling()
    report, drawn = report_html(scaling), figure_html(scaling)
    (latest,) = re.findall(r"curve.latest = (\{.*\});", report)
    assert json.loads(latest) == curve_series(scaling)
    (key,) = set(re.findall(r"gp[0-9a-f]{12}", report))
    assert key in drawn
    assert f"data-gpuprof-still='{key}'" in report
    for name in COLUMNS:
        assert f'"gpuprof {name}"' in drawn


def test_what_stays_in_the_notebook_is_small() -> None:
    pytest.importorskip("bokeh")
    scaling = a_scaling(SKIPPED, price=2.0)
    kept = figure_html(scaling) + report_html(scaling) + scaling_text(scaling)
    assert len(kept.encode()) < 100_000
    assert "Permission is hereby granted" not in kept
    with_library = figure_html(scaling, library=True)
    assert len(with_library) > 500_000
    assert not re.search(r"<script[^>]+src=", with_library)


def test_without_bokeh_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh.models", None)
    with pytest.raises(ImportError, match="The figure needs bokeh, which is not installed"):
        figure_html(a_scaling())
    assert "<svg" in report_html(a_scaling())
