"""Where checkpoints lie: a folder of a file system, or a prefix of an object store.

Both do the same few things. On a file system a checkpoint is written into a draft, a hidden folder, which is
renamed when all of it is safe; an object store knows no rename, so the manifest, written last, is what makes
it a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from jupyter_gpuprof.errors import UsageError

MANIFEST = "manifest.json"
#: Names the newest checkpoint, for people and other programs; loading does not rely on it.
POINTER = "latest"
_PREFIX = "step-"
_DRAFT = ".tmp"
_LOCK = ".writer"


class Place(Protocol):
    """What `jupyter_gpuprof.store.checkpoints.Checkpoints` needs of a storage. All raise OSError."""

    def names(self) -> list[str]:
        """The checkpoints there are, in no order."""

    def create(self, name: str, file: str) -> AbstractContextManager[Any]:
        """A file of a draft, to write; durable when it is closed."""

    def draft_has(self, name: str, file: str) -> bool:
        """Whether a file of a draft is written to its end."""

    def read_draft(self, name: str, file: str) -> bytes:
        """A small file of a draft."""

    def commit(self, name: str) -> None:
        """A draft, with its manifest, becomes a checkpoint."""

    def discard(self, name: str) -> None:
        """Take a draft away."""

    def point_to(self, name: str) -> None:
        """Let the pointer name a checkpoint."""

    def open(self, name: str, file: str) -> BinaryIO:
        """A file of a checkpoint, to read."""

    def remove(self, name: str) -> None:
        """Take a checkpoint away; it is there as a whole or not at all."""

    def claim(self) -> None:
        """Be the only one that writes here, where that can be known (UsageError if somebody else is)."""

    def release(self) -> None:
        """Let others write."""


def place_of(folder: str | os.PathLike[str]) -> Place:
    """The storage that a path or an address ("s3://bucket/run") names.

    Raises:
        UsageError: it is an address, and fsspec is not installed or knows no such kind.
    """
    text = os.fspath(folder)
    if "://" not in text:
        return Folder(Path(text).expanduser().absolute())
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{text} is in an object store, and fsspec is not installed.", "pip install fsspec"
        ) from None
    try:
        system, root = url_to_fs(text)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{text} cannot be opened: {error}.", "Name a folder, or another address.") from None
    return Objects(system, root)


class Disk:
    """The calls to the operating system that change something: the seam for tests that let them fail."""

    def make_folder(self, path: Path) -> None:
        """With its parents, unless it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def open_new(self, path: Path) -> BinaryIO:
        """An empty file, without a buffer of Python's."""
        return open(path, "wb", buffering=0)

    def write(self, file: BinaryIO, data: memoryview) -> int:
        """Write some of it; how much."""
        return file.write(data)

    def sync(self, file: BinaryIO) -> None:
        """Wait until the storage has the file."""
        os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        """Wait until the storage has the names in a folder; some file systems know no such thing."""
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def move(self, path: Path, to: Path) -> None:
        """Rename a file or a folder in one go; a file replaces what was there."""
        os.replace(path, to)

    def remove(self, path: Path) -> None:
        """A file."""
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        """An empty folder."""
        path.rmdir()


class Folder:
    """Checkpoints in a folder of a file system.

    Args:
        root: the folder; made when something is first written.
        disk: what does the work.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self._disk = disk or Disk()
        self._lock: BinaryIO | None = None

    def __str__(self) -> str:
        return str(self.root)

    def names(self) -> list[str]:
        """The checkpoints there are, in no order."""
        try:
            return [path.name for path in self.root.iterdir() if path.name.startswith(_PREFIX)]
        except FileNotFoundError:
            return []

    @contextmanager
    def create(self, name: str, file: str) -> Iterator[Any]:
        """A file of a draft, to write; durable when it is closed, and under its name only then."""
        path = self._draft(name) / file
        part = path.with_name(path.name + ".part")
        self._disk.make_folder(path.parent)
        with self._disk.open_new(part) as opened:
            yield _Unbuffered(opened, self._disk)
            self._disk.sync(opened)
        self._move(part, path)

    def draft_has(self, name: str, file: str) -> bool:
        """Whether a file of a draft is written to its end."""
        return (self._draft(name) / file).exists()

    def read_draft(self, name: str, file: str) -> bytes:
        """A small file of a draft."""
        return (self._draft(name) / file).read_bytes()

    def commit(self, name: str) -> None:
        """A draft, with its manifest, becomes a checkpoint."""
        self._disk.sync_folder(self._draft(name))
        self._move(self._draft(name), self.root / name)
        self._disk.sync_folder(self.root)

    def discard(self, name: str) -> None:
        """Take a draft away."""
        self._empty(self._draft(name))

    def point_to(self, name: str) -> None:
        """Let the pointer name a checkpoint."""
        draft = self.root / f".{POINTER}{_DRAFT}"
        with self._disk.open_new(draft) as opened:
            _Unbuffered(opened, self._disk).write(f"{name}\n".encode())
            self._disk.sync(opened)
        self._move(draft, self.root / POINTER)
        self._disk.sync_folder(self.root)

    def open(self, name: str, file: str) -> BinaryIO:
        """A file of a checkpoint, to read."""
        return open(self.root / name / file, "rb")

    def remove(self, name: str) -> None:
        """Take a checkpoint away; it becomes a draft first, so that no half of it is ever seen."""
        self._move(self.root / name, self._draft(name))
        self._empty(self._draft(name))

    def claim(self) -> None:
        """Be the only process that writes here, and take away drafts that a killed one left.

        A lock of the process, not of the open file: workers that it forked do not hold it when it is gone.

        Raises:
            UsageError: another process saves here.
        """
        try:
            from fcntl import LOCK_EX, LOCK_NB, lockf
        except ImportError:  # not on this system
            return
        if self._lock is not None:
            return
        self._disk.make_folder(self.root)
        lock = open(self.root / _LOCK, "wb")  # noqa: SIM115  held until `release`
        try:
            lockf(lock, LOCK_EX | LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.close()
            raise UsageError(
                f"Another process saves its checkpoints in {self.root}.", "Give each job a folder of its own."
            ) from None
        except OSError:  # a file system without locks
            lock.close()
            return
        self._lock = lock
        for left in self.root.glob(f".*{_DRAFT}"):
            self._empty(left)

    def release(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _draft(self, name: str) -> Path:
        return self.root / f".{name}{_DRAFT}"

    def _move(self, path: Path, to: Path) -> None:
        """Network file systems may do it, lose the answer, and say when asked again that it cannot be."""
        try:
            self._disk.move(path, to)
        except OSError:
            if path.exists() or not to.exists():
                raise

    def _empty(self, path: Path) -> None:
        with suppress(OSError):
            if path.is_dir():
                for file in path.iterdir():
                    self._disk.remove(file)
                self._disk.remove_folder(path)
            else:
                self._disk.remove(path)


class _Unbuffered:
    """A file of which each write is complete."""

    def __init__(self, file: BinaryIO, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[self._disk.write(self._file, left) :]
        return size

    def flush(self) -> None:
        pass


class Objects:
    """Checkpoints in an object store, each below a prefix of its own.

    What is below a prefix without a manifest is no checkpoint. Who else writes there cannot be known.

    Args:
        system: an fsspec file system.
        root: the prefix of them all.
    """

    def __init__(self, system: Any, root: str) -> None:
        self._system, self._root = system, root.rstrip("/")

    def __str__(self) -> str:
        return str(self._system.unstrip_protocol(self._root))

    def names(self) -> list[str]:
        """The checkpoints there are, in no order."""
        self._system.invalidate_cache()
        try:
            found = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        names = (path.rstrip("/").rpartition("/")[2] for path in found)
        return [n for n in names if n.startswith(_PREFIX) and self.draft_has(n, MANIFEST)]

    @contextmanager
    def create(self, name: str, file: str) -> Iterator[Any]:
        """An object of a draft, to write; there when it is closed."""
        opened = self._system.open(self._path(name, file), "wb")
        try:
            yield opened
        except BaseException:
            with suppress(Exception):
                opened.discard()
                opened.closed = True  # closing it would finish the upload
            raise
        opened.close()

    def draft_has(self, name: str, file: str) -> bool:
        """Whether an object of a draft is written."""
        self._system.invalidate_cache()
        return bool(self._system.exists(self._path(name, file)))

    def read_draft(self, name: str, file: str) -> bytes:
        """A small object of a draft."""
        return bytes(self._system.cat_file(self._path(name, file)))

    def commit(self, name: str) -> None:
        """Nothing: its manifest was written last."""

    def discard(self, name: str) -> None:
        """Take a draft away."""
        with suppress(OSError):
            self.remove(name)

    def point_to(self, name: str) -> None:
        """Let the pointer name a checkpoint: one object, written in one go."""
        self._system.pipe_file(f"{self._root}/{POINTER}", f"{name}\n".encode())

    def open(self, name: str, file: str) -> BinaryIO:
        """An object of a checkpoint, to read."""
        opened: BinaryIO = self._system.open(self._path(name, file), "rb")
        return opened

    def remove(self, name: str) -> None:
        """Take a checkpoint away, its manifest first: without, it is none."""
        with suppress(FileNotFoundError):
            self._system.rm_file(self._path(name, MANIFEST))
        with suppress(FileNotFoundError):
            self._system.rm(f"{self._root}/{name}", recursive=True)

    def claim(self) -> None:
        """Cannot be known."""

    def release(self) -> None:
        """Nothing to do."""

    def _path(self, name: str, file: str) -> str:
        return f"{self._root}/{name}/{file}"
