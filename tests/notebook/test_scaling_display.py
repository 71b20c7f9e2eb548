"""What is shown of a scaling, message by message."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpuprof import clock
from jupyter_gpuprof.notebook.scaling_output import ScalingDisplay
from jupyter_gpuprof.testing import FakeClock
from tests.scaled_curve import RUNNING, a_scaling


class Page:
    """A front end that keeps the newest state of each display, as a notebook file does."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.updates: list[int] = []

    def display(self, bundle: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.outputs.append(bundle)
        place = len(self.outputs) - 1

        def update(bundle: dict[str, str], raw: bool, metadata: object = None) -> None:
            assert raw
            self.outputs[place] = bundle
            self.updates.append(place)

        return SimpleNamespace(update=update)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    shown = Page()
    monkeypatch.setattr("IPython.display.display", shown.display)
    return shown


@pytest.fixture
def time_ns(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(clock, "now_ns", fake)
    return fake


KERNEL = SimpleNamespace(kernel=object())


def test_four_updates_a_second_and_no_library_in_the_end(page: Page, time_ns: FakeClock) -> None:
    pytest.importorskip("bokeh")
    shown = ScalingDisplay(KERNEL)
    for _ in range(500):
        shown.show(a_scaling(finished=False), RUNNING)
        time_ns.advance(0.01)
    figure, report = page.outputs
    assert 15 <= page.updates.count(1) <= 20  # in five seconds
    assert page.updates.count(0) == 1  # the figure without BokehJS, once the page has it
    assert len(figure["text/html"]) < 50_000
    assert "40 % done" in report["text/html"]
    shown.end(a_scaling())
    figure, report = page.outputs
    assert "40 % done" not in report["text/html"]
    assert "devices  samples/s" in report["text/plain"]
    assert sum(len(words) for bundle in page.outputs for words in bundle.values()) < 100_000


def test_a_curve_from_disk_brings_bokehjs_only_in_passing(page: Page, time_ns: FakeClock) -> None:
    pytest.importorskip("bokeh")
    ScalingDisplay(KERNEL).end(a_scaling())
    assert page.updates == [0, 1]
    assert max(len(bundle["text/html"]) for bundle in page.outputs) < 60_000


def test_without_bokeh_the_report_alone(
    page: Page, time_ns: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh.models", None)
    ScalingDisplay(KERNEL).end(a_scaling())
    (report,) = page.outputs
    assert "<svg" in report["text/html"]


def test_a_terminal_gets_the_text(capsys: pytest.CaptureFixture[str], time_ns: FakeClock) -> None:
    shown = ScalingDisplay(SimpleNamespace())
    shown.show(a_scaling(finished=False), RUNNING)
    shown.end(a_scaling())
    assert "devices  samples/s" in capsys.readouterr().out
