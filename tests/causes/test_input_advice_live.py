"""What the report advises where the truth is known: a store that is waited for, and cores that are busy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Remedy, Run
from tests.causes.loops import LINES, assert_true, loader_of, train
from tests.session.live import steady

torch.set_num_threads(1)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cores are taken away from this process"),
]


def workers_remedy(run: Run) -> Remedy | None:
    return next((r for r in run.remedies if r.id in ("input.workers", "input.more-workers")), None)


@steady
@pytest.mark.parametrize("workers", [0, 1])
def test_more_workers_for_a_store_that_is_waited_for(
    workers: int, photo: Path, store: int, two_cores: None
) -> None:
    loader, _ = loader_of(photo, workers=workers, items=120, port=store)
    run = train(loader)
    remedy = workers_remedy(run)
    assert remedy is not None, (run.remedies, run.no_help)
    assert not isinstance(remedy.predicted_step_s, Missing)
    assert not isinstance(run.steps.mean_s, Missing)
    assert remedy.predicted_step_s < run.steps.mean_s / 1.5
    assert remedy.setting.startswith("num_workers=")


@steady
def test_no_more_workers_where_two_cores_decode(photo: Path, two_cores: None) -> None:
    loader, _ = loader_of(photo, workers=2, items=240, decoding=5)
    run = train(loader)
    assert workers_remedy(run) is None, run.remedies
    (no,) = [text for text in run.no_help if text.startswith("More workers")]
    assert "2 cores are already busy" in no


@steady
def test_eight_workers_on_two_cores(photo: Path, two_cores: None) -> None:
    loader, truth = loader_of(photo, workers=8, items=400, decoding=5)
    run = train(loader)
    assert run.verdict.label == "input-bound"
    assert_true(run.input_causes, "decoding", truth.share("decoding"), LINES["decoding"])
    assert workers_remedy(run) is None, run.remedies
    (no,) = [text for text in run.no_help if text.startswith("More workers")]
    assert "2 cores are already busy" in no
    assert any(remedy.id == "input.cheaper-format" for remedy in run.remedies)
