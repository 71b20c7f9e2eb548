"""One line on the terminal, updated in place."""

from __future__ import annotations

import sys


class Line:
    """Written over itself; `clear` takes it away."""

    def __init__(self) -> None:
        self._width = 0

    def write(self, text: str) -> None:
        """Put `text` in its place."""
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def clear(self) -> None:
        """Leave nothing, if it ever was written."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
