"""Checkpoints as files: written, made durable, read back, and gone again."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from jupyter_gpuprof.probes import trainedstate
from jupyter_gpuprof.records.reading import Missing

#: Waits until a save that goes on in the background has written everything.
Wait = Callable[[], object]


def save_plain(state: Mapping[str, Any], path: Path) -> None:
    """``torch.save``."""
    sys.modules["torch"].save(dict(state), path)


def save_nowhere(value: object) -> None:
    """Pickle it as `save_plain` would, and keep nothing."""
    sys.modules["torch"].save(value, _Nowhere())


def load_plain(path: Path) -> bool:
    """``torch.load`` into the host's memory.

    Returns:
        Whether tensors and plain data are all that is in it. Where not, reading it runs what it says; here
        it is our own file.
    """
    torch = sys.modules["torch"]
    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        torch.load(path, map_location="cpu", weights_only=False)
        return False
    return True


def why_not_asynchronous() -> str:
    """Why torch.distributed.checkpoint cannot be used here, or ""."""
    try:
        import torch.distributed.checkpoint as dcp

        return "" if hasattr(dcp, "async_save") else "this torch has no asynchronous save"
    except ImportError:
        return "this torch comes without torch.distributed"


def save_asynchronously(state: Mapping[str, Any], path: Path, group: Any = None) -> Wait:
    """``torch.distributed.checkpoint.async_save``: back as soon as the state is copied.

    Args:
        state: this rank's.
        path: the same on all ranks.
        group: of all ranks, by way of the host; None for a process that saves alone.
    """
    import torch.distributed.checkpoint as dcp

    pending: Any = dcp.async_save(
        dict(state),
        storage_writer=dcp.FileSystemWriter(path),
        process_group=group,
        no_dist=group is None,
    )
    return getattr(pending, "upload_completion", pending).result  # type: ignore[no-any-return]


def load_distributed(state: Mapping[str, Any], path: Path, group: Any = None) -> None:
    """``torch.distributed.checkpoint.load`` into tensors like those of the state: of the host, or shards."""
    import torch.distributed.checkpoint as dcp

    reader = dcp.FileSystemReader(path)
    dcp.load(_like(dict(state)), storage_reader=reader, process_group=group, no_dist=group is None)


def waiting_for(answer: object) -> Wait | None:
    """How to wait for a save that returned `answer`; None if it returned nothing to wait for."""
    for name in ("result", "join", "wait"):
        method = getattr(answer, name, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
    return None


def make_durable(path: Path) -> None:
    """Wait until the storage has all files below `path`, and their names.

    Raises:
        OSError: the storage failed, or there is nothing.
    """
    for file in files_of(path):
        _sync(file)
    if path.is_dir():
        for folder, _, _ in os.walk(path, topdown=False):
            _sync_folder(Path(folder))
    _sync_folder(path.parent)


def size_bytes(path: Path) -> int:
    """Of all files below `path`."""
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    """The files below `path`, or itself."""
    if path.is_dir():
        return [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    return [path] if path.exists() else []


def forget_cached(path: Path) -> None:
    """Let the system drop its copies in memory, so that reading comes from the storage, where it can."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in files_of(path):
        with suppress(OSError), open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def free_bytes(folder: Path) -> int | Missing:
    """Room on the file system of the folder."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError):
        return Missing("the file system does not tell")
    return found.f_bavail * found.f_frsize


class _Nowhere:
    """A file that forgets."""

    def write(self, data: bytes) -> int:
        return len(data)

    def flush(self) -> None:
        pass


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems know no such thing
        _sync(folder)


def _like(state: Any) -> Any:
    torch = sys.modules["torch"]
    if trainedstate.is_shard(state):
        return torch.empty_like(state)  # it stays on the devices of its mesh
    if isinstance(state, torch.Tensor):
        return torch.empty_like(state, device="cpu")
    if isinstance(state, dict):
        return {key: _like(value) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_like(value) for value in state)
    return state


@contextmanager
def without_remarks() -> Iterator[None]:
    """Without torch's remark, from its thread too, that a single process saves."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        yield
