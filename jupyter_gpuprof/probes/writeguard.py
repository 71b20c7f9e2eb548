"""Stop a rerun from writing over the person's files, where reading the source did not show that it writes.

For a fresh process of ours only: Python cannot take an audit hook out again. What writes through a C library
of its own (HDF5, Arrow) is not seen here; the reading of the source knows the common ones by name.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import WritesFiles

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Of the events that name paths, which of their arguments they change.
_CHANGED = {"os.remove": (0,), "os.rename": (0, 1), "os.truncate": (0,), "shutil.rmtree": (0,)}
_DEVICES = (Path("/dev"), Path("/proc"))


class WriteGuard:
    """Refuses to open a file for writing, and to move or remove one, but for temporary and hidden ones.

    Caches of libraries stand in hidden folders; the temporary folder goes with the rerun.

    Args:
        scratch: a folder in which anything may be written.
    """

    def __init__(self, scratch: Path) -> None:
        temporary = Path(tempfile.gettempdir()).resolve()
        free = [scratch.resolve(), *_DEVICES]
        if temporary not in Path.cwd().resolve().parents:
            free.append(temporary)
        self._free = tuple(free)
        #: What was refused first, in one sentence; "" for nothing.
        self.refused = ""

    def install(self) -> None:
        """From here on, for the rest of the process's life."""
        sys.addaudithook(self._event)
        torch: Any = sys.modules.get("torch")
        if torch is not None:  # its writer opens files in C++, where no event is raised
            torch.save = torch.serialization.save = self._checked(torch.save)

    def _checked(self, save: Any) -> Any:
        def checked(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self._look(f)
            return save(obj, f, *args, **kwargs)

        return checked

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            words = isinstance(mode, str) and any(letter in mode for letter in "wax+")
            if words or (mode is None and isinstance(flags, int) and flags & _WRITING):
                self._look(path)
        elif event in _CHANGED:
            for index in _CHANGED[event]:
                self._look(args[index])

    def _look(self, path: object) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor, or a file that is open already
        place = Path(os.path.abspath(os.fsdecode(path)))
        here = Path.cwd()
        parts = place.relative_to(here).parts if here in place.parents else place.parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            return
        if any(folder == place or folder in place.parents for folder in self._free):
            return
        error = WritesFiles(
            f"A rerun of the cell would write {place}, where the cell wrote (--allow-writes lets it)."
        )
        self.refused = self.refused or str(error)
        raise error
