"""The reports on checkpoints and spot capacity: text, HTML, the still picture and the figure."""

from __future__ import annotations

import dataclasses
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.planning import interruptions
from jupyter_gpuprof.planning.spot import decide_spot
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.spot import CheckpointCost, Range, SaveTimes, SpotFigures, StatePart
from jupyter_gpuprof.views.checkpoint_html import checkpoint_html
from jupyter_gpuprof.views.checkpoint_text import checkpoint_text
from jupyter_gpuprof.views.spot_figure import spot_figure, spot_page
from jupyter_gpuprof.views.spot_html import spot_html
from jupyter_gpuprof.views.spot_svg import spot_svg
from jupyter_gpuprof.views.spot_text import spot_text
from tests.rerun_records import DEVICE, FAKE, HOSTILE

parse = ElementTree.fromstring
FIGURES = SpotFigures(
    blocking_s=60.0,
    restart_s=300.0,
    interruptions=interruptions.observed(4, 86400.0),
    async_blocking_s=5.0,
    async_durable_s=65.0,
    notice_s=120.0,
    in_time_ratio=0.9,
    price_ratio=0.4,
    price_per_device_hour=2.0,
    work_s=144_000.0,
    today_s=Range.of(400.0),
    step_s=0.3,
    audit="passed",
)
NAMES = {
    "decision_id": "2026-12-01-ffffff",
    "run_id": "2026-12-01-bbbbbb",
    "run_name": "resnet18 on thumbnails",
    "started_at": "2026-12-01T11:00:00+00:00",
    "notes": ("the storage was busy",),
}
DECISION = decide_spot(FIGURES, **NAMES)
BOUND = decide_spot(
    SpotFigures(60.0, 300.0, interruptions.observed(0, 86400.0), price_ratio=0.4, price_per_device_hour=2.0),
    **NAMES,
)
COST = CheckpointCost(
    cost_id="2026-12-01-eeeeee",
    run_id="2026-12-01-bbbbbb",
    run_name="resnet18 on thumbnails",
    started_at="2026-12-01T11:00:00+00:00",
    device=DEVICE,
    folder="/mnt/checkpoints",
    parts=(StatePart("model", "model", 2**30), StatePart("optimizer", "optimizer", 2 * 2**30)),
    parameter_bytes=2**30,
    ways=(
        SaveTimes("torch.save", 5, 3 * 2**30, 2.0, 2.5, 3.0, 4.0, 6.0),
        SaveTimes("asynchronous", 5, 3 * 2**30, 0.5, 0.6, 4.0, 5.0, Missing("not read back")),
    ),
    sentence="a checkpoint stops training for 2 s.",
    notes=("the folder is on a disk of this machine",),
)


def words(html: str) -> str:
    tree = parse(html)
    for parent in list(tree.iter()):
        for child in [child for child in parent if child.tag in ("style", "svg")]:
            parent.remove(child)
    return re.sub(r"\s+", " ", " ".join(tree.itertext()))


def test_the_decision_says_it_all() -> None:
    for told in (" ".join(spot_text(DECISION, 140).split()), words(spot_html(DECISION))):
        for part in (
            "Spot-ready at an interval of 30 min instead of today's 6.7 min",
            "interruptions are 6 h (2.3 h to 22 h) apart",
            "saving as measured 30 min 16 min to 44 min 20 min 8.6 % (4.7 % to 17 %) 44 % (42 % to 48 %)",
            "saving in the background 10 min",
            "saving at the notice, too 1 h",
            "30 min, the best is 26 min (16 min to 51 min); 6,000 steps",
            "every 6.7 min: 7.8 % more time than the best",
            "60 % of the time lost, an interruption every 11 min",
            "80 on demand, 35 (33.6 to 38.3) on spot capacity, for 40 h of computing",
            "44 h on average, 2.1 d at most in 19 of 20 cases",
            "an emergency save is done in time in about 90 % of the cases",
            "exact 26 min, Young 27 min",
            "the resume audit passed",
            "he storage was busy",
            "2026-12-01 11:00 UTC",
        ):
            assert part in told, part


def test_a_bound_is_called_one() -> None:
    told = " ".join(spot_text(BOUND, 140).split())
    assert "Stable capacity: no resume audit" in told
    assert "none in 1 d: more than 8 h apart; planned with that bound" in told
    assert "at most 43 %" in told
    most = f"{BOUND.spot_money.high:.3g}"
    assert f"2 on demand, at most {most} on spot capacity, for an hour of computing" in told


def test_the_cost_says_it_all() -> None:
    for told in (" ".join(checkpoint_text(COST).split()), words(checkpoint_html(COST))):
        for part in (
            "A checkpoint stops training for 2 s.",
            "torch.save 2.00 s 2.50 s 3.00 s 4.00 s 6.00 s 3.0 GiB",
            "asynchronous 500 ms 600 ms 4.00 s 5.00 s n/a 3.0 GiB",
            "optimizer optimizer 2.0 GiB 2.0x",
            "together 3.0 GiB 3.0x",
            "/mnt/checkpoints",
            "he folder is on a disk",
        ):
            assert part in told, part


def test_simulated_is_said() -> None:
    fake = dataclasses.replace(COST, device=FAKE)
    assert "simulated device" in checkpoint_text(fake).lower()
    assert "simulated device" in checkpoint_html(fake).lower()


def test_foreign_words_do_no_harm() -> None:
    decision = dataclasses.replace(DECISION, run_name=HOSTILE, decision_id=HOSTILE, notes=(HOSTILE,))
    cost = dataclasses.replace(
        COST, run_name=HOSTILE, folder=HOSTILE, parts=(StatePart(HOSTILE, "model", 1),)
    )
    for told in (spot_html(decision), checkpoint_html(cost)):
        assert "<script" not in told
        assert "\u202e" not in told
    for told in (spot_text(decision), checkpoint_text(cost)):
        assert "\u202e" not in told
        assert "\x00" not in told


@settings(deadline=None, max_examples=30)
@given(st.integers(-5, 200))
def test_no_line_is_wider_than_asked(width: int) -> None:
    for told in (spot_text(DECISION, width), spot_text(BOUND, width), checkpoint_text(COST, width)):
        assert max(map(len, told.splitlines())) <= max(width, 48)


# -- the still picture -------------------------------------------------------------------------------


def test_the_picture_is_to_scale() -> None:
    svg = parse(spot_svg(DECISION))
    (box,) = svg.iter("rect")
    (use,) = svg.iter("circle")
    left, width = float(box.get("x")), float(box.get("width"))
    assert left < float(use.get("cx")) < left + width
    labels = {text.text: float(text.get("x")) for text in svg.iter("text") if text.get("text-anchor")}
    plan = DECISION.plans[0]
    # On a logarithmic axis, equal ratios are equally wide: 15 min and 1 h are four times apart.
    per_octave = (labels["1 h"] - labels["15 min"]) / 2
    assert width == pytest.approx(per_octave * math.log2(plan.flat_high_s / plan.flat_low_s), abs=0.2)
    assert {"today", "use", "within 1 %"} <= set(labels)
    assert "today 6.7 min" in svg.get("aria-label")


def test_the_doubt_is_a_band() -> None:
    titles = [title.text for title in parse(spot_svg(DECISION)).iter("title")]
    assert "what the interruptions seen so far allow" in titles


def test_nothing_to_draw() -> None:
    empty = dataclasses.replace(DECISION, curve=())
    assert spot_svg(empty) == ""
    assert parse(spot_html(empty)) is not None
    with pytest.raises(UsageError, match="could be drawn"):
        spot_figure(empty)


# -- the figure --------------------------------------------------------------------------------------


def test_the_figure_has_the_flat_region_and_the_marks() -> None:
    plot = spot_figure(DECISION)
    (box,) = (model for model in plot.center if type(model).__name__ == "BoxAnnotation")
    plan = DECISION.plans[0]
    assert (box.left, box.right) == (plan.flat_low_s, plan.flat_high_s)
    marks = next(m for m in plot.references() if type(m).__name__ == "ColumnDataSource" and "words" in m.data)
    assert {word.split()[0] for word in marks.data["words"]} == {"exact", "Young", "use", "today"}
    assert plot.xaxis[0].major_label_overrides[3600.0] == "1 h"


def test_the_page_needs_nothing_else() -> None:
    page = spot_page(DECISION)
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page)
