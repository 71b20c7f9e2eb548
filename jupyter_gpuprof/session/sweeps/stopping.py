"""Raise an exception in the thread of a trial that does not come to its next report.

The main thread is reached by a signal: it interrupts Python code and whatever waits in the operating system
(``sleep``, sockets, locks of Python). Another thread gets the exception at its next Python instruction; a
wait in the operating system is not cut short. Neither reaches code in C that does not come back to Python.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import Any

#: Its default is to be ignored, and hardly any program uses it.
_SIGNAL = getattr(signal, "SIGURG", None)


class TrialStopped(BaseException):
    """Ends the body of a trial whose budget is spent; the ``with`` block of the trial takes it."""


class Interrupter:
    """Interrupts the thread that made it, until it is closed.

    Args:
        exception: raised there, without arguments.
    """

    def __init__(self, exception: type[BaseException]) -> None:
        self._exception = exception
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._closed = self._due = False
        self._before: Any = None
        self._signals = (
            _SIGNAL is not None
            and hasattr(signal, "pthread_kill")
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(_SIGNAL) is signal.SIG_DFL
        )
        if self._signals:
            self._before = signal.signal(_SIGNAL, self._on_signal)  # type: ignore[arg-type]

    def interrupt(self) -> None:
        """Raise it there; to be called from another thread."""
        with self._lock:
            if self._closed:
                return
            self._due = True
            if self._signals:
                signal.pthread_kill(self._thread, _SIGNAL)  # type: ignore[arg-type]
            else:
                thread, exception = ctypes.c_ulong(self._thread), ctypes.py_object(self._exception)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, exception)

    def close(self) -> None:
        """Nothing is raised any more once this has returned; what comes meanwhile is dropped."""
        while True:
            try:
                self._close()
                return
            except self._exception:
                continue  # it came after the trial had ended

    def _close(self) -> None:
        self._closed = True  # before the lock: a signal's handler may run while we hold it
        with self._lock:
            is_coming = self._due and not self._signals
        if is_coming:
            # Let it come: Python 3.11 hangs under a debugger or coverage once one was taken back.
            for _ in range(100):
                pass
        if self._signals and signal.getsignal(_SIGNAL) == self._on_signal:  # type: ignore[arg-type]
            signal.signal(_SIGNAL, self._before)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._due and not self._closed:
            self._due = False
            raise self._exception
