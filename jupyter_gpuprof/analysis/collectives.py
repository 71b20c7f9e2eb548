"""The same collectives on all ranks of a job, whatever their clocks say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.records.trace import Collectives, OpKind, RankTrace

#: Clocks that differ by less are taken to agree: ranks of one machine differ by microseconds.
CLOCKS_AGREE_NS = 200_000
#: Where ranks recorded different numbers of collectives, so many shifts are tried to each side.
_SHIFTS = 32


@dataclass(frozen=True, eq=False)
class Match:
    """Collectives found on all ranks.

    Args:
        collectives: with the clocks aligned.
        ahead_ns: how far each rank's clock is ahead of the median one, shape (ranks,); 0 where it agrees.
        notes: what to know about them, in sentences.
    """

    collectives: Collectives
    ahead_ns: NDArray[np.int64]
    notes: tuple[str, ...] = ()


def match_collectives(traces: Sequence[RankTrace]) -> Match:
    """Find the same collectives on all ranks.

    Those of one kind and process group are matched by their order; where a rank recorded more of them
    than another, by when they ended. As a collective ends on all ranks together, the ends also tell how
    far the clocks are apart. What then does not overlap on all ranks is left out: it is point to point,
    or of a part of the ranks.
    """
    per_rank = [_spans_by_kind(trace) for trace in traces]
    kinds = sorted(set(per_rank[0]).intersection(*per_rank[1:])) if len(traces) > 1 else []
    blocks = [_align([spans[kind] for spans in per_rank]) for kind in kinds]
    names = np.repeat(kinds, [len(block) for block in blocks]) if blocks else np.empty(0, dtype=str)
    span_ns = np.concatenate([np.empty((0, len(traces), 2), dtype=np.int64), *blocks])
    ahead_ns = _clocks_ahead(span_ns)
    span_ns = span_ns - ahead_ns[:, None]
    overlap = _last_start(span_ns) <= _first_end(span_ns)
    names, span_ns = names[overlap], span_ns[overlap]
    order = np.argsort(_first_end(span_ns), kind="stable")
    found = Collectives(tuple(names[order].tolist()), span_ns[order])
    recorded = sum(len(spans) for of_rank in per_rank for spans in of_rank.values())
    return Match(found, ahead_ns, _notes(recorded - span_ns.shape[0] * span_ns.shape[1], ahead_ns))


def _notes(unmatched: int, ahead_ns: NDArray[np.int64]) -> tuple[str, ...]:
    notes = []
    if unmatched and len(ahead_ns) > 1:
        notes.append(f"{unmatched} communication ops have no counterpart on all ranks and are not compared.")
    apart_ms = np.ptp(ahead_ns) * 1e-6
    if apart_ms:
        notes.append(
            f"The clocks of the ranks are {apart_ms:.1f} ms apart; the ends of collectives align them."
        )
    return tuple(notes)


def _spans_by_kind(trace: RankTrace) -> dict[str, NDArray[np.int64]]:
    """The spans of each kind of collective on one rank, in order."""
    if len(trace.ops):
        communicates = trace.ops.kind == OpKind.COMMUNICATION
        span_ns, kind_id = trace.ops.span_ns[communicates], trace.ops.collective_id[communicates]
    else:
        span_ns, kind_id = trace.collectives.span_ns, trace.collectives.name_id
    return {trace.names[kind]: span_ns[kind_id == kind] for kind in set(kind_id.tolist())}


def _align(sequences: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The same collectives of each rank, shape (n, ranks, 2), n that of the rank with the fewest."""
    shortest = min(sequences, key=len)
    aligned = []
    for spans in sequences:
        surplus = len(spans) - len(shortest)
        near = int(np.searchsorted(spans[:, 1], shortest[0, 1]))
        shifts = [s for s in range(surplus + 1) if abs(s - near) <= _SHIFTS] or [0, surplus]
        apart = [_median(np.abs(spans[s : s + len(shortest), 1] - shortest[:, 1])) for s in shifts]
        shift = shifts[int(np.argmin(apart))]
        aligned.append(spans[shift : shift + len(shortest)])
    return np.stack(aligned, axis=1)


def _clocks_ahead(span_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far each rank's clock is ahead of the median one; 0 where it agrees."""
    if not len(span_ns):
        return np.zeros(span_ns.shape[1], dtype=np.int64)
    after_first_ns = _median(span_ns[:, :, 1] - span_ns[:, :1, 1])
    ahead_ns = after_first_ns - _median(after_first_ns)
    ahead_ns[np.abs(ahead_ns) < CLOCKS_AGREE_NS] = 0
    return ahead_ns


def _last_start(span_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    latest: NDArray[np.int64] = span_ns[:, :, 0].max(axis=1)
    return latest


def _first_end(span_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    earliest: NDArray[np.int64] = span_ns[:, :, 1].min(axis=1)
    return earliest


def _median(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lower median over the first axis; np.median would import numpy.ma, which takes 10 ms."""
    middle: NDArray[np.int64] = np.sort(values, axis=0)[(len(values) - 1) // 2]
    return middle
