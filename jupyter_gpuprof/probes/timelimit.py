"""A time limit for calls that cannot be interrupted: they run in one thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class NotAnswered(Exception):
    """The call did not return in time; it is still going on in its thread."""


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self.done.set()


class PatientThread:
    """One daemon thread that does calls in order, for a caller that does not wait for ever.

    A call that hangs keeps the thread; until it returns, each further call is refused at once, so threads
    never pile up and the hung library is never entered twice. What it returns late is thrown away.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _Job | None = None

    @property
    def busy(self) -> bool:
        """Whether a call that was given up is still going on."""
        return self._last is not None and not self._last.done.is_set()

    def call(self, call: Callable[[], T], limit_s: float) -> T:
        """What the call returns or raises.

        Raises:
            NotAnswered: it did not return within `limit_s` seconds, or an earlier one still has not.
        """
        if self.busy:
            raise NotAnswered
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        job = self._last = _Job(call)
        self._jobs.put(job)
        if not job.done.wait(limit_s):
            raise NotAnswered
        if job.error is not None:
            raise job.error
        value: T = job.value
        return value

    def close(self, limit_s: float) -> None:
        """End the thread; one that hangs ends when its call returns."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(limit_s)
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # what it holds is not kept until the next one
