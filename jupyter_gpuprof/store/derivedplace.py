"""The folder of the derived-data cache: where it is, what is in it, and room for more."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.derived import CacheEntry, CacheReport
from jupyter_gpuprof.store.derivedshard import DamagedShard, Shard

#: Another place for it, and another limit in bytes.
ENVIRONMENT_VARIABLE = "JUPYTER_GPUPROF_CACHE"
LIMIT_VARIABLE = "JUPYTER_GPUPROF_CACHE_BYTES"
LIMIT_BYTES = 64 << 30
SUFFIX = ".shard"
_ABOUT = "entry.json"
_QUARANTINE = "quarantine"
_GONE = ".gone-"


def cache_folder() -> Path:
    """The folder, under the person's cache directory."""
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "jupyter_gpuprof" / "derived"


def limit_bytes() -> int:
    """How much may be kept, in bytes."""
    try:
        return int(os.environ.get(LIMIT_VARIABLE, ""))
    except ValueError:
        return LIMIT_BYTES


def make_folder(folder: Path) -> None:
    """Make an entry's folder; only its owner may read it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(exist_ok=True, mode=0o700)


def shard_names(folder: Path) -> list[str]:
    """The shards of an entry, sorted."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return []


def describe(folder: Path, about: Mapping[str, Any]) -> None:
    """Write what an entry is, unless it is written."""
    if not (folder / _ABOUT).exists():
        draft = folder / f".draft-{secrets.token_hex(4)}"
        draft.write_text(json.dumps(about), encoding="utf-8")
        os.replace(draft, folder / _ABOUT)


def touch(folder: Path) -> None:
    """An entry was used just now."""
    with suppress(OSError):
        os.utime(folder / _ABOUT)


def is_known(root: Path, key: str) -> bool:
    """Whether there is an entry of that key."""
    return (root / key / _ABOUT).exists()


def quarantine(root: Path, path: Path, why: str) -> None:
    """Put a damaged file aside, so that nobody reads it again."""
    with suppress(OSError):
        aside = root / _QUARANTINE
        aside.mkdir(exist_ok=True, mode=0o700)
        os.replace(path, aside / f"{path.parent.name[:16]}-{path.name}")
        (aside / f"{path.parent.name[:16]}-{path.name}.why").write_text(why + "\n", encoding="utf-8")


def report(root: Path | None = None) -> CacheReport:
    """All entries, last used first."""
    root = root or cache_folder()
    entries = [entry for folder in _folders(root) if (entry := _entry(folder)) is not None]
    entries.sort(key=lambda entry: -entry.used_unix_s)
    return CacheReport(str(root), limit_bytes(), tuple(entries), _size_bytes(root / _QUARANTINE))


def verify(root: Path, entry: CacheEntry) -> int:
    """Read everything of an entry; damaged files are put aside.

    Returns:
        How many files were damaged.
    """
    damaged = 0
    for name in shard_names(root / entry.key):
        path = root / entry.key / name
        try:
            shard = Shard(path, _no_unpacker)
            shard.open()
            for row in range(len(shard.items)):
                shard.check(row)
        except FileNotFoundError:
            continue
        except (DamagedShard, OSError, ValueError) as error:
            quarantine(root, path, str(error))
            damaged += 1
    return damaged


def remove(root: Path, key: str) -> None:
    """Take an entry away, all of it at once; who reads it goes on."""
    gone = root / f"{_GONE}{key[:16]}-{secrets.token_hex(4)}"
    with suppress(OSError):
        os.replace(root / key, gone)
    shutil.rmtree(gone, ignore_errors=True)


def prune(root: Path, most_bytes: int, *, unused_s: float | None = None) -> list[CacheEntry]:
    """Take away the damaged, those unused for too long, and the least recently used down to a size.

    Args:
        root: the folder of the cache.
        most_bytes: what may stay.
        unused_s: also those not used for so many seconds.

    Returns:
        The entries that are gone.
    """
    shutil.rmtree(root / _QUARANTINE, ignore_errors=True)
    for left in root.glob(f"{_GONE}*"):
        shutil.rmtree(left, ignore_errors=True)
    entries = report(root).entries
    now_s = clock.unix_ns() * 1e-9
    left_bytes, gone = sum(entry.size_bytes for entry in entries), []
    for entry in reversed(entries):
        if left_bytes > most_bytes or (unused_s is not None and now_s - entry.used_unix_s > unused_s):
            remove(root, entry.key)
            left_bytes -= entry.size_bytes
            gone.append(entry)
    return gone


def make_room(root: Path, most_bytes: int, wanted_bytes: int, key: str) -> bool:
    """Take away least recently used entries, never that of `key`, until so many bytes fit."""
    sizes = {folder: _size_bytes(folder) for folder in _folders(root)}
    left_bytes = sum(sizes.values()) + wanted_bytes
    others = sorted((folder for folder in sizes if folder.name != key), key=_used_s)
    for folder in others:
        if left_bytes <= most_bytes:
            break
        remove(root, folder.name)
        left_bytes -= sizes[folder]
    return left_bytes <= most_bytes


def _folders(root: Path) -> list[Path]:
    try:
        return [
            path
            for path in root.iterdir()
            if path.name[:1] != "." and path.name != _QUARANTINE and path.is_dir()
        ]
    except OSError:
        return []


def _entry(folder: Path) -> CacheEntry | None:
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return CacheEntry(
            key=folder.name,
            name=str(about["name"]),
            created_at=str(about["created_at"]),
            used_unix_s=_used_s(folder),
            items=_count(folder),
            size_bytes=_size_bytes(folder),
            item_s=float(about["item_s"]),
            parts=dict(about["parts"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _count(folder: Path) -> int:
    count = 0
    for name in shard_names(folder):
        try:
            count += len(Shard(folder / name, _no_unpacker).items)
        except (DamagedShard, OSError):
            continue
    return count


def _used_s(folder: Path) -> float:
    try:
        return (folder / _ABOUT).stat().st_mtime
    except OSError:
        return 0.0


def _size_bytes(folder: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return 0


def _no_unpacker(layout: bytes) -> Any:
    return None
