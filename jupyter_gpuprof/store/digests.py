"""SHA-256 of what is written or read."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any, BinaryIO

#: Small enough to stay in the processor's cache between reading and hashing.
_CHUNK_BYTES = 256 << 10


class DigestedFile:
    """What a file's content is written through, once, from its beginning to its end.

    Args:
        file: where it goes.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._sha = file, hashlib.sha256()
        self._failed: OSError | None = None
        self.size_bytes = 0

    @property
    def sha256(self) -> str:
        """The digest of all that was written.

        Raises:
            OSError: not all of it was, though whoever wrote has not said so.
        """
        if self._failed is not None:
            raise self._failed
        return self._sha.hexdigest()

    def write(self, data: Any) -> int:
        """Write all of it."""
        view = memoryview(data).cast("B")
        try:
            self._file.write(view)
        except OSError as error:
            self._failed = error
            raise
        self._sha.update(view)
        self.size_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is held back."""
        self._file.flush()


def digest(file: BinaryIO) -> tuple[int, str]:
    """The size in bytes and the SHA-256 of a file, from where it stands to its end."""
    with suppress(OSError, AttributeError):  # not on this system, or no file of it
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)  # the system reads on meanwhile
    sha, size, chunk = hashlib.sha256(), 0, bytearray(_CHUNK_BYTES)
    view = memoryview(chunk)
    while count := file.readinto(chunk):  # type: ignore[attr-defined]
        sha.update(view[:count])
        size += count
    return size, sha.hexdigest()
