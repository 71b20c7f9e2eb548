"""Loops whose loader's costs are set: the dear part is named, with its share and its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jupyter_gpuprof.records.causes import Causes
from tests.causes.loops import LINES, assert_true, loader_of, train
from tests.session.live import steady

torch.set_num_threads(1)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the stacks of forked workers"),
]

#: How often each part is done for one item (collating: for one batch).
COSTS = {
    "reading": {"reading": 1, "decoding": 1, "transforming": 30, "collating": 1},
    "decoding": {"reading": 1, "decoding": 4, "transforming": 30, "collating": 1},
    "transforming": {"reading": 1, "decoding": 1, "transforming": 300, "collating": 1},
    "collating": {"reading": 1, "decoding": 1, "transforming": 30, "collating": 10},
}


@steady
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("part", COSTS)
def test_the_dear_part_is_named(part: str, workers: int, photo: Path, store: int) -> None:
    port = store if part == "reading" else 0
    loader, truth = loader_of(photo, workers=workers, items=160, port=port, **COSTS[part])
    run = train(loader)
    print(run.input_causes, truth.share(part))
    assert run.verdict.label == "input-bound"
    assert_true(run.input_causes, part, truth.share(part), LINES[part])
    assert isinstance(run.input_causes, Causes)
    assert ("worker" in run.input_causes.how) == bool(workers)
