"""The kept results of one key: read by many processes, added to by one at a time.

A process gathers what it computes and adds it as one more shard: written under a hidden name and renamed
while it holds the lock of the folder. The system frees the lock of a process that ends, however it ends.
Readers take no lock; they see whole shards only.
"""

from __future__ import annotations

import os
import secrets
import threading
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jupyter_gpuprof import clock
from jupyter_gpuprof.store import derivedplace
from jupyter_gpuprof.store.derivedshard import DamagedShard, Result, Shard, Unpack, write_shard

#: A shard is written when so many bytes have come together, or after so many seconds.
SHARD_BYTES = 64 << 20
SHARD_S = 10.0
#: While another process writes, so many bytes wait at most; more are not kept.
_MOST_WAITING_BYTES = 4 * SHARD_BYTES
#: At the end of a process, how often it is tried, and seconds between.
_LAST_TRIES, _LAST_WAIT_S = 40, 0.1
#: So many files are mapped at once.
_MOST_OPEN = 64
MISS = object()


class Derived:
    """The results of one key.

    Args:
        root: the folder of the cache.
        key: names the folder inside.
        about: what `jupyter_gpuprof.records.derived.CacheEntry` says of it, as plain data.
        unpacker: what reads results of a layout.
        limit_bytes: of the whole cache.
        objection: asked before anything is written; why it must not be, or "".

    Attributes:
        trouble: why nothing more is kept, or "".
    """

    def __init__(
        self,
        root: Path,
        key: str,
        about: Mapping[str, Any],
        unpacker: Callable[[bytes], Unpack],
        limit_bytes: int,
        objection: Callable[[], str] = str,
    ) -> None:
        self.root, self.key, self.folder = root, key, root / key
        self.trouble = ""
        self._about, self._unpacker, self._limit_bytes = dict(about), unpacker, limit_bytes
        self._objection = objection
        self._shards: dict[str, Shard] = {}
        self._by_number: list[Shard] = []
        self._items, self._where = array("q"), array("q")
        self._seen_ns = -1
        self._fresh()
        self.refresh()
        derivedplace.touch(self.folder)

    def _fresh(self) -> None:
        """What belongs to this process alone; a forked child begins anew."""
        self._process = os.getpid()
        self._mutex = threading.RLock()
        self._waiting: dict[int, Result] = {}
        self._waiting_bytes = 0
        self._flushed_s = clock.now_s()
        self._open: deque[Shard] = deque(shard for shard in self._by_number if shard.is_open)
        self._finalizer: Finalize | None = None

    # -- reading ---------------------------------------------------------------------------------

    def get(self, item: int) -> Any:
        """A kept result, or `MISS`."""
        place = bisect_left(self._items, item)
        if place == len(self._items) or self._items[place] != item:
            if not self.refresh():
                return self._of_waiting(item)
            place = bisect_left(self._items, item)
            if place == len(self._items) or self._items[place] != item:
                return self._of_waiting(item)
        where = self._where[place]
        shard = self._by_number[where >> 32]
        try:
            if not shard.is_open:
                self._map(shard)
            return shard.read(where & 0xFFFFFFFF)
        except FileNotFoundError:  # evicted
            self._seen_ns = -1
        except (DamagedShard, OSError, ValueError, msgspec.DecodeError) as error:
            self._quarantine(shard, str(error))
        self.refresh(anew=True)
        return MISS

    def __len__(self) -> int:
        return len(self._items)

    def refresh(self, *, anew: bool = False) -> bool:
        """Look for shards that others have added; whether there were some."""
        if os.getpid() != self._process:
            self._fresh()
        try:
            changed_ns = os.stat(self.folder).st_mtime_ns
        except OSError:
            changed_ns = 0
        if changed_ns == self._seen_ns and not anew:
            return False
        with self._mutex:
            names = derivedplace.shard_names(self.folder) if changed_ns else []
            kept = {}
            for name in names:
                try:
                    kept[name] = self._shards.get(name) or Shard(self.folder / name, self._unpacker)
                except DamagedShard as error:
                    derivedplace.quarantine(self.root, self.folder / name, str(error))
                except OSError:
                    continue
            changed = kept.keys() != self._shards.keys()
            self._shards, self._by_number = kept, list(kept.values())
            if changed:
                self._index()
            self._seen_ns = changed_ns
        return changed

    def _index(self) -> None:
        """All results in the order of their numbers, each with its shard and row in one number."""
        tables = [shard.items for shard in self._by_number]
        items = np.concatenate(tables) if tables else np.empty(0, np.int64)
        where = [(np.int64(n) << 32) + np.arange(len(t), dtype=np.int64) for n, t in enumerate(tables)]
        items, first = np.unique(items, return_index=True)
        wheres = np.concatenate(where)[first] if where else items
        self._items, self._where = array("q", items.tobytes()), array("q", wheres.tobytes())

    def _map(self, shard: Shard) -> None:
        with self._mutex:
            if len(self._open) >= _MOST_OPEN:
                self._open.popleft().close()
            shard.open()
            self._open.append(shard)

    def _of_waiting(self, item: int) -> Any:
        if os.getpid() != self._process:
            self._fresh()
        result = self._waiting.get(item)
        if result is None:
            return MISS
        return self._unpacker(result.layout)(result.data, 0, len(result.data), result.plain_at)

    def _quarantine(self, shard: Shard, why: str) -> None:
        shard.close()
        derivedplace.quarantine(self.root, shard.path, why)

    # -- writing ---------------------------------------------------------------------------------

    def keep(self, result: Result) -> None:
        """Keep a result; it is in a file at the latest when the process ends."""
        if self.trouble:
            return
        if os.getpid() != self._process:
            self._fresh()
        with self._mutex:
            if self._finalizer is None:
                self._finalizer = Finalize(self, _last_flush, (self,), exitpriority=20)
                self._flushed_s = clock.now_s()
            if self._waiting_bytes < _MOST_WAITING_BYTES and result.item not in self._waiting:
                self._waiting[result.item] = result
                self._waiting_bytes += len(result.data)
            if self._waiting_bytes >= SHARD_BYTES or clock.now_s() - self._flushed_s >= SHARD_S:
                self.flush()

    def flush(self) -> bool:
        """Write what was gathered; False while another process writes."""
        with self._mutex:
            if os.getpid() != self._process or not self._waiting:
                return True
            try:
                with self._locked() as mine:
                    if mine and (why := self._objection()):
                        self.trouble = why
                    elif mine:
                        self._publish()
                    else:
                        return False
            except FileNotFoundError:
                pass  # the folder was evicted meanwhile: this much is not kept
            except OSError as error:
                self.trouble = f"Nothing more is kept in {self.folder}: {error.strerror or error}."
            self._waiting, self._waiting_bytes = {}, 0
            self._flushed_s = clock.now_s()
            self.refresh()
        return True

    def _publish(self) -> None:
        """Write a shard of what nobody else has written; the lock is held."""
        for left in self.folder.glob(".draft-*"):  # of one that was killed
            left.unlink(missing_ok=True)
        self.refresh(anew=True)
        new = [r for r in self._waiting.values() if not self._has(r.item)]
        if not new:
            return
        size_bytes = sum(len(r.data) for r in new)
        if not derivedplace.make_room(self.root, self._limit_bytes, size_bytes, self.key):
            self.trouble = f"Nothing more is kept in {self.folder}: the cache is full."
            return
        derivedplace.describe(self.folder, self._about)
        draft = self.folder / f".draft-{secrets.token_hex(4)}"
        try:
            write_shard(draft, new)
            os.chmod(draft, 0o444)
            os.replace(draft, self.folder / f"{secrets.token_hex(8)}{derivedplace.SUFFIX}")
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        derivedplace.touch(self.folder)

    def _has(self, item: int) -> bool:
        place = bisect_left(self._items, item)
        return place < len(self._items) and self._items[place] == item

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether this process may write now. A file system without locks lets everybody."""
        derivedplace.make_folder(self.folder)
        with open(self.folder / ".lock", "ab") as lock:
            try:
                from fcntl import LOCK_EX, LOCK_NB, lockf

                lockf(lock, LOCK_EX | LOCK_NB)
            except (BlockingIOError, PermissionError):
                yield False
                return
            except (ImportError, OSError):
                pass
            yield True


def _last_flush(derived: Derived) -> None:
    """At the end of a process: wait a little for others."""
    import time

    for _ in range(_LAST_TRIES):
        if derived.flush():
            return
        time.sleep(_LAST_WAIT_S)
