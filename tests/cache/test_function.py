"""A cached function, and what `%gpuprof try cache` puts into a loader."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

from jupyter_gpuprof import cached
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import changes
from jupyter_gpuprof.records.settings import parse_settings
from jupyter_gpuprof.session.cache.trial import kept_for_trial
from tests.cache.pipeline import Files, Flip, Scale, write_files

FACTOR = 2
calls: list[Any] = []


@cached
def counted(x: Any, *, plus: int = 0) -> Any:
    calls.append(x)
    return x * FACTOR + plus


@cached
def read(file: str) -> Any:
    return np.loadtxt(file)


def made(*args: Any, **kwargs: Any) -> tuple[Any, int]:
    before = len(calls)
    result = counted(*args, **kwargs)
    return result, len(calls) - before


def test_arguments_and_globals_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for x in range(4):
        counted(x)  # the first calls are checked by running them twice more
    assert made(7) == (14, 1)
    assert made(7) == (14, 0)
    assert made(7, plus=1) == (15, 1)
    assert made(np.float64(7)) == (14.0, 1), "another kind of number is another argument"
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert made(7) == (21, 1)
    assert pickle.loads(pickle.dumps(counted)) is counted


def test_a_file_counts_as_it_is_not_by_its_name_alone(tmp_path: Path) -> None:
    file = write_files(tmp_path) / "001.txt"
    first = read(str(file)).tolist()
    file.write_text("5 6")
    os.utime(file, (1, 1))
    assert (first, read(str(file)).tolist()) == ([1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0])


def test_a_method_in_its_class_is_told_what_to_do() -> None:
    class Reader:
        get = cached(lambda self: 1)

    with pytest.raises(UsageError, match=r"self\.read = cached\(self\.read\)"):
        Reader().get  # noqa: B018


def test_a_trial_reads_back_what_was_really_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = write_files(tmp_path / "data", 40)
    data, cut = Files(root, Scale(2)), Files(root, Scale(2), Flip())
    loader, other = DataLoader(data, 3, shuffle=True), DataLoader(cut, 3)
    applied = changes.apply(
        parse_settings(["cache"]), {"loader": loader, "data": data, "other": other}, kept_for_trial
    )
    before = data.made
    batches = [x for _ in range(2) for x, _ in loader]
    assert len(batches) == 28
    assert {float(x[:, 0].min()) % 2 for x in batches} == {0.0}
    assert data.made == before
    assert list((tmp_path / "gpuprof-derived").glob("*/*.shard"))
    assert applied.lines == (
        "from jupyter_gpuprof import cached",
        "items = cached(data)",
        "loader = DataLoader(items, batch_size=3, shuffle=True)",
        "items = cached(other.dataset, split=True)",
        "other = DataLoader(items, batch_size=3)",
    )
    refused = changes.apply(parse_settings(["cache"]), {"a": DataLoader(Files(root, Flip()))}, kept_for_trial)
    assert "random.random" in refused.not_applied[0]
