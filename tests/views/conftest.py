"""A hand-made run, and how to change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from jupyter_gpuprof.records.ops import Lane, OpSpan, OpTotal, StepTimeline
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import (
    Between,
    Device,
    Loader,
    Memory,
    Overhead,
    Remedy,
    Run,
    Shares,
    Steps,
    Verdict,
)
from tests.traced_run import HOSTILE, RANKS, WINDOW, a_timeline

MakeRun = Callable[..., Run]

_ZERO = Estimate(0.0, 0.0, 0.0)

_RUN = Run(
    run_id="20260131-093000-a1b2",
    name="resnet18 on thumbnails",
    started_at="2026-01-31T09:30:00+00:00",
    device=Device("cuda", "NVIDIA H200", 1, 150_000_000_000, simulated=False),
    clock="device",
    steps=Steps(200, 10, 0, 200, 0.01198, 0.0121, 2.51, 0.84),
    shares=Shares(
        device_compute=Estimate(0.331, 0.309, 0.352),
        exposed_communication=Missing("one device"),
        exposed_input=Estimate(0.604, 0.581, 0.629),
        copies=Missing("needs a kernel window"),
        host_gap=Missing("needs a kernel window"),
        between=Between(
            validation=_ZERO,
            checkpoint=_ZERO,
            epoch_start=Estimate(0.052, 0.044, 0.061),
            other=Estimate(0.013, 0.011, 0.016),
        ),
    ),
    verdict=Verdict(
        label="input-bound",
        strength="strong",
        sentence="for 60.4 % of the time the device stands idle because the next batch is not there.",
        reasons=(
            "input wait is 60.4 % [58.1, 62.9] of the wall time, the limit is 10 %",
            "the loader has no workers: each batch is made while the device waits",
        ),
        also=("host-bound",),
        near=("host-bound: 6.5 % of the limit of 20 %",),
        doubts=("Only 2.5 s were measured; profile 10 s or more.",),
    ),
    remedies=(
        Remedy(
            "workers",
            "Give the loader 4 workers: num_workers=4",
            0.0048,
            "a batch costs 7.2 ms of host time; four workers make one every 1.8 ms, hidden by the device",
        ),
        Remedy("pin", "pin_memory=True", 0.0115, "copies from pinned memory overlap with the device"),
        Remedy("cache", "keep decoded images nearby", Missing("decoding was not sampled"), "decodes once"),
    ),
    overhead=Overhead(per_step_s=45e-6, ratio=0.0037),
    memory=Memory(peak_allocated_bytes=1_300_000_000, peak_reserved_bytes=1_700_000_000),
    loaders=(
        Loader("train_loader", "training", 210, 1.53, 1.52, 64, 0, Missing("no workers"), False, False),
    ),
    notes=("The kernel window was skipped: another profiler was on.",),
)


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    """A function that makes the hand-made run with some fields changed."""

    def make(**changes: object) -> Run:
        return dataclasses.replace(_RUN, **changes)

    return make


@pytest.fixture(scope="session")
def traced(make_run) -> Run:
    """A run of four ranks with everything there is."""
    timelines = tuple(
        timeline
        for rank in range(4)
        for timeline in (a_timeline(rank=rank), a_timeline("worst", rank, 14, 0.12))
    )
    ops = dataclasses.replace(WINDOW, rank=2, timelines=timelines)
    return make_run(ops=ops, ranks=RANKS, source="trace")


@pytest.fixture(scope="session")
def hostile_trace(make_run) -> Run:
    """A run whose ops, ranks and timelines are named to do harm."""
    spans = (OpSpan(HOSTILE, 0.0, 0.01), OpSpan(f"3 ops (longest: {HOSTILE})", 0.02, 0.01, 0.5))
    timeline = StepTimeline(HOSTILE, 0, 1, 0.1, (Lane("compute", spans), Lane(HOSTILE, spans)))
    ops = dataclasses.replace(
        WINDOW,
        edges=HOSTILE,
        agreement=HOSTILE,
        busy_ratio=Missing(HOSTILE),
        top_ops=(OpTotal(HOSTILE, HOSTILE, 1, 0.1, 0.1),),
        timelines=(timeline, dataclasses.replace(timeline, which="worst")),
    )
    row = dataclasses.replace(RANKS.rows[0], label=HOSTILE, source=HOSTILE, busy_ratio=Missing(HOSTILE))
    ranks = dataclasses.replace(RANKS, rows=(row, *RANKS.rows[1:]), sentences=(HOSTILE,))
    return make_run(name=HOSTILE, ops=ops, ranks=ranks)
