"""What a finished recording tells besides its steps: what was not measured, loaders, cost, remarks."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.series import StepSeries
from jupyter_gpuprof.analysis.steps import OPTIMIZER_STEPS, PARTS, StepAssembler
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Loader, Overhead
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.store.rankfolder import rank_of


def series_of(assembler: StepAssembler) -> StepSeries:
    """The steps of the training loop; of the inference loop where nothing trained."""
    if assembler.training.steps:
        return assembler.training
    return assembler.forward if assembler.forward.steps else assembler.implicit


def missing_parts(
    recorder: Recorder, assembler: StepAssembler, blocks: NDArray[np.float64], *, on_accelerator: bool
) -> dict[Part, str]:
    """Why a part of the step has no number, for those that have none.

    Args:
        recorder: the finished recording.
        assembler: its steps.
        blocks: seconds per block of steps, shape (blocks, columns).
        on_accelerator: whether the training ran on one.
    """
    missing = {} if _any(blocks, Part.COMMUNICATION) else {Part.COMMUNICATION: _why_no_communication()}
    if recorder.backend.clock == "host":
        missing[Part.COPIES] = "the host's clock does not see them" if on_accelerator else "no device"
        missing[Part.HOST_GAP] = "on a CPU the host is the device: Python is part of compute"
    else:
        missing[Part.HOST_GAP] = "no kernel window: what the device waits for the host is part of compute"
        if not _any(blocks, Part.COPIES):
            missing[Part.COPIES] = "no copy from the host was seen inside the step"
    if not assembler.loader_seen or assembler.reused_batch:
        why = "one batch was used for many steps" if assembler.reused_batch else "no loader seen"
        missing |= {Part.INPUT: why, Part.EPOCH_START: why}
        missing[Part.OTHER] = "without a loader the end of a step is not seen"
    elif not _any(blocks, OPTIMIZER_STEPS):
        missing[Part.OTHER] = "without an optimizer step the end of a step is not seen"
    return missing


def loaders_of(recorder: Recorder, assembler: StepAssembler) -> tuple[Loader, ...]:
    """The sources of batches, by role."""
    trains, exposed_s = assembler.training.steps > 0, assembler.exposed_s
    loaders = [
        source.facts(
            assembler.roles.get(source.key, "training") if trains else "inference",
            exposed_s.get(source.key, 0.0),
            recorder.core_wait_ratio,
        )
        for source in recorder.sources.all
        if source.fetches and (source.origin != "for" or source.key in exposed_s)
    ]
    return tuple(sorted(loaders, key=lambda loader: loader.role))


def overhead_of(recorder: Recorder, table: StepTable) -> Overhead:
    """What the hooks took on the training thread, by their own clock."""
    if not table.steps or not table.total_s:
        unknown: Number = Missing("no step was seen")
        return Overhead(unknown, unknown)
    cost_s = recorder.cost_ns * 1e-9
    return Overhead(cost_s / table.steps, cost_s / table.total_s)


def remarks_on(recorder: Recorder, assembler: StepAssembler, *, window: bool) -> list[str]:
    """What a person should know about the recording, a sentence each.

    Args:
        recorder: the finished recording.
        assembler: its steps.
        window: whether a kernel window recorded something.
    """
    r, training = recorder, assembler.training
    elsewhere, elsewhere_s = r.off_thread_fetches, r.off_thread_ns * 1e-9
    tail_s, total = sum(assembler.tail[:PARTS]), training.total()
    off = "" if r.active else "; our hooks were switched off"
    remarks = {
        "No loader was seen: wrap the source of the batches with watch() to see its wait.": (
            not assembler.loader_seen and (training.steps or r.optimizer_steps)
        ),
        f"{elsewhere} batches were fetched on other threads ({elsewhere_s:.1f} s there); "
        "that is no wait of the training thread.": elsewhere,
        f"{tail_s:.1f} s after the last step are not part of the shares.": (
            training.steps and tail_s > 0.05 * total[:PARTS].sum()
        ),
        "No backward pass was seen: this is an inference loop.": (
            not training.steps and series_of(assembler).steps
        ),
        "Communication is what DistributedDataParallel waits for after its last gradient: a lower bound, and "
        "waiting for late ranks is part of it.": total[Part.COMMUNICATION] and not window,
        f"{r.capture_marks} marks were left out while a graph was being captured.": r.capture_marks,
        f"{r.lost_marks} marks were dropped: the device lagged too far behind the host.": r.lost_marks,
        f"{len(r.failures)} of our hooks failed{off} ({r.failures[:1]}).": r.failures,
    }
    return [remark for remark, holds in remarks.items() if holds]


def _any(blocks: NDArray[np.float64], column: int) -> bool:
    return bool(len(blocks)) and bool(blocks[:, column].any())


def _why_no_communication() -> str:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    together = distributed is not None and distributed.is_available() and distributed.is_initialized()
    if together or rank_of()[1] > 1:
        return "needs a kernel window, or DistributedDataParallel"
    return "one process"
