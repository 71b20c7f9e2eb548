"""Hand-made records of reruns: a trial, a curve over batch sizes, and how to change them."""

from __future__ import annotations

import dataclasses

from jupyter_gpuprof.analysis.batchcurve import conclude_batch
from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.run import Between, Device, Shares
from jupyter_gpuprof.records.trial import Trial, Variant

HOSTILE = "<script>alert('x')</script> & \"q\" <img src=https://evil.example onerror=y>\x00\u202e"
GIB = 2**30
DEVICE = Device("cuda", "NVIDIA H200", 1, 80 * GIB, simulated=False)
FAKE = dataclasses.replace(DEVICE, simulated=True)

_ZERO = Estimate(0.0, 0.0, 0.0)
_GONE = Missing("not read")


def shares(compute: float, waiting: float) -> Shares:
    def part(value: float) -> Estimate:
        return Estimate(value, value - 0.02, value + 0.02)

    between = Between(_ZERO, _ZERO, _ZERO, part(1 - compute - waiting))
    return Shares(part(compute), _GONE, part(waiting), _GONE, _GONE, between)


BEFORE = Variant(
    label="input-bound",
    sentence="for 60 % of the time the device stands idle.",
    step_s=Estimate(0.0121, 0.0118, 0.0124),
    rounds_s=(0.0122, 0.012),
    steps=200,
    samples_per_step=64,
    shares=shares(0.33, 0.6),
    peak_allocated_bytes=2 * GIB,
)
AFTER = Variant(
    label="compute-bound",
    sentence="the device computes 90 % of the time.",
    step_s=Estimate(0.0053, 0.0052, 0.0054),
    rounds_s=(0.0054, 0.0052),
    steps=210,
    samples_per_step=64,
    shares=shares(0.9, 0.05),
    peak_allocated_bytes=3 * GIB,
)
TRIAL = Trial(
    trial_id="2026-12-01-aaaaaa",
    run_id="2026-12-01-bbbbbb",
    run_name="resnet18 on thumbnails",
    started_at="2026-12-01T10:00:00+00:00",
    device=DEVICE,
    settings=("num_workers=4", "pin_memory=True"),
    order="ABBA",
    unit="step",
    before=BEFORE,
    after=AFTER,
    ratio=Estimate(2.3, 2.1, 2.5),
    predicted=2.6,
    predicted_how="four workers make a batch every 1.8 ms",
    lines=("loader = DataLoader(", "\tdata, num_workers=4)"),
    not_applied=("val_loader: its sampler cannot be made again",),
    notes=("the machine was busy",),
)


def a_trial(**changes: object) -> Trial:
    return dataclasses.replace(TRIAL, **changes)


def a_point(batch: int, rate: float, peak_gib: float | Missing, doubt: float = 0.01) -> BatchPoint:
    """A measured size whose throughput is known to `doubt` of its value either way."""
    peak: Number = peak_gib if isinstance(peak_gib, Missing) else peak_gib * GIB
    ends = Estimate(rate, rate * (1 - doubt), rate * (1 + doubt))
    return BatchPoint(batch, "measured", ends, batch / rate, peak)


def a_failure(batch: int, outcome: str = "out of memory", why: str = "it asked for 2 GiB more") -> BatchPoint:
    return BatchPoint(batch, outcome, _GONE, _GONE, _GONE, why)


POINTS = (
    a_point(32, 2650, 3.1),
    a_point(64, 4400, 5.2),
    a_point(128, 5300, 9.2),
    a_point(256, 5400, 17.2),
    a_failure(2048),
)


def a_curve(points: tuple[BatchPoint, ...] = POINTS, **changes: object) -> BatchCurve:
    """A curve of the points with what follows from them."""
    device = changes.get("device", DEVICE)
    assert isinstance(device, Device)
    memory, largest, plateau, sentence = conclude_batch(points, device.memory_bytes, 0.9)
    curve = BatchCurve(
        curve_id="2026-12-01-cccccc",
        run_id="2026-12-01-bbbbbb",
        run_name="resnet18 on thumbnails",
        started_at="2026-12-01T11:00:00+00:00",
        device=device,
        points=points,
        until_memory=0.9,
        memory=memory,
        largest_batch=largest,
        plateau_batch=plateau,
        sentence=sentence,
        notes=("the machine was busy",),
    )
    return dataclasses.replace(curve, **changes)
