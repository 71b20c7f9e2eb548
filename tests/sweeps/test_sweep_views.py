"""The report of a sweep as people see it: text, HTML, figure, and the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from jupyter_gpuprof import SweepBudget
from jupyter_gpuprof.cli.main import main
from jupyter_gpuprof.notebook import sweepcommands
from jupyter_gpuprof.planning.sweepreport import conclude_sweep
from jupyter_gpuprof.records.sweep import SweepReport, SweepTerms
from jupyter_gpuprof.views.sweep_figure import live_figure_html, live_report_html, sweep_page, sweep_series
from jupyter_gpuprof.views.sweep_html import sweep_html
from jupyter_gpuprof.views.sweep_text import sweep_text
from tests.sweeps.made import BEGAN, sweep, trial


def report_of(**more: Any) -> SweepReport:
    stopped = trial(6, [5.0, 5.0, 5.0], state="stopped", params="lr=<script>", why="The budget is spent.")
    study = sweep(
        *(trial(n, [3.0, 2.0, 1.0 + n]) for n in range(6)),
        stopped,
        terms=SweepTerms(BEGAN, gpu_hours=0.06, expires_unix_s=BEGAN + 3600),
    )
    return conclude_sweep(study, now_unix_s=BEGAN, made_at="2030-01-31T09:30:00+00:00", **more)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_text_says_what_was_spent_and_lost(width: int):
    text = sweep_text(report_of(cap_hours=100 / 3600), width)
    assert max(map(len, text.splitlines())) <= max(width, 48)
    flat = " ".join(text.split())
    assert "0.0583 GPU-hours were spent, 0.00556 of them, 10 %," in flat
    assert "A cap of 0.0278 GPU-hours would have saved 0.0306 GPU-hours: 3 trials finished" in flat
    assert "0.06 GPU-hours, until" in flat
    assert "7 trials: 6 completed, 1 stopped" in flat


def test_the_html_escapes_and_marks_the_stopped_trial():
    html = sweep_html(report_of())
    assert "<script" not in html
    assert "lr=&lt;script&gt;" in html
    picture = html[html.index("<svg") : html.index("</svg>")]
    assert picture.count("<rect") == 14  # a bar and its losing part for each trial
    assert picture.count("stroke-width='1.5'>") == 1  # one cross
    assert "The budget is spent." in picture
    assert "<svg" not in sweep_html(conclude_sweep(sweep(), now_unix_s=BEGAN, made_at=""))


def test_bars_follow_one_another_over_gpu_hours():
    series = sweep_series(report_of())
    trials = series["trials"]
    assert trials["from"] == pytest.approx([n * 30 / 3600 for n in range(7)])
    assert trials["to"] == pytest.approx([(n + 1) * 30 / 3600 for n in range(7)])
    assert trials["losing"][6] == pytest.approx((180 + 10) / 3600)
    assert series["stopped"]["number"] == [6]
    assert series["best"]["number"] == [0]


def test_the_figure_and_its_live_numbers():
    bokeh = pytest.importorskip("bokeh")
    report = report_of()
    assert f'"{bokeh.__version__}"' in sweep_page(report)
    figure, page = live_figure_html(report), live_report_html(report)
    assert len(figure) < 60_000
    key = re.search(r"data-gpuprof-still='(gp\w+)'", page)[1]  # type: ignore[index]
    assert key in figure
    pushed = re.search(r"curve\.latest = (\{.*\});", page)[1]  # type: ignore[index]
    assert json.loads(pushed)["stopped"]["number"] == [6]
    assert "lr=<script>" not in page
    assert len(live_figure_html(report, library=True)) > 500_000


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = InteractiveShell()
    made.run_line_magic("load_ext", "jupyter_gpuprof")
    yield made
    made.run_line_magic("unload_ext", "jupyter_gpuprof")


def two_trials(study: str) -> SweepBudget:
    budget = SweepBudget(gpu_hours=1, study=study)
    for value in (1.0, 2.0):
        with budget.trial({"value": value}) as one:
            one.report(0, value)
    return budget


def test_the_magic_takes_a_budget_a_name_and_a_storage(shell: Any, tmp_path: Path, capsys: Any):
    budget = two_trials("mine")
    shell.user_ns["budget"] = budget
    for words in ("budget", "mine"):
        report = shell.run_line_magic("gpuprof", f"sweep {words} --cap 0.5 --json {tmp_path / 'a.json'}")
        assert len(report.sweep.trials) == 2
        assert "of them" in report.sentence or "not known" in report.sentence
    assert SweepReport.from_dict(json.loads((tmp_path / "a.json").read_text())) == report
    assert "text/html" in shell.display_formatter.format(report)[0]
    shell.user_ns["number"] = 3
    for words, why in (
        ("nothing", "no study 'nothing'"),
        ("number", "no study: it is a int"),
        (f"{tmp_path / 'none.db'}::s", "no storage"),
        ("mine --cap -1", "above 0"),
        ("mine --json /nowhere/x.json", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=why):
            shell.run_line_magic("gpuprof", f"sweep {words}")
    assert not (tmp_path / "none.db").exists()


def test_live_follows_until_the_study_stands_still(shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    budget = two_trials("live")
    shell.user_ns["budget"] = budget
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 1:
            with budget.trial() as one:
                one.report(0, 3.0)
        else:
            raise KeyboardInterrupt  # the person has seen enough

    monkeypatch.setattr(sweepcommands.time, "sleep", nap)
    assert shell.run_line_magic("gpuprof", "sweep budget --live") is None
    assert "3 trials: 3 completed" in capsys.readouterr().out


def test_the_shell_command(capsys: Any, tmp_path: Path):
    two_trials("there")
    assert main(["sweep", "there", "--cap", "0.5", "--html", str(tmp_path / "a.html")]) == 0
    assert "gpuprof sweep: there" in capsys.readouterr().out
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["sweep", "nowhere"]) != 0
    assert "no study 'nowhere'" in capsys.readouterr().err
