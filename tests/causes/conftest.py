"""A photo to read, a store that serves it, and two cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.causes.objectstore import serving

#: Of each request to the store.
LATENCY_MS = 12


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JPEG of noise, which costs most to decode."""
    return _noise(tmp_path_factory.mktemp("photos") / "photo.jpg", 384)


@pytest.fixture(scope="session")
def thumbnail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JPEG that costs next to nothing to decode."""
    return _noise(tmp_path_factory.mktemp("photos") / "thumbnail.jpg", 64)


def _noise(file: Path, size: int) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return file


@pytest.fixture(scope="session")
def store(photo: Path) -> Iterator[int]:
    """The port of a store with a latency."""
    with serving(LATENCY_MS, photo) as port:
        yield port


@pytest.fixture(scope="session")
def store_of_thumbnails(thumbnail: Path) -> Iterator[int]:
    """The port of a store with a latency and small objects."""
    with serving(LATENCY_MS, thumbnail) as port:
        yield port


@pytest.fixture
def two_cores() -> Iterator[None]:
    """This process and what it starts have two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield
    os.sched_setaffinity(0, before)
