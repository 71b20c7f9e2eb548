"""A million steps in the memory of four thousand, and none of them lost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis import series as module
from jupyter_gpuprof.analysis.series import CAPACITY, StepSeries


def test_a_million_steps_in_constant_memory() -> None:
    series = StepSeries(3)

    def go_on(steps: int) -> None:
        for i in range(steps):
            series.append([1.0, float(i & 1), 0.5], 2.0)

    go_on(900_000)
    tracemalloc.start()
    try:
        go_on(100_000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 300_000
    assert len(series.blocks()) <= CAPACITY
    assert len(series.sample()) <= CAPACITY
    assert series.steps == 1_000_000
    assert series.total().tolist() == [1_000_000.0, 500_000.0, 500_000.0]
    assert series.block_size == 256


def test_short_runs_keep_every_step() -> None:
    series = StepSeries(2)
    for i in range(CAPACITY - 1):
        series.append([float(i), 1.0], float(i))
    assert series.block_size == 1
    assert series.blocks()[:, 0].tolist() == list(range(CAPACITY - 1))
    assert series.sample().tolist() == list(range(CAPACITY - 1))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 500), st.sampled_from([4, 8, 16]))
def test_sums_are_exact_whatever_the_length(steps: int, capacity: int) -> None:
    kept, module.CAPACITY = module.CAPACITY, capacity
    try:
        series = StepSeries(2)
        for i in range(steps):
            series.append([float(i), 1.0], float(i))
            assert len(series.blocks()) <= capacity
    finally:
        module.CAPACITY = kept
    assert series.steps == steps
    assert series.total().tolist() == [sum(range(steps)), steps]
    blocks = series.blocks()
    # Every block but the last holds the same number of consecutive steps.
    assert (blocks[:-1, 1] == series.block_size).all()
    sample = series.sample()
    assert sample.tolist() == [float(i) for i in range(0, steps, series.block_size)]
    assert len(sample) <= capacity


def test_reading_changes_nothing() -> None:
    series = StepSeries(1)
    for i in range(CAPACITY + 3):
        series.append([1.0], 1.0)
        if i % 500 == 0:
            series.blocks()[:] = np.nan
            series.total()[:] = np.nan
    assert series.total().tolist() == [CAPACITY + 3.0]


def test_no_steps() -> None:
    series = StepSeries(4)
    assert series.blocks().shape == (0, 4)
    assert series.total().tolist() == [0.0] * 4
    assert series.sample().shape == (0,)


def test_appending_is_cheap() -> None:
    """No append does work in proportion to the run, but for one in `CAPACITY` / 2."""
    series = StepSeries(1)
    merges = 0

    def halve() -> None:
        nonlocal merges
        merges += 1
        StepSeries._halve(series)

    series._halve = halve  # type: ignore[method-assign]
    for _ in range(20 * CAPACITY):
        series.append([1.0], 1.0)
    assert merges == pytest.approx(np.log2(20) + 1, abs=1)
