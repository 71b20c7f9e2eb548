"""The only reader of clocks.

Durations come from the monotonic clock, dates from the wall clock; nothing else in the package reads
either, so tests can put a scripted clock in their place.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

#: Monotonic host time in nanoseconds. Bound once: hooks call it without a wrapper's cost.
now_ns = time.perf_counter_ns


#: Processor time of the calling thread in nanoseconds: stands still while the thread waits.
thread_ns = time.thread_time_ns

#: Processor time of this process, all its threads together, in nanoseconds.
process_ns = time.process_time_ns


def now_s() -> float:
    """Monotonic host time in seconds."""
    return now_ns() * 1e-9


def utc_now() -> str:
    """The date and time in UTC, ISO 8601 with seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def unix_ns() -> int:
    """Wall-clock time in nanoseconds since 1970, the clock of Kineto's traces."""
    return time.time_ns()
