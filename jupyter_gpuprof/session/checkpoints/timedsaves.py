"""Saves in a temporary folder, timed and taken away again."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import checkpointfiles as files
from jupyter_gpuprof.probes import trainedstate
from jupyter_gpuprof.probes.rankagreement import Ranks
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.spot import How, SaveTimes

#: Temporary folders begin so.
PREFIX = "gpuprof-checkpoint-"
_NO_LOAD = Missing("no function loads it")


@dataclass(frozen=True)
class Way:
    """One way of saving: `save` returns what waits for the rest, where it goes on in the background."""

    how: How
    save: Callable[[Path], files.Wait | None]
    load: Callable[[Path], object] | None


def time_saves(
    way: Way, place: Path, repeats: int, on_repeat: Callable[[int], None], ranks: Ranks
) -> SaveTimes:
    """Save and load so often; percentiles by nearest rank.

    Several ranks begin each part together, and it has taken as long as the slowest of them took.

    Args:
        way: how.
        place: a folder of ours.
        repeats: how often.
        on_repeat: told how many are done.
        ranks: that save together.

    Raises:
        UsageError: nothing was written.
        Exception: whatever the functions raise.
    """
    blocking, durable, loading = [], [], []
    size = 0
    for repeat in range(repeats):
        on_repeat(repeat)
        path = place / f"checkpoint-{repeat}"
        stall_s, wait = _timed(ranks, partial(way.save, path))
        blocking.append(stall_s)
        written_s = _timed(ranks, partial(_wait, wait))[0] if wait is not None else 0.0
        synced_s, _ = _timed(ranks, partial(files.make_durable, path) if not ranks.rank else lambda: None)
        durable.append(stall_s + written_s + synced_s)
        size, found = ranks.same((files.size_bytes(path), bool(files.files_of(path))))
        if not found:
            raise UsageError(
                "The function wrote nothing to the path it was given.",
                "If it saves in the background, let it return what has a result() or join() to wait for.",
            )
        if way.load is not None:
            files.forget_cached(path)
            loading.append(_timed(ranks, partial(_load, way.load, path))[0])
        ranks.slowest(0.0)
        if not ranks.rank:
            _remove(path)
    on_repeat(repeats)
    return SaveTimes(
        how=way.how,
        repeats=repeats,
        size_bytes=size,
        blocking_s=percentile(blocking, 0.5),
        blocking_p99_s=percentile(blocking, 0.99),
        durable_s=percentile(durable, 0.5),
        durable_p99_s=percentile(durable, 0.99),
        load_s=percentile(loading, 0.5) if loading else _NO_LOAD,
        durable_each_s=tuple(durable),
    )


def _timed(ranks: Ranks, work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, of the slowest rank, and what it gave here; where one fails, all do."""
    trainedstate.finish_devices()
    ranks.slowest(0.0)
    begun_s, failure, answer = clock.now_s(), None, None
    try:
        answer = work()
    except Exception as error:
        failure = error
    took_s = ranks.slowest(math.inf if failure else clock.now_s() - begun_s)
    if failure is not None:
        raise failure
    if took_s == math.inf:
        raise UsageError("Another rank could not save or load.", "It says why.")
    return took_s, answer


def _load(load: Callable[[Path], object], path: Path) -> None:
    load(path)
    trainedstate.finish_devices()


def _wait(wait: files.Wait) -> None:
    """Until all is written, also after an interrupt: nothing may write any more when the folder goes."""
    try:
        wait()
    except KeyboardInterrupt:
        with suppress(Exception):
            wait()
        raise


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank: one of the values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@contextmanager
def temporary_in(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """A folder of ours in the person's, the same for all ranks, gone at the end whatever happens."""
    made: Path | UsageError = ranks.same(_make_in(folder) if not ranks.rank else None)
    if isinstance(made, UsageError):
        raise made
    try:
        yield made
    finally:
        if not ranks.rank:
            _remove(made)


def _make_in(folder: Path) -> Path | UsageError:
    if not folder.is_dir():
        return UsageError(
            f"There is no folder {folder}.", "Name one that exists, where checkpoints would go."
        )
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    except OSError as error:
        return UsageError(
            f"The folder {folder} cannot be written ({error.strerror}).", "Name another one with --to."
        )


def _remove(path: Path) -> None:
    """Take it away; an interrupt meanwhile does not leave a part of it."""
    try:
        _delete(path)
    except KeyboardInterrupt:
        _delete(path)
        raise


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
