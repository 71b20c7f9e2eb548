"""A cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "derived"
    monkeypatch.setenv("JUPYTER_GPUPROF_CACHE", str(folder))
    return folder
