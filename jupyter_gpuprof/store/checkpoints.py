"""Checkpoints that are whole or not there: drafts, manifests, and the walk from the newest to the oldest.

A save writes each file into a draft and waits for the storage, then the manifest (sizes and SHA-256 of all
files), then makes the draft a checkpoint, reads it back, lets the pointer name it, and only then takes older
ones away. Whatever happens between two of these steps, what was complete before stays.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import CheckpointError
from jupyter_gpuprof.store.checkpointplaces import MANIFEST, Place
from jupyter_gpuprof.store.digests import DigestedFile, digest

#: Writes a file's content into what it is given, from the beginning to the end.
Writer = Callable[[Any], object]

_FORMAT = 1
_POLL_S = 0.02


@dataclass(frozen=True)
class Part:
    """A file of a checkpoint as it was written."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of.

    Args:
        name: of the checkpoint.
        serial: one more than that of the checkpoint before; the newest has the highest.
        parts: its files.
        facts: what the writer said of it, as plain JSON values.
    """

    name: str
    serial: int
    parts: dict[str, Part]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Rejected:
    """A checkpoint that was not taken, and why."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


class Checkpoints:
    """The checkpoints in one place.

    Args:
        place: where.
        keep: how many are kept; the newest one that is whole always is.
        sleep, now_s: the clock, to wait for the parts of other ranks.
    """

    def __init__(
        self,
        place: Place,
        *,
        keep: int = 3,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = clock.now_s,
    ) -> None:
        self.place, self.keep = place, keep
        self._sleep, self._now_s = sleep, now_s
        self._whole: set[str] = set()  # read back by this process

    def save(self, name: str, writers: Mapping[str, Writer], facts: Mapping[str, Any]) -> Manifest:
        """Write a checkpoint of one process; returns when it is safe.

        Args:
            name: begins with "step-", and was never used before.
            writers: for each of its files what writes it.
            facts: plain JSON values that the manifest shall hold.

        Raises:
            CheckpointError: it could not be written; those before are untouched.
        """
        parts = {file: self.write_part(name, file, writer) for file, writer in writers.items()}
        return self.commit(name, parts, facts)

    def write_part(self, name: str, file: str, writer: Writer, *, announce: bool = False) -> Part:
        """Write one file of a draft; returns when it is safe.

        Args:
            announce: leave its size and digest beside it, for the rank that commits.

        Raises:
            CheckpointError: it could not be written.
        """
        with self._tidy(name):
            with self.place.create(name, file) as opened:
                digested = DigestedFile(opened)
                writer(digested)
                part = Part(digested.size_bytes, digested.sha256)
            if announce:
                self._write_small(name, _announcement(file), [part.size_bytes, part.sha256])
            return part

    def await_parts(self, name: str, files: list[str], patience_s: float) -> dict[str, Part]:
        """The files that other ranks write into the same draft, once all of them are there.

        Raises:
            CheckpointError: one did not come in time.
        """
        parts = {}
        deadline_s = self._now_s() + patience_s
        with self._tidy(name):
            for file in files:
                while not self.place.draft_has(name, _announcement(file)):
                    if self._now_s() > deadline_s:
                        raise CheckpointError(
                            f"{file} of the checkpoint {name} did not come within {patience_s:.0f} s.",
                            "All ranks must save into one folder that they share, at the same step.",
                        )
                    self._sleep(_POLL_S)
                parts[file] = Part(*json.loads(self.place.read_draft(name, _announcement(file))))
        return parts

    def commit(self, name: str, parts: Mapping[str, Part], facts: Mapping[str, Any]) -> Manifest:
        """Make a draft whose files are all written a checkpoint, then take old ones away.

        Raises:
            CheckpointError: it could not be done; those before are untouched.
        """
        with self._tidy(name):
            serial = 1 + max((m.serial for m in self._manifests() if isinstance(m, Manifest)), default=0)
            manifest = Manifest(name, serial, dict(parts), dict(facts))
            self._write_small(name, MANIFEST, _encode(manifest))
            self.place.commit(name)
            why = self._why_not(manifest)
            if why:
                raise CheckpointError(f"The checkpoint {name} was written, but cannot be read back: {why}.")
            self._whole.add(name)
            self.place.point_to(name)
            self._retain()
        return manifest

    def await_commit(self, name: str, patience_s: float) -> None:
        """Wait until another rank has made the draft a checkpoint.

        Raises:
            CheckpointError: it did not in time.
        """
        deadline_s = self._now_s() + patience_s
        while name not in self.place.names():
            if self._now_s() > deadline_s:
                raise CheckpointError(f"Rank 0 did not complete the checkpoint {name}.")
            self._sleep(_POLL_S)

    def walk(self, rejected: list[Rejected]) -> Iterator[Manifest]:
        """The checkpoints that are whole, the newest first; each is read and checked when its turn comes.

        Args:
            rejected: those that are not are added here.

        Raises:
            CheckpointError: the place cannot be read.
        """
        try:
            found = self._manifests()
        except OSError as error:
            raise CheckpointError(f"{self.place} cannot be read ({_reason(error)}).") from None
        rejected += [one for one in found if isinstance(one, Rejected)]
        readable = [one for one in found if isinstance(one, Manifest)]
        for manifest in sorted(readable, key=lambda one: (one.serial, one.name), reverse=True):
            why = self._why_not(manifest)
            if why:
                rejected.append(Rejected(manifest.name, why))
            else:
                yield manifest

    def manifest(self, name: str) -> Manifest:
        """What one checkpoint consists of; its files are not read.

        Raises:
            CheckpointError: it is not there, or its manifest cannot be read.
        """
        found = self._manifest(name)
        if isinstance(found, Rejected):
            raise CheckpointError(f"The checkpoint {name} cannot be taken: {found.why}.")
        return found

    def open(self, name: str, file: str) -> BinaryIO:
        """A file of a checkpoint, to read."""
        return self.place.open(name, file)

    def _tidy(self, name: str) -> _Tidy:
        return _Tidy(self.place, name)

    def _retain(self) -> None:
        """Take away what is older than the newest `keep`; the one just written was read back."""
        manifests = [one for one in self._manifests() if isinstance(one, Manifest)]
        manifests.sort(key=lambda one: (one.serial, one.name), reverse=True)
        if not manifests or manifests[0].name not in self._whole:
            return  # somebody else writes here as well
        for old in manifests[max(1, self.keep) :]:
            try:
                self.place.remove(old.name)
            except OSError:
                pass  # the next save tries again

    def _manifests(self) -> list[Manifest | Rejected]:
        return [self._manifest(name) for name in self.place.names()]

    def _manifest(self, name: str) -> Manifest | Rejected:
        try:
            with self.place.open(name, MANIFEST) as opened:
                return _decode(name, opened.read())
        except FileNotFoundError:
            return Rejected(name, "it has no manifest")
        except OSError as error:
            return Rejected(name, f"its manifest cannot be read ({_reason(error)})")
        except (ValueError, KeyError, TypeError, AttributeError):
            return Rejected(name, "its manifest is damaged")

    def _why_not(self, manifest: Manifest) -> str:
        """Why a checkpoint is not whole, or ""."""
        for file, part in manifest.parts.items():
            try:
                with self.place.open(manifest.name, file) as opened:
                    found = Part(*digest(opened))
            except FileNotFoundError:
                return f"{file} is missing"
            except OSError as error:
                return f"{file} cannot be read ({_reason(error)})"
            if found.size_bytes != part.size_bytes:
                return f"{file} has {found.size_bytes} bytes instead of {part.size_bytes}"
            if found != part:
                return f"{file} is not what was written (its SHA-256 differs)"
        return ""

    def _write_small(self, name: str, file: str, content: object) -> None:
        with self.place.create(name, file) as opened:
            opened.write(json.dumps(content, indent=1).encode())


class _Tidy:
    """Takes the draft away where its writing fails, and says so in a sentence."""

    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return  # nothing, or the process is being ended
        self._place.discard(self._name)
        cause = _os_error(error)
        if cause is not None:
            raise CheckpointError(
                f"The checkpoint {self._name} could not be written to {self._place} ({_reason(cause)})."
            ) from None


def _announcement(file: str) -> str:
    return f"{file}.written"


def _encode(manifest: Manifest) -> dict[str, Any]:
    body = {
        "format": _FORMAT,
        "name": manifest.name,
        "serial": manifest.serial,
        "files": {file: [part.size_bytes, part.sha256] for file, part in manifest.parts.items()},
        "facts": manifest.facts,
    }
    return {"body": body, "sha256": _digest_of_json(body)}


def _decode(name: str, data: bytes) -> Manifest | Rejected:
    whole = json.loads(data)
    body = whole["body"]
    if whole["sha256"] != _digest_of_json(body):
        raise ValueError("damaged")
    if body["format"] > _FORMAT:
        return Rejected(name, "a newer version of jupyter_gpuprof wrote it")
    if body["name"] != name:
        return Rejected(name, f"its manifest is that of {body['name']}")
    parts = {file: Part(size, sha256) for file, (size, sha256) in body["files"].items()}
    return Manifest(name, body["serial"], parts, body["facts"])


def _digest_of_json(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _os_error(error: BaseException | None) -> OSError | None:
    """The system's error behind another one: serializers hide it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
