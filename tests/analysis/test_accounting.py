"""Device seconds: the states add up to all of them, and the sums are those of a pocket calculator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.accounting import account, detect_allocation
from jupyter_gpuprof.analysis.ledger_report import busy_over_allocated, group, report, same_work
from jupyter_gpuprof.records.ledger import STATES, DeviceSample, Holding, LedgerSum
from jupyter_gpuprof.records.reading import Estimate, Missing

GIB = 2**30
UNREAD = Missing("cannot be read")
ACTIVE = Holding("ann", "a.ipynb", "active")
IDLE = Holding("bob", "b.ipynb", "idle")
ORPHAN = Holding("bob", "c.ipynb", "orphan")
TRAINING = replace(ACTIVE, run_id="r1", input_ratio=0.3)
STRANGER = Holding("", "", "unknown")
NOON = 1_764_590_400.0  # a full hour


def sample(busy=0.0, holdings=(), used=4 * GIB) -> DeviceSample:
    return DeviceSample("GPU-1", "H200", "util_nvml", busy, used, holdings)


def rows_of(one: DeviceSample, passed_s: float = 10.0, allocation="visible", ended=NOON + 1800.0):
    return account(
        [one], {}, ended_unix_s=ended, passed_s=passed_s, interval_s=10.0, allocation=allocation
    )  # fmt: skip


def seconds(rows, by="state") -> dict:
    found = Counter()
    for row in rows:
        found[getattr(row, by)] += row.seconds
    return {key: pytest.approx(value) for key, value in found.items()}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (sample(0.2, (ACTIVE,)), {"busy": 2, "host_idle": 8}),
        (sample(0.0, (IDLE,)), {"held_idle": 10}),
        (sample(0.0, (ORPHAN,)), {"orphan": 10}),
        (sample(0.5, (ORPHAN,)), {"busy": 5, "orphan": 5}),
        (sample(0.0, (IDLE, ORPHAN)), {"held_idle": 5, "orphan": 5}),
        (sample(0.0, (), used=0), {"reserved_idle": 10}),
        (sample(UNREAD, (), used=0), {"reserved_idle": 10}),
        (sample(0.0, (), used=UNREAD), {"reserved_idle": 10}),
        # Input stall comes from the run's own steps and goes before what looks busy.
        (sample(0.5, (TRAINING,)), {"busy": 5, "input_stall": 3, "host_idle": 2}),
        (sample(1.0, (TRAINING,)), {"busy": 7, "input_stall": 3}),
        (sample(1.0, (replace(TRAINING, doing="idle"),)), {"busy": 10}),
        # What nobody could read is unknown, never 0 %.
        (sample(UNREAD, (ACTIVE,)), {"unknown": 10}),
        (sample(UNREAD, (TRAINING,)), {"input_stall": 3, "unknown": 7}),
        (sample(UNREAD, UNREAD), {"unknown": 10}),
        (sample(0.4, UNREAD), {"busy": 4, "unknown": 6}),
        (sample(UNREAD, (), used=UNREAD), {"unknown": 10}),
        # Held or used by a process that is not listed.
        (sample(0.0, ()), {"held_idle": 10}),
        (sample(0.6, (), used=0), {"busy": 6, "host_idle": 4}),
        (sample(0.6, (STRANGER,)), {"busy": 6, "host_idle": 4}),
        (sample(0.0, (STRANGER,)), {"held_idle": 10}),
        # Figures that no device gives do no harm.
        (sample(1.7, (ACTIVE,)), {"busy": 10}),
        (sample(-1.0, (ACTIVE,)), {"host_idle": 10}),
    ],
)
def test_what_a_sample_says_of_ten_seconds(one: DeviceSample, expected: dict):
    assert seconds(rows_of(one)) == expected


def test_a_shared_machine_has_free_devices():
    assert seconds(rows_of(sample(used=0), allocation="held")) == {"free": 10}


def test_the_time_goes_to_what_is_active():
    rows = rows_of(sample(0.5, (ACTIVE, IDLE, replace(ACTIVE, user="eve"))))
    assert seconds(rows, "user") == {"ann": 5, "eve": 5}
    assert seconds(rows) == {"busy": 5, "host_idle": 5}


def test_rows_say_whose_they_are():
    (row, *_) = rows_of(sample(0.5, (replace(TRAINING, study="s", trial="t"),)))
    assert (row.user, row.notebook, row.run_id, row.study, row.trial) == ("ann", "a.ipynb", "r1", "s", "t")
    assert (row.measure, row.samples, row.device_name) == ("util_nvml", 1, "H200")


def test_an_hour_is_cut_where_it_ends():
    rows = rows_of(sample(1.0, (ACTIVE,)), ended=NOON + 4.0)
    assert {row.hour - NOON / 3600: row.seconds for row in rows} == {-1: 6, 0: 4}


def test_after_a_gap_a_sample_speaks_for_one_interval_only():
    assert seconds(rows_of(sample(1.0, (ACTIVE,)), 30.0)) == {"busy": 30}
    rows = rows_of(sample(1.0, (ACTIVE,)), 31.0)
    assert seconds(rows) == {"busy": 10, "unknown": 21}
    assert {row.samples for row in rows if row.state == "unknown"} == {0}


def test_a_device_that_is_gone_is_unknown():
    rows = account(
        [sample(1.0, (ACTIVE,))], {"GPU-1": "H200", "GPU-2": "H200"},
        ended_unix_s=NOON + 60, passed_s=10.0, interval_s=10.0, allocation="visible",
    )  # fmt: skip
    assert seconds(rows, "device_uuid") == {"GPU-1": 10, "GPU-2": 10}
    assert seconds(rows) == {"busy": 10, "unknown": 10}


def test_no_time_no_rows():
    assert rows_of(sample(), 0.0) == []
    assert rows_of(sample(), -5.0) == []


RATIOS = st.one_of(st.just(UNREAD), st.floats(-0.5, 1.5))
HOLDINGS = st.builds(
    Holding, st.sampled_from("ab"), st.sampled_from("xy"),
    st.sampled_from(["active", "idle", "orphan", "unknown"]), input_ratio=RATIOS,
)  # fmt: skip
SAMPLES = st.builds(
    DeviceSample, st.just("GPU-1"), st.just("H200"), st.just("util_nvml"), RATIOS,
    st.one_of(st.just(UNREAD), st.integers(0, 2**37)),
    st.one_of(st.just(UNREAD), st.lists(HOLDINGS, max_size=4).map(tuple)),
)  # fmt: skip


@given(SAMPLES, st.floats(0.001, 20_000), st.floats(0, 2e9), st.sampled_from(["visible", "held"]))
def test_the_states_add_up_to_all_seconds(one, passed_s, ended, allocation):
    rows = account(
        [one], {"GPU-1": "H200", "GPU-9": "T4"},
        ended_unix_s=ended, passed_s=passed_s, interval_s=10.0, allocation=allocation,
    )  # fmt: skip
    assert seconds(rows, "device_uuid") == {
        "GPU-1": pytest.approx(passed_s, abs=1e-5),
        "GPU-9": pytest.approx(passed_s, abs=1e-5),
    }
    for row in rows:
        assert row.state in STATES
        assert 0 < row.seconds <= 3600
    if allocation == "visible":
        assert "free" not in seconds(rows)
    else:
        assert "reserved_idle" not in seconds(rows)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "held"),
        ({"JUPYTERHUB_USER": "ann"}, "visible"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "visible"),
        ({"SLURM_JOB_ID": "7"}, "visible"),
        ({"SLURM_JOB_ID": ""}, "held"),
    ],
)
def test_whose_the_devices_are_shows_in_the_environment(environ: dict, expected: str):
    assert detect_allocation(environ) == expected


# -- the sums -----------------------------------------------------------------------------------------


def hours(key="a.ipynb", day="2026-12-01", measure="util_nvml", **states: float) -> list[LedgerSum]:
    return [LedgerSum(key, day, state, measure, h * 3600, int(h)) for state, h in states.items()]


IDENTITY = hours(busy=40, input_stall=50, orphan=34, host_idle=20) + hours("", free=48)


def test_the_identity_of_the_ledger():
    """8 devices for a day are 192 hours: 144 allocated, 40 of them busy."""
    total = report(IDENTITY, "notebook", devices=8).total
    assert total.capacity_s / 3600 == pytest.approx(192)
    assert total.allocated_s / 3600 == pytest.approx(144)
    assert total.busy_ratio == pytest.approx(0.27778, abs=1e-5)
    assert total.busy_s / total.capacity_s == pytest.approx(0.20833, abs=1e-5)
    assert total.coverage_ratio == 1


def test_what_a_busy_hour_costs():
    assert report(IDENTITY, "notebook", devices=8, price=2.0).money_per_busy_hour == pytest.approx(7.20)


def test_ratios_are_sum_over_sum():
    """1 device for 10 h at 90 % and 8 for 100 h at 10 %: 0.109877, and not the mean of 0.5."""
    small, large = hours(busy=9, held_idle=1), hours("b", busy=80, held_idle=720)
    made = report(small + large, "notebook", devices=9)
    assert made.total.busy_ratio == pytest.approx(0.109877, abs=1e-6)
    assert [g.key for g in made.groups] == ["b", "a.ipynb"]
    assert [g.busy_ratio for g in made.groups] == [pytest.approx(0.1), pytest.approx(0.9)]


def test_what_nobody_saw_makes_an_interval():
    """100 hours allocated, 80 sampled, 40 of them busy: 0.5 in [0.40, 0.60], never 0.40."""
    ratio = busy_over_allocated(40, 100, 20)
    assert ratio == Estimate(0.5, pytest.approx(0.4), pytest.approx(0.6))
    assert group("", hours(busy=40, held_idle=40, unknown=20)).busy_ratio == ratio


def test_well_covered_it_is_a_number():
    assert busy_over_allocated(45, 100, 10) == pytest.approx(0.5)
    assert isinstance(busy_over_allocated(45, 100, 10.1), Estimate)
    assert isinstance(busy_over_allocated(0, 100, 100), Missing)


def test_nothing_allocated_is_no_ratio():
    assert isinstance(group("", hours(free=10)).busy_ratio, Missing)
    empty = report([], "day", devices=0, price=2.0)
    assert isinstance(empty.total.busy_ratio, Missing)
    assert isinstance(empty.same_work, Missing)
    assert isinstance(empty.money_per_busy_hour, Missing)


def test_the_same_work_on_fewer_devices():
    """8 devices at 20 % do the work of 1.6; at 60 % the same work fits on 3."""
    work = same_work(8, 0.2)
    assert (work.worth, work.needed) == (pytest.approx(1.6), 3)
    assert same_work(5, 0.6).needed == 5
    assert same_work(4, 0.0).needed == 0
    made = report(hours(busy=20, reserved_idle=80), "notebook", devices=8).same_work
    assert (made.worth, made.needed) == (pytest.approx(1.6), 3)


def test_no_arithmetic_with_what_was_hardly_seen():
    made = report(hours(busy=20, unknown=80), "notebook", devices=8).same_work
    assert made == Missing("only 20% of the time was seen")


def test_the_three_losses_in_hours_and_money():
    made = report(hours(input_stall=5, reserved_idle=7, held_idle=2, orphan=1, busy=9, host_idle=3), "day",
                  devices=1, price=3.0)  # fmt: skip
    assert [(loss.seconds / 3600, loss.money) for loss in made.losses] == [
        (pytest.approx(5), pytest.approx(15)),
        (pytest.approx(7), pytest.approx(21)),
        (pytest.approx(3), pytest.approx(9)),
    ]
    assert isinstance(report(IDENTITY, "day", devices=1).losses[0].money, Missing)


def test_days_are_in_order_whatever_the_report_is_by():
    sums = (
        hours(day="2026-12-02", busy=1)
        + hours(day="2026-12-01", busy=5)
        + hours("b", day="2026-12-02", busy=9)
    )
    made = report(sums, "notebook", devices=1)
    assert [(day.key, day.busy_s / 3600) for day in made.days] == [("2026-12-01", 5), ("2026-12-02", 10)]
    assert (made.since, made.until) == ("2026-12-01", "2026-12-02")


def test_two_ways_to_measure_busy_are_named():
    made = report(hours(busy=1) + hours(measure="gr_active", busy=1), "day", devices=1)
    assert made.measures == ("gr_active", "util_nvml")
    assert "2 ways" in made.notes[0]


@given(st.lists(st.tuples(st.sampled_from(STATES), st.sampled_from("ab"), st.floats(0, 1e6)), max_size=30))
def test_groups_and_days_add_up_to_the_total(parts):
    sums = [
        LedgerSum(key, f"2026-12-0{1 + i % 3}", state, "m", s, 1) for i, (state, key, s) in enumerate(parts)
    ]
    made = report(sums, "user", devices=2)
    for name in ("groups", "days"):
        whole = sum(g.capacity_s for g in getattr(made, name))
        assert whole == pytest.approx(made.total.capacity_s)
    ratio = made.total.busy_ratio
    if isinstance(ratio, Estimate):
        assert -1e-9 <= ratio.low <= ratio.value <= ratio.high + 1e-9 <= 1 + 1e-6
