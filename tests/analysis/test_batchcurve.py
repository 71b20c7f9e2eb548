"""What fits and where throughput stops growing, on curves whose truth is set."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.batchcurve import conclude_batch, fit_memory
from jupyter_gpuprof.records.batch import MemoryFit
from jupyter_gpuprof.records.reading import Estimate, Missing
from tests.rerun_records import GIB, a_failure, a_point

UNKNOWN = Missing("a CPU has no memory of its own")


def of(points, capacity=80 * GIB, until=0.9):
    return conclude_batch(points, capacity, until)


def linear(sizes, base_gib=1.0, per_sample_gib=0.0625, rate=lambda batch: 1000.0):
    return [a_point(batch, rate(batch), base_gib + per_sample_gib * batch) for batch in sizes]


# -- memory ------------------------------------------------------------------------------------------


def test_a_straight_line_is_found():
    fit = fit_memory(linear((32, 64, 256)))
    assert fit == MemoryFit(pytest.approx(GIB), pytest.approx(GIB / 16), pytest.approx(0, abs=1e-12))


@given(st.lists(st.tuples(st.integers(1, 4096), st.floats(0.1, 60)), min_size=2, max_size=6))
@settings(deadline=None)
def test_the_fit_is_that_of_least_squares(rows):
    fit = fit_memory([a_point(batch, 1000, peak) for batch, peak in rows])
    batch, peak = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if len(set(batch)) < 2:
        assert isinstance(fit, Missing)
        return
    slope, base = np.polyfit(batch, peak * GIB, 1)
    assert fit.per_sample_bytes == pytest.approx(slope, rel=1e-6, abs=1)
    assert fit.base_bytes == pytest.approx(base, rel=1e-6, abs=1e4)
    errors = np.abs(base + slope * batch - peak * GIB) / (peak * GIB)
    assert fit.worst_ratio == pytest.approx(errors.max(), rel=1e-5, abs=1e-6)


def test_no_fit_says_why():
    assert fit_memory([a_point(8, 10, UNKNOWN), a_point(16, 10, UNKNOWN)]) == UNKNOWN
    assert "two batch sizes" in fit_memory([a_point(8, 10, 1.0), a_failure(16)]).reason


@given(st.floats(0.1, 20), st.floats(0.001, 1), st.floats(0.2, 1), st.integers(1, 64))
@settings(deadline=None)
def test_the_largest_batch_is_the_last_that_fits(base, per_sample, until, first):
    points = linear((first, 2 * first), base, per_sample)
    _, largest, _, words = of(points, until=until)
    limit = 80 * until
    if isinstance(largest, Missing):
        assert base + per_sample > limit * (1 - 1e-9)
        return
    assert base + per_sample * largest <= limit * (1 + 1e-9)
    assert base + per_sample * (largest + 1) > limit * (1 - 1e-9)
    assert ("extrapolated" in words) == (not first <= largest <= 2 * first)


def test_an_extrapolated_batch_is_called_so():
    _, largest, _, words = of(linear((32, 64)))
    assert largest == (72 - 1) * 16
    assert "is 1,136, by the fit of memory, extrapolated beyond the 64 that ran" in words
    assert "90 % of 80.0 GiB" in words


@given(st.integers(65, 1100))
@settings(deadline=None)
def test_never_as_large_as_what_ran_out_of_memory(oom):
    _, largest, _, words = of([*linear((32, 64)), a_failure(oom)])
    assert largest == oom - 1
    assert f"({oom:,} ran out of memory)" in words


def test_a_size_above_the_share_bounds_it_from_above_and_one_that_ran_from_below():
    bent = [a_point(32, 1000, 10), a_point(64, 1000, 11), a_point(128, 1000, 60), a_point(256, 1000, 75)]
    fit, largest, _, words = of(bent)
    assert fit.worst_ratio > 0.1
    assert 128 <= largest < 256
    assert "extrapolated" not in words


def test_a_bad_fit_is_not_followed_beyond_what_ran():
    _, largest, _, words = of([a_point(32, 1000, 1), a_point(64, 1000, 5), a_point(128, 1000, 6)])
    assert largest == 128
    assert "as measured: whether a larger one fits is not known" in words


def test_memory_that_does_not_grow_proves_what_ran_only():
    fit, largest, _, _ = of([a_point(32, 1000, 5), a_point(64, 1000, 5)])
    assert fit.per_sample_bytes == 0
    assert largest == 64


def test_not_even_the_smallest_fits():
    fit, largest, _, words = of(linear((32, 64), base_gib=75))
    assert isinstance(fit, MemoryFit)
    assert "not even the smallest batch" in largest.reason
    assert "not known" in words


def test_below_what_ran_is_extrapolated_too():
    _, largest, _, words = of(linear((32, 64), base_gib=71))
    assert largest == 16
    assert "extrapolated below the 32 that ran" in words


def test_without_the_devices_memory_only_running_out_proves_something():
    points = [a_point(32, 1000, UNKNOWN), a_point(64, 1000, UNKNOWN)]
    fit, largest, _, words = of(points, UNKNOWN)
    assert fit == UNKNOWN
    assert UNKNOWN.reason in largest.reason
    assert UNKNOWN.reason in words
    assert of([*points, a_failure(128)], UNKNOWN)[1] == 64


def test_nothing_measured():
    fit, largest, plateau, words = of([a_failure(8), a_failure(16, "failed")])
    assert all(isinstance(reading, Missing) for reading in (fit, largest, plateau))
    assert "no batch size could be measured" in words


# -- throughput --------------------------------------------------------------------------------------


def growing(gains, doubt=0.005, first=32, factor=2):
    """Points each `factor` times the batch of the one before, with the gain given."""
    points, batch, rate = [], first, 1000.0
    points.append(a_point(batch, rate, 1.0, doubt))
    for gain in gains:
        batch, rate = batch * factor, rate * (1 + gain)
        points.append(a_point(batch, rate, 1.0, doubt))
    return points


@pytest.mark.parametrize(
    ("gains", "plateau"),
    [
        ((0.9, 0.03), 64),
        ((0.9, 0.5, 0.02, 0.01), 128),
        ((0.05, 0.05), 32),
        ((0.9, -0.2), 64),
        ((0.01, 0.5, 0.01), 128),  # a dip before it grew on
    ],
)
def test_where_throughput_stops_growing(gains, plateau):
    _, _, found, words = of(growing(gains))
    assert found == plateau
    assert f"Throughput stops growing at a batch of {plateau:,}:" in words


def test_it_still_grows():
    _, _, plateau, words = of(growing((0.9, 0.6)))
    assert "still grows" in plateau.reason
    assert "still grows at a batch of 128: from 64 to 128 a doubling brings 60 %" in words


def test_intervals_that_hold_the_limit_are_unclear():
    _, _, plateau, words = of(growing((0.9, 0.09), doubt=0.05))
    assert plateau.reason.startswith("unclear")
    assert "unclear: from 64 to 128 a doubling brings 9 % (2 % to 17 %)" in words


def test_after_an_unclear_step_it_is_at_the_latest():
    _, _, plateau, words = of(growing((0.9, 0.11, 0.01), doubt=0.02))
    assert plateau == 128
    assert "at the latest" in words


@pytest.mark.parametrize(("factor", "gain", "flat"), [(4, 0.19, True), (4, 0.23, False), (8, 0.30, True)])
def test_other_ratios_are_judged_per_doubling(factor, gain, flat):
    assert (1 + gain) ** (1 / math.log2(factor)) < 1.1 or not flat  # the truth of the case
    _, _, plateau, _ = of(growing((gain,), doubt=0.001, factor=factor))
    assert (plateau == 32) == flat


def test_errors_add_up_as_independent_ones_do():
    _, _, _, words = of(growing((0.0,), doubt=0.03))
    exact = math.exp(math.hypot(math.log(1.03), -math.log(0.97))) - 1
    assert f"brings 0 % ({round(100 * (1 / (1 + exact) - 1))} % to {round(100 * exact)} %)" in words


def test_an_interval_down_to_zero_is_no_error():
    points = growing((0.5,))
    wide = Estimate(1500.0, 0.0, 3000.0)
    _, _, plateau, _ = of([points[0], dataclasses.replace(points[1], samples_per_s=wide)])
    assert plateau.reason.startswith("unclear")


def test_one_size_alone_tells_nothing():
    assert "two batch sizes" in of([a_point(32, 1000, 1), a_failure(64)])[2].reason


def test_the_order_of_points_does_not_matter():
    points = [*linear((32, 64, 128), rate=lambda batch: batch * 10.0), a_failure(2000)]
    assert of(points[::-1]) == of(points)
