"""Which files a process writes: those of a folder of ours are counted, all others refused.

Python tells of each file that is opened or renamed before it happens (`sys.addaudithook`); what torch writes
by itself is told by a wrapper. It counts, and says when, so that a process can be killed at the same write
again; `jupyter_gpuprof.probes.writeguard` only refuses. The hook cannot be removed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Folders of compiled code, which are nobody's results; torch names the first in the environment by itself.
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
#: What is about to happen, by the audit event: the places of the paths among its arguments.
_EVENTS = {
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
}


class FileWatch:
    """Watches from `start` until the process ends.

    Args:
        inside: the folder where the process may write.
        also: other folders where it may.
        refuse: whether writing elsewhere is refused, with a PermissionError.
        on_write: told what is about to be written inside: "open", "rename", "remove" and so on, and the path.
        on_refusal: told a path outside.
    """

    def __init__(
        self,
        inside: Path,
        *,
        also: Sequence[Path] = (),
        refuse: bool,
        on_write: Callable[[str, str], None],
        on_refusal: Callable[[str], None],
    ) -> None:
        self._inside = os.path.realpath(inside)
        caches = [os.environ[name] for name in _CACHES if os.environ.get(name)]
        self._allowed = [self._inside, *map(os.path.realpath, [*map(str, also), *caches])]
        self._refuse, self._on_write, self._on_refusal = refuse, on_write, on_refusal
        self._process = os.getpid()
        self._home = os.path.realpath(os.path.expanduser("~"))
        self._temporary = os.path.realpath(tempfile.gettempdir())

    def start(self) -> None:
        """Watch from now on."""
        sys.dont_write_bytecode = True
        sys.addaudithook(self._heard)
        if "torch" in sys.modules:
            self._watch_torch()

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else flags & _WRITE_FLAGS
            if writes:
                self._about_to("open", path)
        elif event in _EVENTS:
            for place in _EVENTS[event]:
                self._about_to(event.removeprefix("os."), args[place], counted=place == _EVENTS[event][-1])

    def _about_to(self, what: str, path: Any, *, counted: bool = True) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # an open file's number
        text = os.fsdecode(path)
        # A link itself is what is renamed or removed, not what it leads to.
        real = os.path.realpath(text) if what in ("open", "truncate") else _real_parent(text)
        if _is_under(real, self._inside):
            if counted and os.getpid() == self._process:
                self._on_write(what, os.path.relpath(real, self._inside))
            return
        if what == "mkdir" and os.path.isdir(real):
            return  # it will only be told that it is there
        if self._refuse and not self._harmless(real):
            self._on_refusal(real)
            raise PermissionError(f"The audit does not let the cell write {real}")

    def _harmless(self, path: str) -> bool:
        """Devices, folders of this process's own, sockets of workers, and caches."""
        if any(_is_under(path, folder) for folder in (*self._allowed, "/dev", "/proc")):
            return True
        if os.path.dirname(path) == self._temporary and os.path.basename(path).startswith("pymp-"):
            return True
        return _is_under(path, self._home) and os.path.relpath(path, self._home).startswith(".")

    def _watch_torch(self) -> None:
        """torch opens the files that it is given by their names itself."""
        from torch import serialization

        kind = serialization._open_zipfile_writer_file
        original: Any = kind.__init__

        def __init__(writer: Any, name: Any) -> None:
            if name.isascii():
                self._about_to("open", name)  # else it is opened by Python
            original(writer, name)

        setattr(kind, "__init__", __init__)  # noqa: B010


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _real_parent(path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)
