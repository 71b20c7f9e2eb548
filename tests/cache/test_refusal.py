"""What gives something else each time is refused by name, or split off."""

from __future__ import annotations

import datetime
import os
import random
import socket
import time
import uuid
from pathlib import Path
from random import random as drawn
from typing import Any

import numpy as np
import pytest
import torch

from jupyter_gpuprof import cached
from jupyter_gpuprof.errors import CacheRefused, UsageError
from tests.cache.pipeline import Compose, Files, Flip, Scale, ToTensor, write_files

RNG = np.random.default_rng(0)


def own_generator(x: int) -> Any:
    return x + RNG.random()


def with_import(x: int) -> Any:
    import numpy.random as npr

    return x + npr.rand()


def imports_it(x: int) -> Any:
    from os import urandom

    return urandom(x)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x + random.random(), r"random\.random .*draws random numbers"),
        (lambda x: x + drawn(), r"random\.random .*draws"),
        (lambda x: x + np.random.rand(), r"numpy\.random\.rand .*draws"),
        (lambda x: [x + np.random.rand() for _ in range(2)], r"numpy\.random\.rand .*draws"),
        (lambda x: x + torch.randn(3), r"torch\.randn .*draws"),
        (lambda x: torch.empty(3).uniform_(), "draws random numbers"),
        (lambda x: torch.nn.functional.dropout(x), r"torch\.nn\.functional\.dropout .*draws"),
        (lambda x: str(uuid.uuid4()), r"uuid\.uuid4 .*draws"),
        (own_generator, "draws random numbers"),
        (with_import, r"numpy\.random\.rand .*draws"),
        (imports_it, r"urandom .*draws"),
        (lambda x: x + time.time(), r"time\.time .*reads the clock"),
        (lambda x: str(datetime.datetime.now()), r"datetime\.datetime\.now .*reads the clock"),
        (lambda x: os.environ["HOME"], r"os\.environ .*reads the environment"),
        (lambda x: os.getenv("HOME"), r"os\.getenv .*reads the environment"),
        (lambda x: socket.create_connection(("localhost", x)), r"socket\.create_connection .*network"),
    ],
)  # fmt: skip
def test_the_call_is_named(function: Any, says: str) -> None:
    with pytest.raises(CacheRefused, match=says):
        cached(function)(3)


def test_what_is_marked_is_kept() -> None:
    kept = cached(lambda x: x + random.random(), deterministic=True)
    assert kept(1) == kept(1) != kept(2)


def test_what_the_code_does_not_show_is_seen_by_running_it() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    with pytest.raises(CacheRefused, match="draws random numbers from random"):
        cached(lambda x: x + __import__("random").random())(1)
    with pytest.raises(CacheRefused, match="another one when it was computed again"):
        cached(lambda x: __import__("os").urandom(x + 4))(1)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after, "the person's own random numbers go on as before"


def test_a_rare_draw_that_changes_nothing_is_seen(tmp_path: Path) -> None:
    class Rarely:
        def __call__(self, x: Any) -> Any:
            return x * 2 if __import__("random").random() < 1e-9 else x

    with pytest.raises(CacheRefused, match="draws random numbers from random"):
        cached(Files(write_files(tmp_path / "data"), Rarely()))


def test_a_pipeline_is_split_at_its_first_random_step(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data")
    data = Files(root, Scale(2), Flip(), Scale(5), ToTensor())
    with pytest.raises(CacheRefused, match=r"random\.random \(pipeline.py:\d+\) draws.*split=True"):
        cached(data)
    kept = cached(data, split=True)
    assert "random.random" in kept.kept
    made = data.made
    seen = {tuple(kept[i][0].tolist()) for _ in range(30) for i in (3, 7)}
    up = {tuple(10.0 * (i + j) for j in range(5)) for i in (3, 7)}
    assert seen == up | {row[::-1] for row in up}, "both ways, scaled twice"
    assert data.made == made, "the data set itself reads nothing"
    assert kept[4][1] == 4


def test_a_hidden_random_step_is_found_by_running_shorter_pipelines(tmp_path: Path) -> None:
    class Hidden:
        def __call__(self, x: Any) -> Any:
            return x + __import__("random").random()

    kept = cached(Files(write_files(tmp_path / "data"), Scale(2), Hidden(), Scale(1)), split=True)
    assert "Hidden" in kept.kept
    values = {float(kept[2][0][0]) for _ in range(4)}
    assert len(values) == 4
    assert all(4 <= value < 5 for value in values)


def test_a_subset_of_a_data_set_is_split_too(tmp_path: Path) -> None:
    data = Files(write_files(tmp_path / "data"), Scale(2), Flip())
    kept = cached(torch.utils.data.Subset(data, [5, 6]), split=True)
    assert len(kept) == 2
    assert sorted(kept[1][0].tolist()) == [12.0, 14.0, 16.0, 18.0, 20.0]


def test_what_cannot_be_split_says_why(tmp_path: Path) -> None:
    root = write_files(tmp_path / "data")

    class Changes(Files):
        def __getitem__(self, i: int) -> Any:
            x, label = super().__getitem__(i)
            return x + 1, label

    with pytest.raises(CacheRefused, match="the data set changes what its transforms give"):
        cached(Changes(root, Scale(2), Flip()), split=True)
    with pytest.raises(CacheRefused, match="random"):
        cached(Files(root, Flip(), Scale(2)), split=True)
    with pytest.raises(UsageError, match="no numbered items"):
        cached(x for x in range(3))
    with pytest.raises(CacheRefused, match=r"sample\[0\] is a Compose, which cannot be kept"):
        cached(Files(root, lambda x: Compose([])))


def test_an_open_connection_is_refused_unless_marked() -> None:
    import sqlite3

    with sqlite3.connect(":memory:") as connection:

        def read(x: int) -> Any:
            return connection.execute("SELECT ?", (x,)).fetchone()[0]

        with pytest.raises(CacheRefused, match="a Connection, holds what cannot be told from its content"):
            cached(read)(1)
        assert cached(read, deterministic=True)(5) == 5
    connection.close()
