"""A hand-made curve: the throughput of VGG16 at a batch of 32, published in TensorFlow's benchmarks."""

from __future__ import annotations

import dataclasses

from jupyter_gpuprof.planning.scaling import conclude_scaling, point
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.scaling import Scaling, ScalingPoint, ScalingProgress

VGG16_BATCH_32 = {1: 144.0, 2: 281.0, 4: 549.0, 8: 820.0}
RUNNING = ScalingProgress("4 devices, repeat 2, measuring", 0.4, 60.0, (4, 500.0))


def a_point(count: int, throughput: float) -> ScalingPoint:
    return point(
        count,
        [throughput * f for f in (0.99, 1, 1.01)],
        exposed_communication=Missing("one device") if count == 1 else Estimate(0.12, 0.1, 0.14),
        exposed_input=Estimate(0.021, 0.01, 0.03),
        peak_memory_bytes=3 * 2**30,
        startup_s=6.1,
    )


def a_scaling(*more: ScalingPoint, price: float | None = None, **changes: object) -> Scaling:
    points = [*(a_point(n, t) for n, t in VGG16_BATCH_32.items()), *more]
    done = conclude_scaling(points, "weak", price_per_device_hour=price)
    made = Scaling(
        "20260131-093000-sc01",
        "20260131-093000-a1b2",
        "vgg16",
        "2026-01-31T09:30:00+00:00",
        "weak",
        "local",
        "devices",
        "NVIDIA H200",
        False,
        50,
        done.points,
        done.fit,
        done.worth_it_count,
        done.rule,
        done.costs,
        done.verdict,
    )
    return dataclasses.replace(made, **changes)
