"""Hold an interrupt back for a moment: between starting a process and knowing it, and while ending it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def held() -> Iterator[None]:
    """Within it, Ctrl-C and the Stop button do nothing; what came meanwhile is raised at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    came: list[tuple[Any, ...]] = []
    before = signal.signal(signal.SIGINT, lambda *facts: came.append(facts))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[-1])
