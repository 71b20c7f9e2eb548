"""Gpu ops, ranks and steps drawn out, made by hand for the views."""

from __future__ import annotations

import dataclasses

from jupyter_gpuprof.records.ops import Lane, OpSpan, OpTotal, OpWindow, StepTimeline
from jupyter_gpuprof.records.ranks import RankRow, Ranks
from jupyter_gpuprof.records.reading import Missing

TEMPLATE = "void k<int>(T&&)"
HOSTILE = "void k<</title></svg><script>alert('x')</script>>(T&&) \"q\" \x00\u202e"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)


def a_timeline(
    which: str = "typical", rank: int = 0, step: int = 12, duration_s: float = 0.1
) -> StepTimeline:
    return StepTimeline(
        which,
        rank,
        step,
        duration_s,
        (
            Lane("loader", (OpSpan("enumerate(DataLoader)#__next__", 0.0, 0.02),)),
            Lane("host", (OpSpan("Optimizer.step#SGD.step", 0.08, 0.01),)),
            Lane(
                "compute", (OpSpan(TEMPLATE, 0.02, 0.03), OpSpan(f"12 ops (longest: {ADD})", 0.05, 0.01, 0.4))
            ),
            Lane("communication", (OpSpan(NCCL, 0.06, 0.015),)),
            Lane("copies", ()),
        ),
    )


WINDOW = OpWindow(
    edges="ProfilerStep marks",
    steps=6,
    wall_s=0.465,
    busy_ratio=0.835,
    communication_ratio=0.352,
    loader_ratio=Missing("no loader marks"),
    exposed_input_ratio=0.001,
    agreement="window and events agree: the input wait is 0.1 % and 0.2 %.",
    top_ops=(
        OpTotal(NCCL, "communication", 42, 0.131, 0.336),
        OpTotal(ADD, "compute", 1750, 0.0362, 0.093),
        OpTotal(TEMPLATE, "compute", 6, 0.0152, 0.039),
        OpTotal("Memcpy HtoD (Pinned -> Device)", "copies", 3, 0.0051, 0.013),
        OpTotal("volta_sgemm_128x32_nt", "compute", 3, 0.004, 0.01),
        OpTotal("the sixth", "compute", 3, 0.003, 0.00001),
    ),
    timelines=(a_timeline(), a_timeline("worst", step=14, duration_s=0.12)),
)

RANKS = Ranks(
    rows=tuple(
        RankRow(
            rank,
            f"rank{rank}.json",
            6,
            0.0765,
            0.007,
            wait,
            0.38,
            busy,
            0.1,
            0.01,
            0.2,
            skew,
            0.1,
            0.0,
            label,
        )
        for rank, wait, busy, skew, label in (
            (0, 0.004, 0.94, 0.362, "communication-bound"),
            (1, 0.004, 0.93, 0.359, "communication-bound, also host-bound"),
            (2, 0.310, 0.60, 0.004, "input-bound"),
            (3, 0.005, 0.92, Missing("no collective"), "communication-bound"),
        )
    ),
    late_rank=2,
    starved_rank=2,
    input_spread_s=0.02,
    exposed_skew_ratio=0.3,
    sentences=("Rank 2 is starved: it waits 23.7 ms per step for its data, the others 0.3 ms.",),
)


def many(ranks: int) -> Ranks:
    """Ranks that are alike but for the one that is slow, the one that is starved and the late one."""
    rows = [
        dataclasses.replace(
            RANKS.rows[0],
            rank=rank,
            exposed_skew_ratio=0.36 + rank * 1e-5,
            exposed_input_ratio=0.2 if rank == 33 else 0.004,
            step_s=0.0765 + (0.01 if rank == 40 else 0),
        )
        for rank in range(ranks)
    ]
    return dataclasses.replace(RANKS, rows=tuple(rows), late_rank=57, starved_rank=33)
