"""Sweeps as tests want them, a guard on a scripted clock, and books in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import Sweep, SweepPoint, SweepTerms, SweepTrial
from jupyter_gpuprof.session.sweeps.guard import Asked, Guard
from jupyter_gpuprof.session.sweeps.live import LiveTrial
from jupyter_gpuprof.session.sweeps.plainbook import PlainBook
from jupyter_gpuprof.testing import FakeClock

BEGAN = 1_000_000.0


def trial(
    number: int,
    values: Sequence[float | None],
    *,
    began: float | None = None,
    pace_s: float = 10.0,
    devices: float = 1.0,
    state: str = "completed",
    **fields: Any,
) -> SweepTrial:
    """Reports `values` at steps 0, 1, 2, ... every `pace_s`; by default trials follow one another."""
    start = BEGAN + number * pace_s * len(values) if began is None else began
    points = tuple(
        SweepPoint(
            step,
            Missing("NaN") if value is None else value,
            start + (step + 1) * pace_s,
            (step + 1) * pace_s * devices,
        )
        for step, value in enumerate(values)
    )
    length_s = pace_s * len(values)
    last: Number = points[-1].value if points and state == "completed" else Missing("none")
    given = {
        "end_unix_s": start + length_s,
        "device_s": length_s * devices,
        "points": points,
        "value": last,
        **fields,
    }
    return SweepTrial(number, state, start, **given)  # type: ignore[arg-type]


def sweep(*trials: SweepTrial, direction: Any = "minimize", terms: SweepTerms | None = None) -> Sweep:
    return Sweep("study", direction, Missing("no budget") if terms is None else terms, trials)


class Bench:
    """A guard without a thread, on a clock that is moved by hand.

    Args:
        study: of the ledger file.
        options: of the guard's `Asked`.
    """

    def __init__(self, study: str = "s", *, losing: Any = None, **options: Any) -> None:
        self.clock = FakeClock()
        self.book = PlainBook(study)
        self.guard = Guard(
            self.book,
            Asked(**options),
            losing=losing,
            timer=False,
            now_s=lambda: self.clock() * 1e-9,
            now_unix_s=lambda: BEGAN + self.clock() * 1e-9,
        )

    def begin(self, interrupter: Any = None) -> LiveTrial:
        def make(now_s: float, now_unix_s: float) -> LiveTrial:
            body = {"state": "running", "began": now_unix_s, "at": now_unix_s}
            return LiveTrial(self.book.begin(body), now_s, now_unix_s, interrupter, {"state": "running"})

        return self.guard.begin(make)

    def run(self, live: LiveTrial, values: Sequence[float | None], pace_s: float = 1.0) -> str:
        """Report the values, one every `pace_s`, until it must stop; why it did."""
        for step, value in enumerate(values):
            self.clock.advance(pace_s)
            why = self.guard.report(live, step, Missing("NaN") if value is None else value)
            if why:
                return why
        return ""
