"""Student's quantile against scipy's, which is too slow to import for one number."""

from __future__ import annotations

import pytest
from scipy import stats

from jupyter_gpuprof.records.student import NORMAL_975, student_t


def test_the_normal_quantile() -> None:
    assert pytest.approx(stats.norm.ppf(0.975), rel=1e-6) == NORMAL_975


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 11, 30, 1000])
def test_whole_degrees(freedom: int) -> None:
    assert student_t(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)


@pytest.mark.parametrize("freedom", [1.2, 1.5, 1.9, 2.5, 3.3, 6.5, 9.9, 10.5])
def test_between_them_the_interval_is_not_too_narrow(freedom: float) -> None:
    exact = stats.t.ppf(0.975, freedom)
    assert 0.998 * exact <= student_t(freedom) <= 1.2 * exact


@pytest.mark.parametrize("freedom", [0.0, 0.5, -1.0])
def test_fewer_than_one(freedom: float) -> None:
    assert student_t(freedom) == student_t(1)
