"""A trial of a plain loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.session.sweeps.guard import Guard
from jupyter_gpuprof.session.sweeps.live import LiveTrial, number_of
from jupyter_gpuprof.session.sweeps.plainbook import PlainBook
from jupyter_gpuprof.session.sweeps.stopping import Interrupter, TrialStopped

_here = threading.local()


def trial_here() -> LiveTrial | None:
    """The trial that runs in this thread."""
    live: LiveTrial | None = getattr(_here, "live", None)
    return live


def set_trial_here(live: LiveTrial | None) -> None:
    """A trial begins or ends in this thread."""
    _here.live = live


class Trial:
    """One trial of a plain loop: a ``with`` block whose body the budget may end.

    Args:
        guard, book: of the study.
        params: its configuration, for the report.
    """

    def __init__(self, guard: Guard, book: PlainBook, params: Any) -> None:
        self._guard, self._book, self._params = guard, book, params
        self._live: LiveTrial | None = None
        self._outer: LiveTrial | None = None  # the trial of this thread that it runs in
        self._is_open = False

    def __enter__(self) -> Trial:
        if self._is_open:
            raise UsageError("This trial runs already.", "Begin another one: budget.trial(params).")
        self._live = self._guard.begin(self._make)
        self._outer, self._is_open = trial_here(), True
        set_trial_here(self._live)
        return self

    @property
    def number(self) -> int:
        """Of the study."""
        return self._live.number if self._live is not None else self._running().number

    @property
    def why_stopped(self) -> str:
        """Why the trial was stopped, one sentence; "" if it was not."""
        return self._live.why if self._live is not None else ""

    def report(self, step: int, value: float) -> None:
        """The trial has come to a step, with this value.

        Raises:
            TrialStopped: the trial must stop; the ``with`` block takes it, and the loop goes on below it.
            UsageError: the trial does not run, or the step is no number.
        """
        live = self._running()
        try:
            at = int(step)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"A step is a whole number, not {step!r}.") from None
        if self._guard.report(live, at, number_of(value)):
            raise TrialStopped

    def on_stop(self, hook: Callable[[], Any]) -> None:
        """Call a function before the trial is stopped, such as ``checkpointer.save``."""
        self._running().on_stop(hook)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        live = self._running()
        stopped = isinstance(error, TrialStopped)
        if stopped:
            live.run_hooks()
        close(live)
        set_trial_here(self._outer)
        self._is_open = False
        state = "stopped" if stopped else "failed" if error is not None else "completed"
        self._guard.end(live, state=state)
        return stopped

    def _make(self, now_s: float, now_unix_s: float) -> LiveTrial:
        facts = {"params": params_words(self._params), "state": "running"}
        number = self._book.begin({**facts, "began": now_unix_s, "at": now_unix_s})
        return LiveTrial(number, now_s, now_unix_s, Interrupter(TrialStopped), facts)

    def _running(self) -> LiveTrial:
        if self._live is None or not self._is_open:
            raise UsageError(
                "The trial does not run.", "A trial is a with block: with budget.trial(params) as trial: ..."
            )
        return self._live


def close(live: LiveTrial) -> None:
    """From here on the trial is not interrupted any more."""
    if live.interrupter is not None:
        try:
            live.interrupter.close()
        except BaseException as error:  # the interrupt itself, in the moment before
            live.interrupter.close()
            if isinstance(error, KeyboardInterrupt):
                raise


def params_words(params: Any) -> str:
    """A configuration in words: ``lr=0.1, width=64``."""
    if isinstance(params, dict):
        return ", ".join(f"{name}={value!r}" for name, value in params.items())[:500]
    return "" if params is None else repr(params)[:500]
