"""Interval algebra on integer nanoseconds.

Spans are arrays of shape (n, 2), int64: a start and an end per row, half open. *Disjoint* spans are
sorted, not empty, and neither overlap nor touch: what `union` returns. Everything is O(n log n) and
vectorised.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Shape (n, 2), int64 nanoseconds.
Spans = NDArray[np.int64]

_Mask = NDArray[np.bool_]


def empty() -> Spans:
    """No spans, shape (0, 2)."""
    return np.empty((0, 2), dtype=np.int64)


def as_spans(pairs: ArrayLike) -> Spans:
    """Rows of start and end as an int64 array of shape (n, 2)."""
    return np.asarray(pairs, dtype=np.int64).reshape(-1, 2)


def union(spans: Spans) -> Spans:
    """The disjoint spans that cover exactly what `spans` (in any order, overlapping) cover."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if len(spans) == 0:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.concatenate(([True], spans[1:, 0] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((spans[first, 0], reached[last]))


def total(disjoint: Spans) -> int:
    """The length of disjoint spans in nanoseconds."""
    return int((disjoint[:, 1] - disjoint[:, 0]).sum())


def intersection(a: Spans, b: Spans) -> Spans:
    """What both of two disjoint sets of spans cover."""
    return _combine(a, b, lambda in_a, in_b: in_a & in_b)


def difference(a: Spans, b: Spans) -> Spans:
    """What `a` covers and `b` does not; both disjoint."""
    return _combine(a, b, lambda in_a, in_b: in_a & ~in_b)


def clip(spans: Spans, start: int, end: int) -> Spans:
    """The parts of the spans inside the window from `start` to `end`; empty ones are left out."""
    clipped = np.clip(spans, start, end)
    return clipped[clipped[:, 1] > clipped[:, 0]]


def gaps(disjoint: Spans, start: int, end: int) -> Spans:
    """What disjoint spans leave free of the window from `start` to `end`."""
    return difference(union(as_spans([start, end])), disjoint)


def length_per_window(disjoint: Spans, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much disjoint spans cover of each window between neighbouring edges.

    Args:
        disjoint: shape (n, 2).
        edges: sorted instants, shape (windows + 1,).

    Returns:
        Nanoseconds, shape (windows,); their sum is the length covered from the first edge to the last.
    """
    if len(disjoint) == 0:
        return np.zeros(max(len(edges) - 1, 0), dtype=np.int64)
    starts, ends = disjoint[:, 0], disjoint[:, 1]
    begun = np.searchsorted(starts, edges, side="right")  # spans that began by each edge
    length_of_first = np.concatenate(([0], np.cumsum(ends - starts)))
    still_to_come = np.maximum(ends[begun - 1] - edges, 0) * (begun > 0)
    covered: NDArray[np.int64] = np.diff(length_of_first[begun] - still_to_come)
    return covered


def _combine(a: Spans, b: Spans, keep: Callable[[_Mask, _Mask], _Mask]) -> Spans:
    """Sweep over all edges of two disjoint sets and keep the stretches that `keep` picks."""
    edges = np.concatenate((a.ravel(), b.ravel()))
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    # Even positions of a raveled set are starts, odd ones ends.
    steps = np.where(order % 2 == 0, 1, -1)
    of_a = order < a.size
    in_a = np.cumsum(steps * of_a) > 0
    in_b = np.cumsum(steps * ~of_a) > 0
    kept = keep(in_a, in_b)[:-1] if len(edges) else np.empty(0, dtype=np.bool_)
    return union(np.column_stack((edges[:-1][kept], edges[1:][kept])))
