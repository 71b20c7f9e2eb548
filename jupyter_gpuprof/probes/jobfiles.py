"""Reads files of jobs, whatever scheduler wrote them, into the same records.

The kind is told by the content. What cannot be read is counted and named by its line or item; a file of
another kind is named, and the others are answered all the same.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes.jobcsv import check_mapping, read_table
from jupyter_gpuprof.probes.jobjson import read_json
from jupyter_gpuprof.probes.jobslurm import read_completions, read_sacct
from jupyter_gpuprof.probes.jobtally import Tally
from jupyter_gpuprof.records.fleet import JobRecords

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # as Windows' shells redirect
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}
_KINDS = "sacct -P, jobcomp/filetxt, Philly, Helios, Acme, Alibaba, Kueue workloads, pods, or CSV with --map"


def read_jobs(
    paths: Sequence[Path],
    *,
    zone: str = "",
    columns: Sequence[str] = (),
    mapping: Mapping[str, str] | None = None,
    team: str = "",
) -> JobRecords:
    """The jobs of all files together.

    Args:
        paths: files, or folders of them; they may be packed by gzip or xz.
        zone: of times without one, such as "Europe/Oslo"; UTC by default.
        columns: names of the columns of files without a header.
        mapping: columns of a CSV file by what they tell, see ``jobcsv.FIELDS``.
        team: column of Slurm's that is the team.

    Raises:
        UsageError: there is no such file, zone or column, or nothing that could be read.
    """
    check_mapping(mapping or {})
    tally, sources = Tally(_zone(zone)), []
    for path in _files(paths):
        kind = _read(path, tally, columns, mapping, team)
        if kind:
            sources.append(f"{path.name} ({kind})")
        else:
            tally.refuse("it is a file of a kind that is not known", path.name)
    if not sources:
        raise UsageError(
            f"No jobs were found in {', '.join(path.name for path in paths)}.", f"Expected {_KINDS}."
        )
    if tally.is_zone_guessed and not zone and not tally.series:
        tally.notes.append("times without a zone were taken for UTC; --zone Europe/Oslo would say another")
    until_s = tally.until_s()
    return JobRecords(
        sources=tuple(sources),
        jobs=tuple(tally.finished(until_s)),
        rows=tally.rows,
        refused=tally.refused(),
        until_s=until_s,
        notes=tuple(tally.notes),
        series=tuple(tally.series),
    )


def _read(
    path: Path, tally: Tally, columns: Sequence[str], mapping: Mapping[str, str] | None, team: str
) -> str:
    lines = _lines(path, tally)
    start = next((line for line in lines[:20] if line.strip()), "").lstrip("\ufeff \t")
    if not start or "\0" in start:
        return ""
    if start[0] in "{[":
        return read_json("".join(lines), tally, path.name)
    if start.startswith("JobId="):
        read_completions(lines, tally, path.name, team)
        return "jobcomp/filetxt"
    if start.count("|") > 2:
        read_sacct(lines, tally, path.name, columns, team)
        return "sacct"
    stem = path.name.partition(".")[0]
    return read_table(lines, tally, path.name, mapping, columns, stem)


def _lines(path: Path, tally: Tally) -> list[str]:
    lines: list[str] = []
    try:
        with path.open("rb") as file:
            head = file.read(2)
        encoding = "utf-16" if head in _UTF_16 else "utf-8-sig"
        with _OPENERS.get(head, open)(path, "rt", encoding=encoding, errors="replace") as text:
            for line in text:
                lines.append(line)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        tally.notes.append(f"{path.name} breaks off; the {len(lines)} lines before were read")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    return lines


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        else:
            found.append(path)
    return found


def _zone(name: str) -> tzinfo:
    if not name or name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"There is no time zone {name!r}.", "Write it like Europe/Oslo.") from None
