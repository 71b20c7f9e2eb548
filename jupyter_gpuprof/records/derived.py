"""What is kept of derived data, and how a training run prepares its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jupyter_gpuprof.records.codec import encode


@dataclass(frozen=True)
class CacheEntry:
    """Results of one function over one input, kept in files.

    Args:
        key: the digest of all that they depend on; the name of their folder.
        name: of the function or data set.
        created_at: UTC, ISO 8601.
        used_unix_s: when it was last opened or added to, in seconds since 1970.
        items: how many results are kept.
        size_bytes: of all its files.
        item_s: seconds that one result took to compute, the mean of the first ones; 0 if none was timed.
        parts: what the results depend on, each with its digest or version.
    """

    key: str
    name: str
    created_at: str
    used_unix_s: float
    items: int
    size_bytes: int
    item_s: float
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheReport:
    """All that is kept in a folder, last used first; `quarantined_bytes` are damaged files put aside."""

    folder: str
    limit_bytes: int
    entries: tuple[CacheEntry, ...]
    quarantined_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Of all entries together."""
        return sum(entry.size_bytes for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        encoded = encode(self)
        assert isinstance(encoded, dict)
        return encoded


@dataclass(frozen=True)
class Preparation:
    """How the training loader's data set makes its samples, by reading its code.

    Args:
        key: the digest of the code, its settings and the versions of the libraries; not of the data.
        name: of the data set's class.
        kind: "deterministic" (all of it can be kept), "split" (what comes before `reason` can), "varying".
        reason: the call that gives something else each time; "" if there is none.
    """

    key: str
    name: str
    kind: Literal["deterministic", "split", "varying"]
    reason: str = ""


@dataclass(frozen=True)
class Repeated:
    """The same preparation in several runs.

    Args:
        name: of the data set.
        runs: how many runs had it.
        idle_s: device seconds that the runs after the first waited for what the first had computed already.
    """

    name: str
    runs: int
    idle_s: float
