"""Saves in a temporary folder, timed and taken away again."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import checkpointfiles as files
from jupyter_gpuprof.probes import trainedstate
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


def time_saves(way: Way, place: Path, repeats: int, on_repeat: Callable[[int], None]) -> SaveTimes:
    """Save and load so often; percentiles by nearest rank.

    Args:
        way: how.
        place: a folder of ours.
        repeats: how often.
        on_repeat: told how many are done.

    Raises:
        UsageError: nothing was written.
        Exception: whatever the functions raise.
    """
    blocking, durable, loading = [], [], []
    size = 0
    for repeat in range(repeats):
        on_repeat(repeat)
        path = place / f"checkpoint-{repeat}"
        trainedstate.finish_devices()
        begun_s = clock.now_s()
        wait = way.save(path)
        blocking.append(clock.now_s() - begun_s)
        if wait is not None:
            _wait(wait)
        files.make_durable(path)
        durable.append(clock.now_s() - begun_s)
        size = files.size_bytes(path)
        if not files.files_of(path):
            raise UsageError(
                "The function wrote nothing to the path it was given.",
                "If it saves in the background, let it return what has a result() or join() to wait for.",
            )
        if way.load is not None:
            files.forget_cached(path)
            begun_s = clock.now_s()
            way.load(path)
            trainedstate.finish_devices()
            loading.append(clock.now_s() - begun_s)
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
def temporary_in(folder: Path) -> Iterator[Path]:
    """A folder of ours in the person's, gone at the end whatever happens."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name one that exists, where checkpoints would go.")
    try:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    except OSError as error:
        raise UsageError(
            f"The folder {folder} cannot be written ({error.strerror}).", "Name another one with --to."
        ) from None
    try:
        yield place
    finally:
        _remove(place)


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
