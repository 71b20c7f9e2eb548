"""Interval algebra against a timeline of booleans."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.intervals import (
    Spans,
    as_spans,
    clip,
    difference,
    empty,
    gaps,
    intersection,
    length_per_window,
    total,
    union,
)

END = 60
instants = st.integers(0, END)
any_spans = st.lists(st.tuples(instants, instants).map(sorted), max_size=12).map(as_spans)
disjoint_spans = any_spans.map(union)


def timeline(spans: Spans) -> np.ndarray:
    """Whether each unit of time is covered, the slow way."""
    covered = np.zeros(END, dtype=bool)
    for start, end in spans:
        covered[start:end] = True
    return covered


def is_disjoint(spans: Spans) -> bool:
    flat = spans.ravel()
    return spans.dtype == np.int64 and bool((np.diff(flat) > 0).all())


@given(any_spans)
def test_union_covers_what_its_spans_cover(spans: Spans) -> None:
    found = union(spans)
    assert is_disjoint(found)
    assert (timeline(found) == timeline(spans)).all()
    assert total(found) == timeline(spans).sum()


@given(any_spans, st.randoms(use_true_random=False))
def test_union_is_idempotent_and_ignores_order(spans: Spans, random: object) -> None:
    found = union(spans)
    assert (union(found) == found).all()
    shuffled = spans[random.sample(range(len(spans)), len(spans))]  # type: ignore[attr-defined]
    assert (union(shuffled) == found).all()


@given(disjoint_spans, disjoint_spans)
def test_intersection_and_difference(a: Spans, b: Spans) -> None:
    both, rest = intersection(a, b), difference(a, b)
    assert is_disjoint(both)
    assert is_disjoint(rest)
    assert (timeline(both) == (timeline(a) & timeline(b))).all()
    assert (timeline(rest) == (timeline(a) & ~timeline(b))).all()
    assert total(a) == total(both) + total(rest)
    assert total(union(np.concatenate((a, b)))) == total(a) + total(difference(b, a))


@given(disjoint_spans, instants, instants)
def test_clip_and_gaps_share_a_window(spans: Spans, one: int, other: int) -> None:
    start, end = sorted((one, other))
    inside, free = clip(spans, start, end), gaps(spans, start, end)
    assert is_disjoint(inside)
    assert is_disjoint(free)
    window = timeline(as_spans([start, end]))
    assert (timeline(inside) == (timeline(spans) & window)).all()
    assert (timeline(free) == (~timeline(spans) & window)).all()


@given(disjoint_spans, st.lists(instants, min_size=1, max_size=6).map(sorted))
def test_length_per_window(spans: Spans, edges: list[int]) -> None:
    lengths = length_per_window(spans, np.array(edges, dtype=np.int64))
    expected = [timeline(spans)[a:b].sum() for a, b in pairwise(edges)]
    assert lengths.tolist() == expected


@given(disjoint_spans, st.tuples(instants, instants, instants).map(sorted))
def test_splitting_a_window_in_two_and_adding_gives_the_same(spans: Spans, cuts: list[int]) -> None:
    start, middle, end = cuts
    whole = length_per_window(spans, np.array([start, end]))
    parts = length_per_window(spans, np.array([start, middle, end]))
    assert whole.sum() == parts.sum()
    assert total(clip(spans, start, end)) == total(clip(spans, start, middle)) + total(
        clip(spans, middle, end)
    )


def test_nothing_and_large_times() -> None:
    assert total(union(empty())) == 0
    assert len(intersection(empty(), empty())) == 0
    assert length_per_window(empty(), np.array([0, 5, 9])).tolist() == [0, 0]
    epoch = 1_790_857_026_000_000_000
    assert total(union(as_spans([[epoch, epoch + 1], [epoch + 1, epoch + 3]]))) == 3
