"""Keeps this kernel from being freed: for a time, or for the length of a ``with`` block."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.idleness import Keep

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_lock = threading.Lock()
_keeps: dict[int, Keep] = {}
_keys = itertools.count()
_listeners: list[Callable[[Keep | None], None]] = []


class keep:
    """Asks that this kernel be left alone, from now on.

    As a ``with`` block it holds as long as the block runs, as a plain call for `for_s` seconds. Whatever is
    asked for, the policy's maximum holds::

        with jupyter_gpuprof.keep(why="the evaluation waits for a thread"):
            ...

    Args:
        for_s: seconds, or words such as "2h" (see `parse_span`); None until the
            block, or the kernel, ends.
        why: what for; shown where somebody asks who holds the device.

    Raises:
        OptionError: `for_s` is no time.
    """

    def __init__(self, for_s: float | str | None = None, *, why: str = "") -> None:
        seconds = math.inf if for_s is None else parse_span(for_s) if isinstance(for_s, str) else float(for_s)
        if not seconds > 0:
            raise OptionError(f"A kernel is kept for a time above 0, not {for_s!r}.")
        now_s = clock.now_s()
        self.asked = Keep(now_s, now_s + seconds, why)
        with _lock:
            self._key = next(_keys)
            _keeps[self._key] = self.asked
        _tell()

    def end(self) -> None:
        """Not any longer."""
        with _lock:
            _keeps.pop(self._key, None)
        _tell()

    def __enter__(self) -> keep:
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()


def current_keep() -> Keep | None:
    """The keep that lasts longest of those in force; None without one."""
    now_s = clock.now_s()
    with _lock:
        for key in [key for key, asked in _keeps.items() if asked.until_s <= now_s]:
            del _keeps[key]
        return max(_keeps.values(), key=lambda asked: asked.until_s, default=None)


def end_keeps() -> int:
    """End all of them; how many there were."""
    with _lock:
        ended = len(_keeps)
        _keeps.clear()
    _tell()
    return ended


def on_keep(listener: Callable[[Keep | None], None]) -> None:
    """Tell a function the keep in force whenever one begins or ends (to write it to the ledger)."""
    if listener not in _listeners:
        _listeners.append(listener)


def parse_span(text: str) -> float:
    """Seconds of words: ``90``, ``90s``, ``30m``, ``2h``, ``1h30m``, ``7d``.

    Raises:
        OptionError: they name no time.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd]?)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != "".join(text.lower().split()):
        raise OptionError(f"{text!r} is no time: write 90s, 30m, 2h or 1h30m.")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _tell() -> None:
    asked = current_keep()
    for listener in _listeners:
        listener(asked)
