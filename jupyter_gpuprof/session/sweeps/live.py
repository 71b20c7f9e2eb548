"""One trial that runs in this process: its device time, its reports, and what is done before it stops."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import Counted, RunningTrial
from jupyter_gpuprof.session.sweeps.stopping import Interrupter

#: So many reports are kept with their moments; beyond, every second one is dropped.
_MOST_MARKS = 512
#: A trial that is to stop has so long to come to its next report before it is interrupted.
_LEAST_GRACE_S, _MOST_GRACE_S = 1.0, 60.0


class LiveTrial:
    """A trial that runs.

    Args:
        number: of the study.
        now_s, now_unix_s: when it began, monotonic and as a date.
        interrupter: of its thread; None where it cannot be interrupted.
        facts: what else the books keep of it.
    """

    def __init__(
        self,
        number: int,
        now_s: float,
        now_unix_s: float,
        interrupter: Interrupter | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.number = number
        self.began_unix_s = now_unix_s
        self.device_s = 0.0
        self.devices: float | None = None  # its own number, where it differs from the budget's
        self.counted: Counted = "assumed"
        self.interrupter = interrupter
        self.facts = facts if facts is not None else {}
        #: Step, date, device seconds until then, and the value, None where it is no number.
        self.marks: list[tuple[int, float, float, float | None]] = []
        self.step: Number = Missing("it has not reported")
        self.step_s: Number = Missing("it has reported fewer than two steps")
        self.why = ""  # why it was stopped
        self.stop_since_s: float | None = None
        self.interrupted = 0
        self.saving = False  # what is done before the stop is not interrupted
        self.ended = False
        self._reported_s = self._began_s = now_s
        self._longest_s = 0.0
        self._hooks: list[Callable[[], Any]] = []

    def mark(self, step: int, value: Number, now_s: float, now_unix_s: float) -> None:
        """It has reported."""
        if not isinstance(self.step, Missing) and step > self.step:
            self.step_s = (now_s - self._reported_s) / (step - self.step)
        self._longest_s = max(self._longest_s, now_s - self._reported_s)
        self.step, self._reported_s = step, now_s
        kept = None if isinstance(value, Missing) else float(value)
        self.marks.append((step, now_unix_s, self.device_s, kept))
        if len(self.marks) > _MOST_MARKS:
            del self.marks[1:-1:2]

    @property
    def grace_s(self) -> float:
        """How long to wait for its next report before it is interrupted: three times its longest pause."""
        return min(max(3 * self._longest_s if self.marks else 0.0, _LEAST_GRACE_S), _MOST_GRACE_S)

    def standing(self, next_step: Number) -> RunningTrial:
        """What the decision about it rests on."""
        return RunningTrial(self.number, self.step, next_step, self.step_s)

    def body(self, now_unix_s: float) -> dict[str, Any]:
        """What the books keep of it."""
        return {
            **self.facts,
            "device_s": self.device_s,
            "counted": self.counted,
            "at": now_unix_s,
            "began": self.began_unix_s,
            "marks": [list(mark) for mark in self.marks],
            "stopped": self.why,
            "closed": self.ended,
        }

    def on_stop(self, hook: Callable[[], Any]) -> None:
        """Call a function in the trial's thread before it is stopped, such as ``checkpointer.save``."""
        self._hooks.append(hook)

    def run_hooks(self) -> None:
        """Call them, each once; one that fails is a warning."""
        self.saving = True
        try:
            while self._hooks:
                self._run(self._hooks.pop(0))
        finally:
            self.saving, self.stop_since_s = False, None

    def _run(self, hook: Callable[[], Any]) -> None:
        try:
            hook()
        except Exception as error:
            warnings.warn(
                f"gpuprof: what was to be done before trial {self.number} stops failed "
                f"({type(error).__name__}: {error}).",
                stacklevel=4,
            )


def number_of(value: Any) -> Number:
    """A reported value; missing where it is no finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return Missing(f"it reported {type(value).__name__}")
    return number if math.isfinite(number) else Missing("it reported no finite number")
