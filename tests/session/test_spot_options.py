"""From options, a measured checkpoint and a run to a decision; and the command on the terminal."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import pytest

from jupyter_gpuprof.cli.spot import add_spot
from jupyter_gpuprof.errors import GpuprofError, OptionError, UsageError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device
from jupyter_gpuprof.records.spot import CheckpointCost, SaveTimes, SpotDecision
from jupyter_gpuprof.session.spot import measured_cost, spot_decision, spot_figures
from jupyter_gpuprof.store.trials import find_curve, save_curve
from tests.store.test_runs import make_run

PLAIN = SaveTimes("torch.save", 5, 10**9, 2.0, 2.5, 3.0, 4.0, 6.0, (3.0, 3.0, 3.0, 3.0, 4.0))
BACKGROUND = SaveTimes("asynchronous", 5, 10**9, 0.5, 0.6, 4.0, 5.0, 6.0)
COST = CheckpointCost(
    "2026-12-01-eeeeee", "2026-12-01-aaaaaa", "a", "2026-12-01T12:00:00+00:00",
    Device("cpu", "CPU", 2, Missing("a CPU"), False), "/mnt", (), 3 * 10**8, (PLAIN, BACKGROUND), "Why.",
)  # fmt: skip
GIVEN = "--between 6h --restart 10m"


def parsed(words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_spot(parser.add_subparsers())
    return parser.parse_args(["spot", *words.split()])


def test_measured_times_are_taken() -> None:
    figures = spot_figures(parsed(GIVEN), cost=COST)
    assert figures.blocking_s == 3.0  # until it is safe
    assert figures.restart_s == 606.0  # loading is added
    assert (figures.async_blocking_s, figures.async_durable_s) == (0.5, 4.0)
    assert figures.interruptions.planned_s == 6 * 3600
    assert figures.audit == "never ran"


def test_what_is_given_goes_before_what_was_measured() -> None:
    figures = spot_figures(parsed(f"{GIVEN} --checkpoint 30s --audit passed"), cost=COST)
    assert figures.blocking_s == 30.0
    assert isinstance(figures.async_blocking_s, Missing)
    assert figures.audit == "passed"
    assert spot_figures(parsed(GIVEN), cost=COST, audit="failed").audit == "failed"


@pytest.mark.parametrize(
    ("words", "mean_s"),
    [
        ("--rate 0.5", 7200.0),
        ("--between 90m", 5400.0),
        ("--interruptions 12 --over 24h", 7200.0),
    ],
)
def test_the_rate_is_said_in_one_of_three_ways(words: str, mean_s: float) -> None:
    figures = spot_figures(parsed(f"{words} --restart 1m --checkpoint 5s"))
    assert figures.interruptions.planned_s == mean_s


@pytest.mark.parametrize(
    ("notice", "ratio"), [("120s", 6 / 7), ("8.5s", 5 / 7), ("7s", "no save was done within the notice")]
)
def test_a_notice_is_held_against_each_measured_save(notice: str, ratio: object) -> None:
    found = spot_figures(parsed(f"{GIVEN} --notice {notice}"), cost=COST).in_time_ratio
    assert (found.reason if isinstance(found, Missing) else found) == (
        ratio if isinstance(ratio, str) else pytest.approx(ratio)
    )


def test_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    both = spot_figures(parsed(f"{GIVEN} --checkpoint 5s --price 3 --spot-price 1.2"))
    assert both.price_ratio == pytest.approx(0.4)
    assert both.price_per_device_hour == 3.0
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES", "H200=3.50")
    run = make_run("2026-12-01-aaaaaa")
    run = dataclasses.replace(run, device=dataclasses.replace(run.device, name="NVIDIA H200"))
    assert spot_figures(parsed(GIVEN), run=run, cost=COST).price_per_device_hour == 3.5


def test_the_last_measurement_of_the_run_is_found() -> None:
    assert measured_cost(None) is None
    save_curve(COST)
    other = dataclasses.replace(COST, cost_id="b", run_id="r", run_name="b", started_at="2026-12-02")
    save_curve(other)
    assert measured_cost(None) == other
    assert measured_cost(make_run("2026-12-01-aaaaaa")) == COST
    assert measured_cost(make_run("a rerun", name="a")) == COST
    assert measured_cost(make_run("c", name="c")) is None


def test_a_decision_is_kept() -> None:
    decision = spot_decision(parsed(f"{GIVEN} --audit passed"), run=make_run("2026-12-01-aaaaaa"), cost=COST)
    assert decision.run_id == "2026-12-01-aaaaaa"
    assert find_curve(SpotDecision, "last") == decision


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, page = tmp_path / "d.json", tmp_path / "d.html"
    args = parsed(
        "--between 2h --restart 2m --checkpoint 60s --price-ratio 0.4 --audit passed"
        f" --json {target} --html {page}"
    )
    assert args.act(args) == 0
    printed = capsys.readouterr().out
    assert "Spot-ready at an interval of 15 min." in printed
    assert "46 %" in printed
    assert SpotDecision.from_dict(json.loads(target.read_text())).label == "spot-ready at interval"
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ("--between 6h --restart 10m", UsageError, "What a checkpoint costs is not known"),
        ("--checkpoint 5s --restart 10m", UsageError, "How often the job is interrupted"),
        ("--checkpoint 5s --restart 10m --between 6h --rate 1", UsageError, "said in one way"),
        ("--checkpoint 5s --restart 10m --interruptions 3", OptionError, "go together"),
        ("--checkpoint 5s --between 6h", UsageError, "until training runs again is needed"),
        ("--checkpoint 5s --restart 10m --rate -1", OptionError, "not -1"),
        ("--checkpoint 5s --restart 10m --interruptions -1 --over 3h", OptionError, "cannot be -1"),
        ("--checkpoint 0s --restart 10m --between 6h", OptionError, "above 0 s"),
        ("--checkpoint 5s --restart 10m --between 6h --price-ratio 1.5", OptionError, "not 1.5"),
        ("--checkpoint 5s --restart 10m --between 6h --spot-price 2", OptionError, "needs --price"),
        ("--checkpoint 5s --restart 10m --between 6h --spot-price 2 --price 0", OptionError, "above 0"),
        ("--checkpoint 5s --restart 10m --between 6h --price 0", OptionError, "above 0, not 0"),
        ("--checkpoint soon --restart 10m --between 6h", OptionError, "is no time"),
        ("--checkpoint 5s --restart 10m --between 6h --stall 1s", OptionError, "go together"),
        ("--checkpoint 5s --restart 10m --between 6h --interval 0s", OptionError, "above 0"),
    ],
)
def test_what_cannot_be_decided(words: str, kind: type[GpuprofError], said: str) -> None:
    with pytest.raises(kind, match=said) as raised:
        spot_decision(parsed(words))
    assert "\n" not in str(raised.value)
