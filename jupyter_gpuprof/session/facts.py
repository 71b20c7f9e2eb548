"""What is known of a finished run besides its timing, brought together for the judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpuprof.analysis.causes import host_causes, input_causes
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.planning.catalogue import Prices, smaller_devices
from jupyter_gpuprof.probes import machine
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Memory
from jupyter_gpuprof.records.samples import Samples
from jupyter_gpuprof.session.cache.preparation import preparation_seen
from jupyter_gpuprof.session.evidence import loaders_of, series_of
from jupyter_gpuprof.session.sampling import Sampled


def gather_facts(
    recorder: Recorder,
    assembler: StepAssembler,
    sampled: Sampled,
    *,
    device: Any,
    memory: Memory,
    warmup: int | None,
    prices: Prices,
    doubts: list[str],
    names: Mapping[str, str],
) -> Facts:
    """The context of a run.

    Args:
        recorder: the finished recording.
        assembler: its steps.
        sampled: the stacks that were sampled meanwhile.
        device: the accelerator it trained on, a `torch.device`; None for the CPU.
        memory: its peaks.
        warmup: steps to leave out; None chooses.
        prices: the person's.
        doubts: what weakens every conclusion.
        names: what to call the files of the person's code, by their path.
    """
    described = machine.describe_device(device)
    loaders = loaders_of(recorder, assembler)
    peak = memory.peak_allocated_bytes
    steps = series_of(assembler).steps
    batches = max((source.fetches for source in recorder.sources.all if source.workers), default=0)
    batches = batches or sum(loader.fetches for loader in loaders if loader.role != "validation")
    return Facts(
        device=described,
        memory=memory,
        loaders=loaders,
        warmup_steps=warmup,
        failed_steps=assembler.failed,
        optimizer_steps=recorder.optimizer_steps,
        training_threads=machine.training_threads(recorder.backend.clock),
        usable_cores=machine.usable_cores(),
        levers=recorder.levers.reading(recorder, device),
        smaller=() if isinstance(peak, Missing) else smaller_devices(int(peak), described, prices),
        input_causes=input_causes(sampled.training, _workers(sampled), batches, names),
        host_causes=host_causes(sampled.training, steps, names),
        free_memory_bytes=sampled.free_memory_bytes,
        worker_memory_bytes=sampled.worker_memory_bytes,
        preparation=preparation_seen(recorder),
        doubts=tuple(doubts),
    )


def _workers(sampled: Sampled) -> Samples | None:
    """The samples of the workers: from inside where there are some, else from outside."""
    seen = [samples for samples in sampled.workers if samples.total]
    return max(seen, key=lambda samples: samples.total, default=None)
