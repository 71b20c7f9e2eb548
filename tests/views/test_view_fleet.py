"""A fleet's report and a replay as text, HTML and pages: the numbers, and the shapes drawn of them."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest

from jupyter_gpuprof.planning.fleetreport import fleet_report
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, JobRecords, Refused
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, Team
from jupyter_gpuprof.records.fleetreplay import WhatIf
from jupyter_gpuprof.records.fleetreport import FleetReport, Observed
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.session.fleet.comparison import compare_policies, try_sizes
from jupyter_gpuprof.views.fleet_figure import fleet_page, what_if_page
from jupyter_gpuprof.views.fleet_html import fleet_html, replay_html
from jupyter_gpuprof.views.fleet_text import fleet_text, replay_text

#: Monday, 5 January 2026, 0:00 UTC.
MONDAY_S = 1767571200.0
HOUR_S = 3600.0
EVIL = "<script>alert(1)</script>"


def job(number: int, team: str, at_h: float, waited_h: float | None, ran_h: float, busy: float | None) -> Job:
    submit_s = MONDAY_S + at_h * HOUR_S
    start = NOT_TOLD if waited_h is None else submit_s + waited_h * HOUR_S
    ended = NOT_TOLD if waited_h is None else submit_s + (waited_h + ran_h) * HOUR_S
    return Job(
        str(number), team, "ann", 4, submit_s, start, ended, ran_h * HOUR_S,
        "pending" if waited_h is None else "completed", busy_ratio=NOT_TOLD if busy is None else busy,
    )  # fmt: skip


JOBS = (
    job(1, "vision", 0, 0, 2, 0.95),  # Monday 0:00 to 2:00
    job(2, "vision", 1, 1, 2, 0.05),  # 2:00 to 4:00
    job(3, EVIL, 2, 2, 1, 0.05),
    job(4, EVIL, 2, None, 0, None),
)
RECORDS = JobRecords(
    ("jobs.txt (sacct)",), JOBS, 6, (Refused("it ends before it starts", 2, "line 7"),),
    MONDAY_S + 10 * HOUR_S,
)  # fmt: skip


@pytest.fixture(scope="module")
def report() -> FleetReport:
    return fleet_report(RECORDS, reserved={"vision": 4, EVIL: 4}, price=2.0)


def test_the_numbers_in_words(report: FleetReport) -> None:
    text = " ".join(fleet_text(report).split())
    # 4 GPUs for 2 + 2 + 1 hours; 8 * 0.95 + 8 * 0.05 + 4 * 0.05 = 8.2 of 20.
    assert "20.0 GPU-hours allocated by 4 jobs; 41.0 % of them busy; p90 queue wait > 8 h" in text
    assert "at 2.00 an hour, a busy gpu-hour costs 4.88" in text.lower()
    assert "4 of 6 rows were read" in text
    assert "2 not used: it ends before it starts (first: line 7)" in text


class Shapes(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_html_draws_the_week_the_waits_and_the_histogram(report: FleetReport) -> None:
    text = fleet_html(report)
    shapes = Shapes(text)
    assert sum(tag == "svg" for tag, _ in shapes.tags) == 3
    assert not any(tag in ("script", "link", "img") for tag, _ in shapes.tags)
    assert EVIL not in text
    assert "alert(1)" in text  # as words
    assert text.count("class='jp-gpuprof-key ") == 3  # all, and two teams
    assert re.search(r"41\.0 %.*busy of allocated", text)


def test_week_and_histogram_are_of_the_right_hours(report: FleetReport) -> None:
    assert not isinstance(report.week, Missing)
    assert not isinstance(report.histogram, Missing)
    assert report.week[0][:6] == (4, 4, 4, 4, 4, 0)
    assert report.histogram == (12.0, 0, 0, 0, 0, 0, 0, 0, 0, 8.0)


def test_curves_go_on_to_the_longest_wait(report: FleetReport) -> None:
    curves = {curve.key: curve for curve in report.curves}
    assert curves[EVIL].time_s == (2 * HOUR_S, 8 * HOUR_S)
    assert curves[EVIL].waiting_ratio == (0.5, 0.5)
    assert curves["vision"].waiting_ratio == (0.5, 0.0)


def test_what_a_prometheus_saw_stands_out_where_the_records_tell_nothing(report: FleetReport) -> None:
    assert "41.0 %" in fleet_html(report)
    silent = fleet_report(dataclasses.replace(RECORDS, jobs=(job(1, "vision", 0, 0, 2, None),)))
    seen = Observed("DCGM_FI_DEV_GPU_UTIL", "", 20.0, Estimate(0.5, 0.3, 0.7), 0.6)
    silent = dataclasses.replace(silent, observed=(seen, dataclasses.replace(seen, key=EVIL)))
    html = fleet_html(silent)
    assert re.search(r"50\.0 %</b><span>busy of allocated, by Prometheus", html)
    assert EVIL not in html
    text = " ".join(fleet_text(silent).split())
    assert (
        "50.0 % [30.0, 70.0] busy of 20.0 allocated GPU-hours by DCGM_FI_DEV_GPU_UTIL (60.0 % of them" in text
    )


def test_more_gpus_in_use_than_there_are_is_said() -> None:
    both = dataclasses.replace(RECORDS, jobs=(*JOBS[:2], job(5, EVIL, 0, 0, 2, None)))
    text = " ".join(fleet_text(fleet_report(both, reserved={"vision": 2, EVIL: 2})).split())
    assert "Up to 8 GPUs were in use at one time, more than the 4 of all teams together" in text


POLICY = FleetPolicy("shared", 8, teams=(("vision", Team(4)),), price=2.0)


def test_a_replay_tells_the_same_in_text_and_html() -> None:
    comparison = compare_policies(RECORDS, POLICY)
    html, text = replay_html(comparison), " ".join(replay_text(comparison).split())
    assert (comparison.before.waits.p90_s, comparison.after.waits.p90_s) == (2 * HOUR_S, 0)
    for words in ("2.0 h before, 0 s after", "20.0"):
        assert words in text
        assert words in re.sub(r"<[^>]+>", " ", html)
    assert EVIL not in html


def test_pages_of_figures_hold_the_same_numbers(report: FleetReport) -> None:
    pytest.importorskip("bokeh")
    page = fleet_page(report)
    assert EVIL not in page.split("</head>")[1].split("application/json")[0]
    points = try_sizes(RECORDS, POLICY)
    assert all(isinstance(point, WhatIf) for point in points)
    drawn = json.dumps(sorted({point.outcome.gpus for point in points}))
    assert str(POLICY.gpus) in drawn
    assert "guarantees, borrowing" in what_if_page(points, POLICY.name)
