"""What a command writes beside what it prints: a file that cannot be written loses nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from jupyter_gpuprof.errors import GpuprofError


def write(path: Path | None, text: Callable[[], str]) -> None:
    """Write a file, or say in one sentence why not.

    Args:
        path: where to; None for nowhere.
        text: makes what is written.
    """
    if path is None:
        return
    try:
        path.write_text(text(), encoding="utf-8")
    except (OSError, ImportError, GpuprofError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        print(f"jupyter gpuprof: {path} was not written: {why}", file=sys.stderr)
