"""The ledger's report as text, HTML, picture, table and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from jupyter_gpuprof.analysis.ledger_report import report
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.ledger import STATES, LedgerReport, LedgerSum
from jupyter_gpuprof.views.ledger_figure import ledger_figure, ledger_page
from jupyter_gpuprof.views.ledger_html import days_svg, ledger_html
from jupyter_gpuprof.views.ledger_text import ledger_csv, ledger_json, ledger_text


def hours(key: str, day: str = "2026-12-01", **states: float) -> list[LedgerSum]:
    return [LedgerSum(key, day, state, "util_nvml", h * 3600, int(h)) for state, h in states.items()]


def seed(price: object = 2.0, **more: float) -> LedgerReport:
    """8 devices for a day at 20 %, most of the rest lost in the three places."""
    sums = [
        *hours("train.ipynb", busy=30, input_stall=50, host_idle=20),
        *hours("old.ipynb", "2026-12-02", busy=8.4, held_idle=20, orphan=10),
        *hours("", "2026-12-02", reserved_idle=53.6, **more),
    ]
    options = {} if price is None else {"price": price}
    return report(sums, "notebook", devices=8, **options)


def test_the_text_has_the_numbers():
    text = ledger_text(seed())
    assert "GPU-hours, 2026-12-01 to 2026-12-02, 8 devices" in text
    assert "38.4 of 192.0 allocated GPU-hours were busy: 20.0 %." in text
    assert "8 devices at 20 % do the work of 1.6; at 60 % the same work fits on 3" in text
    assert "Stalled on input: 50.0 GPU-hours, which cost 100.00" in text
    assert "Reserved for nothing: 53.6 GPU-hours, which cost 107.20" in text
    assert "Held by what is finished or crashed: 30.0 GPU-hours, which cost 60.00" in text
    assert "a busy GPU-hour costs 10.00" in text
    (train,) = [line for line in text.splitlines() if line.startswith("  train.ipynb")]
    assert train.split() == ["train.ipynb", "100.0", "30.0", "30.0", "%", "50.0", "20.0", "0.0", "0.0", "0.0"]
    assert "(nobody known)" in text


def test_without_a_price_there_is_no_money():
    text = ledger_text(seed(None))
    assert "cost" not in text
    assert "Stalled on input: 50.0 GPU-hours" in text


def test_what_was_hardly_seen_is_an_interval():
    text = " ".join(ledger_text(seed(unknown=64)).split())
    assert "38.4 of 192.0 allocated GPU-hours were busy" in text
    assert "nobody looked for another 64.0" in text
    assert "20.0 % of what was seen, between 15.0 and 40.0 % of all" in text
    assert "75.0 % of the allocated time" in text
    assert "the same work fits" not in text


@pytest.mark.parametrize("width", [20, 60, 80, 100, 200])
def test_no_line_is_too_wide(width: int):
    assert max(map(len, ledger_text(seed(unknown=10), width).splitlines())) <= max(width, 60)


def test_an_empty_ledger_says_so():
    empty = report([], "day", devices=0)
    assert ledger_text(empty) == "The ledger is empty.\n"
    assert "The ledger is empty." in ledger_html(empty)
    assert len(ledger_csv(empty).splitlines()) == 1
    with pytest.raises(UsageError):
        ledger_figure(empty)


def test_the_table_for_programs_is_in_seconds():
    rows = list(csv.DictReader(io.StringIO(ledger_csv(seed(unknown=64)))))
    assert [row["notebook"] for row in rows] == ["", "train.ipynb", "old.ipynb"]
    train = rows[1]
    assert float(train["busy_seconds"]) == 30 * 3600
    assert float(train["busy_ratio"]) == pytest.approx(0.3)
    assert sum(float(train[f"{state}_seconds"]) for state in STATES) == pytest.approx(100 * 3600)
    nobody = rows[0]
    assert float(nobody["busy_ratio_low"]) == 0.0
    assert float(nobody["busy_ratio_high"]) == pytest.approx(64 / 117.6, abs=1e-6)


def test_json_keeps_what_is_missing():
    data = json.loads(ledger_json(seed(None)))
    assert data["total"]["busy_ratio"] == pytest.approx(0.2)
    assert data["price"] == {"missing": "no price was given"}
    assert data["schema_version"] == 1


def test_the_picture_is_to_scale():
    svg = ElementTree.fromstring(days_svg(seed()))
    bars = {rect.findtext("title"): float(rect.get("height")) for rect in svg.iter("rect")}
    assert bars["2026-12-01, input stall: 50.0 GPU-hours (50.0 %)"] == pytest.approx(160 * 50 / 100, abs=0.1)
    assert bars["2026-12-02, busy: 8.4 GPU-hours (9.1 %)"] == pytest.approx(160 * 8.4 / 100, abs=0.1)
    assert sum(bars.values()) == pytest.approx(160 * 1.92, abs=0.2)


def test_free_devices_leave_room_in_the_picture():
    svg = ElementTree.fromstring(days_svg(report(hours("", free=90, busy=10), "user", devices=1)))
    (bar,) = svg.iter("rect")
    assert float(bar.get("height")) == pytest.approx(16)


@pytest.mark.parametrize("days", [1, 30, 365])
def test_any_number_of_days_can_be_drawn(days: int):
    sums = [row for i in range(days) for row in hours("a", f"day {i:03d}", busy=1, unknown=1)]
    svg = ElementTree.fromstring(days_svg(report(sums, "user", devices=1)))
    assert len(list(svg.iter("rect"))) == 2 * days
    assert len([text for text in svg.iter("text") if text.text.startswith("day")]) <= 8
    assert all(float(rect.get("x")) + float(rect.get("width")) <= 812.5 for rect in svg.iter("rect"))


def test_the_html_holds_no_foreign_markup_and_no_script():
    sums = hours("<script>alert(1)</script>", busy=1) + hours("a&b.ipynb", held_idle=1)
    page = ledger_html(report(sums, "notebook", devices=1))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    ElementTree.fromstring(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))


def test_the_html_has_the_numbers():
    page = ledger_html(seed())
    for words in (
        "20.0 %",
        "38.4 of 192.0 allocated",
        "fits on 3",
        "107.20",
        "train.ipynb",
        "Reserved for nothing",
    ):
        assert words in page


def test_the_figure_stacks_the_states():
    pytest.importorskip("bokeh")
    plot = ledger_figure(seed())
    names = [renderer.name for renderer in plot.renderers]
    assert names == ["busy", "input_stall", "host_idle", "held_idle", "orphan", "reserved_idle"]
    data = plot.renderers[0].data_source.data
    assert list(data["busy"]) == [pytest.approx(30), pytest.approx(8.4)]
    page = ledger_page(seed())
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=", page)


def test_a_ratio_that_nobody_knows_is_said_so():
    made = report(hours("", free=5), "user", devices=1)
    assert "not known: no second was allocated" in ledger_text(made)
    assert "n/a" in ledger_html(made)
