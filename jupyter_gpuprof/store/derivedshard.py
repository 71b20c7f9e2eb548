"""Some results in one file that never changes: their bytes, then a table of them, then where the table is.

A file is a shard only if its end is right, and every result has a checksum of its own: whatever a crash, a
full disk or a bad block leaves is seen, and never taken for a result.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

_MAGIC = b"GPUPROFD"
_TRAILER = struct.Struct("<QQI4x8s")  # where the table begins, its size, its checksum
#: Results begin at multiples of so many bytes.
_ALIGNED = 64
_COLUMNS = ("item", "begin", "end", "plain_at", "layout", "checksum")

#: Makes a result of a buffer, where in it it begins and ends, and where its plain values begin.
Unpack = Callable[[Any, int, int, int], Any]


class DamagedShard(Exception):
    """A file that is no shard, or of which a result is not what was written."""


@dataclass(frozen=True)
class Result:
    """One result to write: its number, how it is laid out, its bytes, and where its plain values begin."""

    item: int
    layout: bytes
    data: bytes
    plain_at: int


def write_shard(path: Path, results: Iterable[Result]) -> None:
    """Write a new file; whoever calls renames it when this returns.

    Raises:
        OSError: it cannot be written; the file is left as it is.
    """
    columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
    layouts: dict[bytes, int] = {}
    with open(path, "wb") as file:
        at = file.write(_MAGIC.ljust(_ALIGNED, b"\0"))
        for result in results:
            values = (
                result.item,
                at,
                at + len(result.data),
                result.plain_at,
                layouts.setdefault(result.layout, len(layouts)),
                zlib.crc32(result.data),
            )
            for name, value in zip(_COLUMNS, values, strict=True):
                columns[name].append(value)
            at += file.write(result.data)
            at += file.write(bytes(-at % _ALIGNED))
        table = msgspec.msgpack.encode(
            {
                "layouts": list(layouts),
                **{name: np.asarray(values, "<i8").tobytes() for name, values in columns.items()},
            }
        )
        file.write(table)
        file.write(_TRAILER.pack(at, len(table), zlib.crc32(table), _MAGIC))


class Shard:
    """A written shard.

    Args:
        path: the file.
        unpacker: what reads results of a layout.

    Attributes:
        items: the numbers of its results.

    Raises:
        DamagedShard: the file is no shard.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, unpacker: Callable[[bytes], Unpack]) -> None:
        self.path = path
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TRAILER.size))
            end = file.read()
            if len(end) != _TRAILER.size:
                raise DamagedShard("it is too short")
            at, length, checksum, magic = _TRAILER.unpack(end)
            if magic != _MAGIC or at + length + _TRAILER.size != size:
                raise DamagedShard("it has no end")
            file.seek(at)
            table = file.read(length)
        if zlib.crc32(table) != checksum:
            raise DamagedShard("its table is damaged")
        read = msgspec.msgpack.decode(table)
        columns = {name: array("q", read[name]) for name in _COLUMNS}
        self.items = np.frombuffer(read["item"], "<i8")
        self.size_bytes = size
        self._begin, self._end, self._plain = (columns[name] for name in ("begin", "end", "plain_at"))
        self._layout, self._checksum = columns["layout"], columns["checksum"]
        self._unpack = [unpacker(layout) for layout in read["layouts"]]
        self._checked = bytearray(len(self.items))
        self._map: mmap.mmap | None = None

    @property
    def is_open(self) -> bool:
        """Whether the file is mapped."""
        return self._map is not None

    def open(self) -> None:
        """Map the file."""
        with open(self.path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Unmap it, as soon as nobody reads."""
        self._map = None

    def read(self, row: int) -> Any:
        """One result, in memory of its own; its bytes are checked when they are first read.

        Raises:
            DamagedShard: they are not what was written.
        """
        buffer = self._map
        assert buffer is not None
        begin, end = self._begin[row], self._end[row]
        if not self._checked[row]:
            self.check(row)
            self._checked[row] = 1
        return self._unpack[self._layout[row]](buffer, begin, end, self._plain[row])

    def check(self, row: int) -> None:
        """Compare the checksum of one result; the file is mapped.

        Raises:
            DamagedShard: it is another one.
        """
        assert self._map is not None
        with memoryview(self._map) as view, view[self._begin[row] : self._end[row]] as data:
            if zlib.crc32(data) != self._checksum[row]:
                raise DamagedShard(f"result {self.items[row]} is damaged")
