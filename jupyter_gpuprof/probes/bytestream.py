"""The bytes of trace files: plain or gzipped, alone, in a folder or in a tar archive.

What a file is, is told by its first bytes, not by its name. Nothing is unpacked to disk.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from jupyter_gpuprof.errors import TraceError

#: Called with the bytes of files read so far and the bytes of all files.
Progress = Callable[[int, int], None]

_BLOCK_BYTES = 1 << 16
_TRACE_ENDINGS = (".json", ".json.gz", ".tar.gz", ".tgz", ".tar")


class ByteStream:
    """Reads another stream, inflating it if it is gzipped; ``cut_off`` tells that gzip data stopped short.

    Args:
        read: returns the next bytes, at most so many; none at the end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._raw_read = read
        self._raw = read(_BLOCK_BYTES)
        self._inflate = _new_inflate() if self._raw[:2] == b"\x1f\x8b" else None
        self._peeked = b""
        self.cut_off = False

    def peek(self, size: int) -> bytes:
        """The next bytes, at least `size` unless the stream is shorter, without consuming them."""
        while len(self._peeked) < size and (more := self._next(_BLOCK_BYTES)):
            self._peeked += more
        return self._peeked

    def read(self, size: int) -> bytes:
        """The next bytes, `size` of them unless the stream ends."""
        pieces = [self._peeked[:size]]
        self._peeked = self._peeked[size:]
        missing = size - len(pieces[0])
        while missing and (more := self._next(missing)):
            pieces.append(more)
            missing -= len(more)
        return b"".join(pieces)

    def _next(self, size: int) -> bytes:
        """Some of the next bytes, at most `size`; none at the end."""
        if self._inflate is None:
            data, self._raw = self._raw[:size], self._raw[size:]
            return data or self._raw_read(size)
        while True:
            if self._inflate.eof:  # another gzip member, or padding
                self._raw = self._inflate.unused_data.lstrip(b"\0") or self._raw_read(_BLOCK_BYTES)
                if not self._raw.startswith(b"\x1f\x8b"):
                    return b""
                self._inflate = _new_inflate()
            self._raw = self._raw or self._raw_read(_BLOCK_BYTES)
            if not self._raw or self.cut_off:
                self.cut_off = True
                return b""
            try:
                data = self._inflate.decompress(self._raw, size)
            except zlib.error:
                self.cut_off = True
                return b""
            self._raw = self._inflate.unconsumed_tail
            if data:
                return data


def open_streams(paths: list[Path], progress: Progress | None) -> Iterator[tuple[str, bool, ByteStream]]:
    """Each trace in the files, folders and archives: its name, whether it was named by the user, its bytes.

    A stream must be read before the next one is asked for.

    Raises:
        TraceError: a path does not exist, cannot be read, or is a folder without traces.
    """
    files = [(file, path.is_file()) for path in paths for file in _files_of(path)]
    total = sum(file.stat().st_size for file, _ in files if file.exists())
    done = 0
    for file, named in files:

        def count(size: int) -> None:
            nonlocal done
            done += size
            if progress is not None:
                progress(done, total)

        try:
            with file.open("rb") as opened:
                yield from _streams_of(opened, file.name, named, count)
        except OSError as error:
            raise TraceError(f"{file.name} cannot be read: {error.strerror or error}.") from error


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        named = (p for p in path.iterdir() if p.name.endswith(_TRACE_ENDINGS) and _is_visible(p.name))
        files = sorted(p for p in named if p.exists())  # no link that leads nowhere
        if not files:
            raise TraceError(f"The folder {path.name} holds no trace files.")
        return files
    if not path.exists():
        raise TraceError(f"There is no file {path}.")
    return [path]


def _streams_of(
    opened: BinaryIO, name: str, named: bool, count: Callable[[int], None]
) -> Iterator[tuple[str, bool, ByteStream]]:
    def read(size: int) -> bytes:
        data = opened.read(size)
        count(len(data))
        return data

    stream = ByteStream(read)
    if stream.peek(512)[257:262] != b"ustar":
        yield name, named, stream
        return
    empty = True
    try:
        with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|", bufsize=_BLOCK_BYTES) as archive:
            for member in archive:
                file_name = Path(member.name).name
                if not (member.isfile() and file_name.endswith(_TRACE_ENDINGS) and _is_visible(file_name)):
                    continue
                extracted = archive.extractfile(member)
                assert extracted is not None
                empty = False
                yield file_name, False, ByteStream(_until_damage(extracted.read))
    except tarfile.TarError as error:
        raise TraceError(f"The archive {name} is cut off or damaged: {error}.") from error
    if empty:
        raise TraceError(f"The archive {name} holds no trace files.")


def _until_damage(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Ends the member of an archive where the archive ends."""

    def read_some(size: int) -> bytes:
        try:
            return read(size)
        except tarfile.TarError:
            return b""

    return read_some


def _is_visible(name: str) -> bool:
    return not name.startswith(".")  # "._rank0.json" is what macOS adds to archives


def _new_inflate() -> zlib._Decompress:
    return zlib.decompressobj(31)
