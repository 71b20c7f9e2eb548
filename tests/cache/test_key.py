"""The key changes with what the results depend on, and with nothing else."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jupyter_gpuprof import cached
from jupyter_gpuprof.session.cache.plan import plan_of
from tests.cache.pipeline import Files, Scale, ToTensor, write_files


def key_of(thing: Any, **options: Any) -> str:
    return plan_of(thing, "it", **options).key


def module(tmp_path: Path, name: str, source: str) -> ModuleType:
    """A module of the person's project, as a new run would import it."""
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    if str(tmp_path) not in sys.path:
        sys.path.insert(0, str(tmp_path))
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True
    return importlib.import_module(name)


@pytest.fixture(autouse=True)
def own_modules() -> Any:
    path, known, writes = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    yield
    sys.path[:], sys.dont_write_bytecode = path, writes
    for name in set(sys.modules) - known:
        if name.startswith("project_"):
            del sys.modules[name]


READ = "from project_steps import half\nSIZE = 4\ndef read(x, k=1):\n    return half(x) + SIZE + k\n"
HALF = "def half(x):\n    return x / 2\n"


def test_words_do_not_count_and_code_does(tmp_path: Path) -> None:
    def read(steps: str, source: str = READ) -> str:
        module(tmp_path, "project_steps", steps)
        return key_of(module(tmp_path, "project_read", source).read)

    key = read(HALF)
    assert read('def half(x):\n\n    """Half."""\n    # by two\n    return (x /\n        2)\n') == key
    assert read("def half(x):\n    return x / 3\n") != key, "an imported function was edited"
    assert read(HALF, READ.replace("SIZE = 4", "SIZE = 5")) != key, "a global that it reads"
    assert read(HALF, READ.replace("k=1", "k=2")) != key, "a default"
    assert read(HALF, READ + "\ndef other(x):\n    return 7\n") == key, "what it does not reach"


def test_the_function_that_runs_counts_not_its_file(tmp_path: Path) -> None:
    loaded = module(tmp_path, "project_stale", HALF)
    key = key_of(loaded.half)
    (tmp_path / "project_stale.py").write_text("def half(x):\n    return x / 3\n")
    assert key_of(loaded.half) == key
    assert key_of(module(tmp_path, "project_stale", "def half(x):\n    return x / 3\n").half) != key


def test_closures_partials_and_methods() -> None:
    from functools import partial

    def scaled(factor: Any) -> Any:
        return lambda x: x * factor

    assert key_of(scaled(2)) == key_of(scaled(2)) != key_of(scaled(3))
    assert key_of(scaled(np.ones(3))) != key_of(scaled(np.zeros(3)))
    assert key_of(partial(max, 1)) == key_of(partial(max, 1)) != key_of(partial(max, 2))
    assert key_of(Scale(2).__call__) == key_of(Scale(2).__call__) != key_of(Scale(3).__call__)
    assert key_of(scaled(True)) != key_of(scaled(1)) != key_of(scaled(1.0))


def test_a_captured_logger_and_id_do_not_count(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data")
    one, other = Files(root, Scale(2)), Files(root, Scale(2))
    assert one.id != other.id
    assert key_of(one) == key_of(other) != key_of(Files(root, Scale(3)))
    one[0]
    assert key_of(one) == key_of(other), "it counts its reads"


def test_a_library_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_gpuprof.session.cache import lookups

    def mean(x: Any) -> Any:
        return np.mean(x)

    key = key_of(mean)
    assert plan_of(mean, "it").parts["version numpy"] == np.__version__
    lookups.version_of.cache_clear()
    monkeypatch.setattr(np, "__version__", "99")
    assert key_of(mean) != key
    lookups.version_of.cache_clear()


def test_a_changed_file_counts_and_a_moved_folder_only_by_path(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data")
    by_path, by_content = key_of(Files(root)), key_of(Files(root), by_content=True)
    moved = root.rename(tmp_path / "moved")
    assert key_of(Files(moved)) != by_path
    assert key_of(Files(moved), by_content=True) == by_content
    (moved / "003.txt").write_text("9 9 9 9 9")
    assert key_of(Files(moved), by_content=True) != by_content
    before = key_of(Files(moved))
    os.utime(moved / "004.txt", (1, 1))
    assert key_of(Files(moved)) != before


def test_a_folder_that_is_read_counts_with_its_files(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data", 3)
    where = str(root)

    def read(i: int) -> Any:
        return np.loadtxt(f"{where}/{i:03}.txt")

    key = key_of(read)
    assert key_of(read) == key
    (root / "001.txt").write_text("5")
    assert key_of(read) != key


def test_what_is_changed_after_wrapping_is_seen(tmp_path: Path) -> None:
    data = Files(write_files(tmp_path / "data"), Scale(2))
    kept = cached(data)
    first = kept[1][0]
    data.transform = Scale(3)
    np.testing.assert_array_equal(kept[1][0] * 2, first * 3)


def test_the_key_of_a_usual_data_set_takes_under_5_ms(tmp_path: Path) -> None:
    data = Files(write_files(tmp_path / "data", 200), Scale(2), Scale(3), ToTensor())
    key_of(data)  # its code was read

    def seconds() -> float:
        began = time.perf_counter()
        key_of(data)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(20)) < 0.005
