"""Counting, stopping and the books, on a scripted clock and the ledger file."""

from __future__ import annotations

import sqlite3
import warnings
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof import SweepBudget
from jupyter_gpuprof.errors import OptionError, SweepOver, UsageError
from jupyter_gpuprof.records.processes import KernelReport, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.devices import kernelreports
from jupyter_gpuprof.session.sweeps import guard as guards
from jupyter_gpuprof.session.sweeps.terms import expiry_unix_s
from jupyter_gpuprof.store.database import MIGRATIONS
from jupyter_gpuprof.store.kernelreports import KernelReports
from jupyter_gpuprof.store.ledger import LedgerWriter
from jupyter_gpuprof.store.sweeps import SweepFile
from tests.session.test_monitor import World
from tests.sweeps.made import BEGAN, Bench


class Interrupts:
    """Counts instead of interrupting."""

    count = 0

    def interrupt(self) -> None:
        self.count += 1

    def close(self) -> None:
        pass


def test_device_time_is_devices_times_wall_while_trials_run():
    bench = Bench(gpu_hours=1.0, devices=4)
    one = bench.begin()
    bench.clock.advance(10)
    two = bench.begin()
    bench.clock.advance(5)
    assert bench.guard.spent_s == pytest.approx(4 * (10 + 5 + 5))
    bench.guard.end(one, state="completed")
    bench.clock.advance(5)
    assert bench.guard.spent_s == pytest.approx(100.0)
    assert (one.device_s, two.device_s) == pytest.approx((60.0, 40.0))
    bench.guard.end(two, state="failed")
    bench.clock.advance(1000)  # between trials nothing is held
    assert bench.guard.spent_s == pytest.approx(100.0)
    assert [(t.state, t.device_s, t.counted) for t in bench.book.sweep().trials] == [
        ("completed", pytest.approx(60.0), "given"),
        ("failed", pytest.approx(40.0), "given"),
    ]


def test_devices_that_are_seen_are_shared_by_the_trials_of_a_process(monkeypatch: pytest.MonkeyPatch):
    bench = Bench(gpu_hours=1.0)
    one, two = bench.begin(), bench.begin()
    bench.clock.advance(10)
    assert bench.guard.spent_s == pytest.approx(20)  # none seen: one assumed for each
    assert one.counted == "assumed"
    monkeypatch.setattr(guards, "used_devices", lambda: ("a", "b", "c"))
    bench.clock.advance(10)
    assert bench.guard.spent_s == pytest.approx(20 + 30)
    assert one.device_s == two.device_s == pytest.approx(25)
    assert one.counted == "seen"


def test_sixty_seconds_with_ten_second_trials():
    """The published failure: a limit of 60 s that became 200."""
    bench = Bench(gpu_hours=60.5 / 3600)
    count = 0
    while not bench.guard.refusal():
        live = bench.begin()
        count += 1
        assert bench.run(live, [1.0] * 10) == ""
        bench.guard.end(live, state="completed")
    assert count == 6
    with pytest.raises(SweepOver, match="left"):
        bench.begin()
    assert bench.guard.spent_s == pytest.approx(60)


def test_a_trial_that_is_not_near_its_end_is_stopped_at_the_cap():
    bench = Bench(gpu_hours=25 / 3600)
    assert "spent" in bench.run(bench.begin(), [1.0] * 100)
    assert bench.guard.spent_s == pytest.approx(25)


def test_a_trial_near_its_rung_comes_to_it_and_no_further():
    bench = Bench(gpu_hours=49 / 3600, rungs=(50,))
    live = bench.begin()
    why = bench.run(live, [1.0] * 100)  # at 49 s it has reported step 48
    assert why
    assert live.step == 50
    assert bench.guard.spent_s == pytest.approx(51)


def test_a_trial_that_hangs_is_interrupted_and_then_reported():
    bench = Bench(gpu_hours=10 / 3600)
    interrupts = Interrupts()
    live = bench.begin(interrupts)
    bench.run(live, [1.0, 1.0])  # reports every second
    bench.clock.advance(9)
    bench.guard.beat()
    assert interrupts.count == 0  # it may be about to report
    bench.clock.advance(live.grace_s)
    assert live.grace_s == 3.0
    bench.guard.beat()
    bench.guard.beat()
    assert interrupts.count == 1
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(8):
            bench.clock.advance(5)
            bench.guard.beat()
    assert ["does not react" in str(one.message) for one in said] == [True]
    assert interrupts.count > 3
    with pytest.raises(SweepOver):
        bench.begin()
    assert bench.guard.spent_s == pytest.approx(54)  # it still holds its device


def test_what_is_saved_before_the_stop_is_not_interrupted():
    bench = Bench(gpu_hours=1 / 3600)
    interrupts = Interrupts()
    live = bench.begin(interrupts)
    saved = []

    def save() -> None:
        bench.clock.advance(100)
        bench.guard.beat()
        saved.append(interrupts.count)

    live.on_stop(save)
    live.on_stop(lambda: 1 / 0)
    assert bench.run(live, [1.0, 1.0])
    with pytest.warns(UserWarning, match="before trial 0 stops failed"):
        live.run_hooks()
    live.run_hooks()
    assert saved == [0]


def test_losing_trials_are_stopped_if_asked():
    bench = Bench(gpu_hours=1.0, losing="minimize")
    for _ in range(5):
        live = bench.begin()
        assert bench.run(live, [2.0, 1.0]) == ""
        bench.guard.end(live, state="completed")
    good, bad, nan = bench.begin(), bench.begin(), bench.begin()
    assert bench.run(good, [2.0, 0.5]) == ""
    assert "step 0" in bench.run(bad, [2.5])
    assert "step 1" in bench.run(nan, [2.0, None])


def test_a_restart_goes_on_where_the_other_process_ended():
    first = Bench(gpu_hours=100 / 3600, expires="1h")
    live = first.begin()
    first.run(live, [1.0] * 30)
    first.guard.beat()  # and then the process is gone
    again = Bench()
    assert again.guard.terms == first.guard.terms
    again.guard.beat()
    assert again.guard.spent_s == pytest.approx(30)
    later = again.begin()
    assert later.number == 1
    assert "spent" in again.run(later, [1.0] * 99)
    assert later.device_s == pytest.approx(70)


def test_two_processes_spend_one_budget():
    one, two = Bench(gpu_hours=40 / 3600), Bench(gpu_hours=40 / 3600)
    lives = [one.begin(), two.begin()]
    assert [live.number for live in lives] == [0, 1]
    stopped = ["", ""]
    for step in range(60):
        for i, bench in enumerate((one, two)):
            bench.clock.advance(1)
            if not stopped[i]:
                stopped[i] = bench.guard.report(lives[i], step, 1.0)
                bench.guard.beat()
    assert all(stopped)
    assert [live.marks[-1][2] for live in lives] == [pytest.approx(20, abs=2)] * 2


def test_the_terms_that_are_kept_hold_until_others_are_asked():
    Bench(gpu_hours=1.0, expires="2h")
    second = Bench()
    assert second.guard.terms.expires_unix_s == BEGAN + 7200
    later = Bench(gpu_hours=2.0, expires="3h")
    later.clock.advance(600)
    assert later.guard.terms.gpu_hours == 2.0
    assert later.guard.terms.expires_unix_s == BEGAN + 3 * 3600  # from the first budget on, not from now
    second.guard.beat()
    assert second.guard.terms == later.guard.terms


@pytest.mark.parametrize(
    ("expires", "unix_s"),
    [
        ("90m", 100 + 5400),
        ("2030-01-31T18:00:00+00:00", datetime(2030, 1, 31, 18, tzinfo=timezone.utc).timestamp()),
        ("2030-01-31T18:00:00Z", datetime(2030, 1, 31, 18, tzinfo=timezone.utc).timestamp()),
        ("2030-01-31", datetime(2030, 1, 31, 23, 59, 59, 999999).timestamp()),
        (date(2030, 1, 31), datetime(2030, 1, 31, 23, 59, 59, 999999).timestamp()),
        (datetime(2030, 1, 31, 9), datetime(2030, 1, 31, 9).timestamp()),
    ],
)
def test_an_expiry_is_a_span_or_a_date(expires: Any, unix_s: float):
    assert expiry_unix_s(expires, 100.0) == unix_s


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu_hours": 0},
        {"gpu_hours": float("nan")},
        {"expires": "soon"},
        {"gpu_hours": 1, "devices": 0},
        {"gpu_hours": 1, "direction": "up"},
        {},
    ],
)
def test_what_makes_no_sense_is_said_at_once(asked: dict[str, Any]):
    with pytest.raises(UsageError):
        SweepBudget(**asked)
    with pytest.raises(OptionError):
        _ = SweepBudget(gpu_hours=1, stop_losing=object()).why


def test_an_expiry_in_the_past_begins_nothing():
    past = datetime.now(timezone.utc) - timedelta(days=1)
    budget = SweepBudget(expires=past, study="old")
    assert budget.is_over
    assert "expired" in budget.why
    with pytest.raises(SweepOver, match="expired"), budget.trial({}):
        pytest.fail("it ran")
    assert SweepBudget(study="old").is_over  # for whoever comes next


def test_books_that_cannot_be_written_cost_nobody_a_trial(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> None:
        raise sqlite3.OperationalError("disk full")

    for name in ("facts", "keep_facts", "begin", "write", "trials"):
        monkeypatch.setattr(SweepFile, name, broken)
    with pytest.warns(UserWarning, match="disk full"):
        bench = Bench(gpu_hours=20 / 3600)
    live = bench.begin()
    assert "spent" in bench.run(live, [1.0] * 50)
    bench.guard.end(live, state="stopped")
    assert bench.guard.spent_s == pytest.approx(20)
    with pytest.raises(SweepOver):
        bench.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bench.guard.beat()  # it was said once


def test_many_reports_take_constant_room():
    bench = Bench(gpu_hours=100.0)
    live = bench.begin()
    bench.run(live, [1.0] * 5000)
    assert len(live.marks) <= 512
    assert live.marks[0][0] == 0
    assert live.marks[-1][0] == 4999


def test_the_ledger_is_told_study_and_trial(monkeypatch: pytest.MonkeyPatch):
    bench = Bench("widths", gpu_hours=1.0)
    one, two = bench.begin(), bench.begin()
    assert kernelreports._sweep == ("widths", "0,1")
    bench.guard.end(one)
    assert kernelreports._sweep == ("widths", "1")
    bench.guard.end(two)
    assert kernelreports._sweep == ("", "")


def test_study_and_trial_reach_the_server(tmp_path: Path):
    """What a kernel says, through the file of an older version."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as old:
        for number, script in enumerate(MIGRATIONS[:5], start=1):
            old.executescript(script)
            old.execute(f"PRAGMA user_version = {number}")
        old.execute("INSERT INTO kernel_reports VALUES ('elsewhere', 1, 1, '0', 0, 1, 1, 1, 1e12, '', NULL)")
    old.close()
    file = KernelReports(path)
    report = KernelReport(ProcessId(100, 1.0), "0", None, 1, 2, True, 5.0, study="widths", trial="7")
    file.write(report.id, [report], None, 2e9)
    ((read,), _) = file.read()
    file.close()
    assert (read.study, read.trial) == ("widths", "7")


def test_ledger_rows_carry_study_and_trial(tmp_path: Path):
    world = World(writer=LedgerWriter(tmp_path / "ledger.db"))
    kernel = world.kernel("k", 100)
    report = KernelReport(kernel, "0", None, 1, 2, True, 0.0, study="widths", trial="7")
    world.file.write(kernel, [report], None, world.wall.ns * 1e-9)
    world.run(5)
    with sqlite3.connect(tmp_path / "ledger.db") as file:
        rows = file.execute("SELECT DISTINCT study, trial FROM device_seconds").fetchall()
    file.close()
    world.monitor.close()
    assert rows == [("widths", "7")]


def test_a_running_trial_of_the_study_is_in_its_sweep():
    bench = Bench(gpu_hours=1.0)
    live = bench.begin()
    bench.run(live, [1.0, 2.0])
    bench.guard.beat()
    (trial,) = bench.book.sweep().trials
    assert trial.state == "running"
    assert isinstance(trial.end_unix_s, Missing)
    assert [point.value for point in trial.points] == [1.0, 2.0]
    assert trial.device_s == pytest.approx(2.0)
