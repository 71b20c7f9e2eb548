"""What is known of a run besides its timing: the context in which rules judge."""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpuprof.records.catalogue import SmallerDevice
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.derived import Preparation
from jupyter_gpuprof.records.levers import Lever
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import NO_SAMPLES, NOT_PREPARED, Device, Loader, Memory


@dataclass(frozen=True)
class Facts:
    """The context of a run.

    Args:
        device: what it trained on.
        memory: peaks of the framework's allocator.
        loaders: the sources of batches, training ones first.
        live: a live run; a stored trace of few steps is judged with a doubt instead of not at all.
        warmup_steps: steps to leave out at the beginning; None chooses by loader and drift.
        failed_steps: batches without a backward pass.
        training_threads: host threads that the step itself keeps busy (on a CPU, torch's).
        usable_cores: processor cores that this process may use.
        levers: the levers and whether they are on; None when nobody looked.
        smaller: devices and slices with less memory that would hold the peak with headroom.
        input_causes: what making a batch consists of.
        host_causes: what the training thread does outside of fetching.
        free_memory_bytes: host memory that further loader workers may use.
        worker_memory_bytes: what one loader worker takes of it.
        exposed_skew_ratio: with several ranks, the share of the wall time spent waiting for late ranks.
        others_wait_ratio: how long the median of the other ranks waits for it.
        late_rank: the rank they wait for.
        ranks: how many ranks the job has.
        preparation: how the training loader's data set makes its samples.
        doubts: what weakens every conclusion.
    """

    device: Device
    memory: Memory
    loaders: tuple[Loader, ...] = ()
    live: bool = True
    warmup_steps: int | None = None
    failed_steps: int = 0
    optimizer_steps: Number = 0
    training_threads: int = 1
    usable_cores: Number = field(default_factory=lambda: Missing("the number of cores was not read"))
    levers: tuple[Lever, ...] | None = None
    smaller: tuple[SmallerDevice, ...] = ()
    input_causes: Causes | Missing = NO_SAMPLES
    host_causes: Causes | Missing = NO_SAMPLES
    free_memory_bytes: Number = Missing("not read")
    worker_memory_bytes: Number = Missing("not read")
    exposed_skew_ratio: float = 0.0
    others_wait_ratio: float = 0.0
    late_rank: int | None = None
    ranks: int = 1
    preparation: Preparation | Missing = NOT_PREPARED
    doubts: tuple[str, ...] = ()

    def training_loaders(self) -> tuple[Loader, ...]:
        """The loaders whose batches were trained on (or inferred on, where nothing trained)."""
        return tuple(loader for loader in self.loaders if loader.role != "validation")
