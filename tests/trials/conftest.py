"""Proof that a rerun leaves no process and no file; the photo and the store of tests/causes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpuprof.probes.jobs import TAG
from tests.causes.conftest import store_of_thumbnails, thumbnail, two_cores  # noqa: F401  (fixtures)


@pytest.fixture(autouse=True)
def nothing_of_a_rerun_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders are made in one of the test's own (not pytest's: too long for sockets), and none is left.

    Nor is a process.
    """
    own = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    monkeypatch.setenv("JUPYTER_GPUPROF_TEST", str(own))  # other tests may run reruns at the same time
    yield
    left = [*own.glob("gpuprof*"), *own.glob("pymp*")]
    shutil.rmtree(own)
    assert not left
    assert not jobs_of(own)


def jobs_of(own: Path) -> list[list[str]]:
    """The command lines of the living processes of reruns that this test has started."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            ours = TAG in environ and environ.get("JUPYTER_GPUPROF_TEST") == str(own)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    return found
