"""SHA-256 of what is written or read, worked out by another thread meanwhile."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

_CHUNK_BYTES = 4 << 20
#: For less, waking a thread takes longer than the work.
_WORTH_BYTES = 256 << 10


class DigestedFile:
    """What a file's content is written through, once, from its beginning to its end.

    Args:
        file: where it goes.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._sha = file, hashlib.sha256()
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="gpuprof digest")
        self._failed: OSError | None = None
        self.size_bytes = 0

    def __enter__(self) -> DigestedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._aside.shutdown()

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
        aside: Future[None] | None = None
        if len(view) >= _WORTH_BYTES:
            aside = self._aside.submit(self._sha.update, view)
        else:
            self._sha.update(view)
        try:
            self._file.write(view)
        except OSError as error:
            self._failed = error
            raise
        finally:
            if aside is not None:
                aside.result()  # the data is the caller's again
        self.size_bytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is held back."""
        self._file.flush()


def digest(file: BinaryIO) -> tuple[int, str]:
    """The size in bytes and the SHA-256 of a file, from where it stands to its end."""
    sha, size = hashlib.sha256(), 0
    with ThreadPoolExecutor(1, thread_name_prefix="gpuprof digest") as aside:
        before: Future[None] | None = None
        while chunk := file.read(_CHUNK_BYTES):
            if before is not None:
                before.result()
            before = aside.submit(sha.update, chunk)
            size += len(chunk)
    return size, sha.hexdigest()
