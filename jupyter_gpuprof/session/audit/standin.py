"""A folder that stands for the person's: what is read is there, what is written stays in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from jupyter_gpuprof.errors import OptionError


@dataclass(frozen=True)
class Folders:
    """The folders that a loop keeps its checkpoints in.

    Args:
        hidden: relative paths, which the stand-in begins without.
        variables: names of variables that hold a path.
    """

    hidden: tuple[PurePath, ...] = ()
    variables: tuple[str, ...] = ()


def folders_of(words: Sequence[str], namespace: Mapping[str, Any]) -> Folders:
    """What ``--folder`` names: a variable that holds a path, or a path as the cell writes it.

    Raises:
        OptionError: it is a path that the audit cannot put another in the place of.
    """
    hidden, variables = list[PurePath](), list[str]()
    for word in words:
        if isinstance(namespace.get(word), (str, PurePath)):
            variables.append(word)
            continue
        path = PurePath(os.path.normpath(word))
        if path.is_absolute() or path.parts[:1] in ((), ("..",)) or "~" in word:
            raise OptionError(
                f"--folder {word} is neither a variable nor a folder below the current one.",
                "Put the path into a variable that the cell uses, and name that.",
            )
        hidden.append(path)
    return Folders(tuple(hidden), tuple(variables))


def stand_in(real: Path, place: Path, hidden: Sequence[PurePath]) -> None:
    """Make `place` look like `real`, by links, but for what is hidden: of a folder, what is in it.

    Raises:
        OSError: links cannot be made there.
    """
    place.mkdir()
    for entry in os.scandir(real):
        inside = [path for path in hidden if path.parts[0] == entry.name]
        if any(len(path.parts) == 1 for path in inside):
            if entry.is_dir():  # an earlier cell made it
                (place / entry.name).mkdir()
            continue
        if inside and entry.is_dir():
            stand_in(Path(entry.path), place / entry.name, [PurePath(*path.parts[1:]) for path in inside])
        else:
            os.symlink(os.path.abspath(entry.path), place / entry.name)
