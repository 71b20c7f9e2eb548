"""What a file or folder is: its path, size and date, or its content wherever it lies."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_gpuprof.errors import CacheRefused
from jupyter_gpuprof.store.derivedplace import cache_folder
from jupyter_gpuprof.store.digests import digest

#: Digests of files by device, inode, size and date, so that none is read twice.
_MEMO = "contents.msgpack"
#: A folder with more files than this is not looked through.
MOST_FILES = 500_000
_MOST_REMEMBERED = 2_000_000
_known: dict[tuple[int, int, int, int], bytes] = {}
_loaded: set[Path] = set()


def identity_by_status(text: str) -> bytes | None:
    """Path, size and date of modification; of a folder those of all files below it. None: no such file."""
    if not text.strip(os.sep):
        return None
    path = os.path.abspath(text)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return _folder(path, lambda file: _status(os.stat(file)), path.encode("utf-8", "surrogateescape"))
    return path.encode("utf-8", "surrogateescape") + b"\0" + _status(status)


def identity_by_content(text: str) -> bytes | None:
    """The content, wherever the file lies; of a folder of all files below it. None: no such file."""
    if not text.strip(os.sep):
        return None
    try:
        status = os.stat(text)
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return _folder(text, _content, b"")
    return _content(text)


def remember_contents() -> None:
    """Keep the digests of files for other processes."""
    root = cache_folder()
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = root / f".draft-{secrets.token_hex(4)}"
        draft.write_bytes(msgspec.msgpack.encode(list(_known.items())[-_MOST_REMEMBERED:]))
        os.replace(draft, root / _MEMO)


def _status(status: os.stat_result) -> bytes:
    return b"%d %d" % (status.st_size, status.st_mtime_ns)


def _content(path: str) -> bytes:
    _load()
    status = os.stat(path)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _known:
        with open(path, "rb") as file:
            size, sha256 = digest(file)
        _known[key] = bytes.fromhex(sha256) + b"%d" % size
    return _known[key]


def _load() -> None:
    path = cache_folder() / _MEMO
    if path in _loaded:
        return
    _loaded.add(path)
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        kind = list[tuple[tuple[int, int, int, int], bytes]]
        _known.update(msgspec.msgpack.decode(path.read_bytes(), type=kind))


def _folder(path: str, of_file: Callable[[str], bytes], head: bytes) -> bytes:
    found, count = hashlib.sha256(head), 0
    for folder, folders, files in os.walk(path):
        folders.sort()
        count += len(files)
        if count > MOST_FILES or path == os.path.dirname(path):
            raise CacheRefused(
                f"{path} has too many files to look through.", "Let the code read a list of files instead."
            )
        for name in sorted(files):
            file = os.path.join(folder, name)
            try:
                identity = of_file(file)
            except OSError:
                continue
            shown = os.path.relpath(file, path).encode("utf-8", "surrogateescape")
            found.update(b"%d %s%d " % (len(shown), shown, len(identity)) + identity)
    return found.digest()
