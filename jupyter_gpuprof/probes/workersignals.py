"""Loader workers that go on when the job is told to end: only the process that started them may end them.

A launcher sends SIGTERM to every process of the job. Workers that die of it take the training process down
at its next batch, before it has saved.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any


class GoOn:
    """A ``worker_init_fn`` that calls the person's own; SIGTERM ends the worker only if its parent sent it.

    Args:
        own: the person's function, if there is one.
    """

    def __init__(self, own: Callable[[int], Any] | None) -> None:
        self.own = own

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        __tracebackhide__ = True
        if hasattr(signal, "sigwaitinfo"):
            # Blocked in all threads, so that it stays pending until our thread looks who sent it: ignoring it
            # would make a worker that is still there at the parent's exit hang.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            threading.Thread(target=_look, args=(os.getppid(),), name="gpuprof sigterm", daemon=True).start()
        for name in ("SIGUSR1", "SIGUSR2"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        if self.own is not None:
            self.own(worker_id)


def _look(parent: int) -> None:
    while True:
        sent = signal.sigwaitinfo({signal.SIGTERM})
        if sent.si_pid == parent:
            os._exit(0)
