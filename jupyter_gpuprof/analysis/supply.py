"""How fast a loader's batches come, and the step time that follows: the model behind every prediction
for the input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Loader
from jupyter_gpuprof.records.timing import Part

#: What needs a processor core, before anything else does.
_COMPUTING = ("decoding", "transforming", "collating")


def workers_step_s(
    batch_s: float, cpu_ratio: float, step_s: float, workers: int, cores: int, threads: int
) -> float:
    """The step time with so many loader workers: the largest of three lower bounds.

    The step cannot be shorter than its own work, than what the workers deliver, or than all the work
    spread over all cores: ``max(step, batch / workers, (cpu * batch + threads * step) / cores)``, the
    asymptotic bounds of operational analysis. What a batch waits for (a disk, a network) takes no core.

    Args:
        batch_s: seconds to make one batch.
        cpu_ratio: the part of them on a processor.
        step_s: seconds of a step that never waits.
        workers: loader processes.
        cores: cores this process may use.
        threads: cores that the step itself keeps busy.
    """
    return max(step_s, batch_s / workers, _cores_s(batch_s, cpu_ratio, step_s, cores, threads))


def _cores_s(batch_s: float, cpu_ratio: float, step_s: float, cores: int, threads: int) -> float:
    return (cpu_ratio * batch_s + min(threads, cores) * step_s) / cores


@dataclass(frozen=True)
class Supply:
    """What a batch costs, who makes it, and the step that waits for it.

    Args:
        batch_s: seconds to make one batch.
        cpu_ratio: the part of them on a processor.
        workers: loader processes; 0 makes batches in the training process.
        free_s: seconds of a step that never waits for its input.
        exposed_s: what it waits for a batch.
        epoch_s: its part of starting workers at each epoch.
        cores: cores this process may use.
        threads: cores that the step itself keeps busy.
    """

    batch_s: float
    cpu_ratio: float
    workers: int
    free_s: float
    exposed_s: float
    epoch_s: float
    cores: int
    threads: int

    @property
    def bound_s(self) -> float:
        """The step time by `workers_step_s`; there must be workers."""
        return workers_step_s(
            self.batch_s, self.cpu_ratio, self.free_s, self.workers, self.cores, self.threads
        )

    @property
    def cores_busy(self) -> bool:
        """Whether the cores are what bounds the step."""
        cores_s = _cores_s(self.batch_s, self.cpu_ratio, self.free_s, self.cores, self.threads)
        return cores_s >= self.bound_s and cores_s > self.free_s

    def with_workers(self, workers: int) -> Supply:
        """The same batches made by other workers."""
        return replace(self, workers=workers)

    def without(self, causes: Causes, *names: str) -> Supply:
        """The same batches without some activities.

        Decoding, transforming and collating share the processor time of a batch by their time; what is
        left of it belongs to the others.
        """
        shares = {part.name: part.share.value for part in causes.parts}
        computing = sum(shares.get(name, 0.0) for name in _COMPUTING)
        cpu_computing = min(self.cpu_ratio, computing)
        left = left_cpu = 0.0
        for name, share in shares.items():
            if name not in names:
                of, cpu = computing, cpu_computing
                if name not in _COMPUTING:
                    of, cpu = 1 - computing, self.cpu_ratio - cpu_computing
                left += share
                left_cpu += share / of * cpu if of > 0 else 0.0
        cpu_ratio = min(1.0, left_cpu / left) if left > 0 else 0.0
        return replace(self, batch_s=self.batch_s * left, cpu_ratio=cpu_ratio)

    def predicted_s(self, then: Supply) -> float:
        """The mean step, all in, if batches came as in `then`, which differs in batches and workers only.

        Without workers a batch lengthens the step by what of it is not hidden; with them the measured
        step changes as its bound does, but never below the step that does not wait.
        """
        if not then.workers:
            hidden_s = max(0.0, self.batch_s - self.exposed_s)
            return self.free_s + self.epoch_s + max(0.0, then.batch_s - hidden_s)
        if not self.workers:
            return then.bound_s
        now_s = self.free_s + self.exposed_s
        return self.epoch_s + max(then.free_s, now_s * then.bound_s / self.bound_s)


def supply_of(loader: Loader, cost: StepCost, facts: Facts) -> Supply | Missing:
    """The supply of a loader: measured where the training process makes its batches, else by its causes."""
    causes, cores = facts.input_causes, facts.usable_cores
    if isinstance(cores, Missing):
        return cores
    on_host = facts.device.kind == "cpu"
    workers = 0 if isinstance(loader.num_workers, Missing) else int(loader.num_workers)
    free_s = cost.without(Part.INPUT, Part.EPOCH_START)
    exposed_s = cost.parts_s.get(Part.INPUT, 0.0)
    cpu_ratio: Number = loader.cpu_ratio
    if not workers:
        # Where the device is the host, the counted steps tell; else all of the loader's host time.
        batch_s: Number = exposed_s if on_host else loader.wait_s / max(1, loader.fetches)
    elif isinstance(causes, Missing):
        return Missing("whether the workers compute or wait was not measured")
    else:
        batch_s, cpu_ratio = causes.batch_s, causes.cpu_ratio
        if on_host and not isinstance(causes.serial_s, Missing):
            free_s, exposed_s = free_s + causes.serial_s, max(0.0, exposed_s - causes.serial_s)
    if isinstance(batch_s, Missing):
        return batch_s
    return Supply(
        batch_s=float(batch_s),
        cpu_ratio=1.0 if isinstance(cpu_ratio, Missing) else float(cpu_ratio),
        workers=workers,
        free_s=free_s,
        exposed_s=exposed_s,
        epoch_s=cost.parts_s.get(Part.EPOCH_START, 0.0),
        cores=int(cores),
        threads=facts.training_threads,
    )
