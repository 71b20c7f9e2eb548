"""What to change, what it should bring, and how that was predicted.

Predictions are for the mean step, all in but for validation. Each says how it was made; none promises
more than removing the measured cause could give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Label, Loader, Remedy
from jupyter_gpuprof.records.timing import Part

#: A prediction within this of today's step is no gain worth a change.
WORTH = 0.95
#: More loader workers than this are not proposed.
MAX_WORKERS = 16
LATE_RANK = "communication.late-rank"
_RANKS_WAIT = Missing("the ranks wait for each other: try it and compare")


@dataclass(frozen=True)
class StepCost:
    """The mean step in seconds, all in but for validation, and its parts."""

    mean_s: float
    parts_s: dict[Part, float]

    def without(self, *parts: Part) -> float:
        """The mean step if these parts took no time."""
        return self.mean_s - sum(self.parts_s.get(part, 0.0) for part in parts)


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
    return max(step_s, batch_s / workers, (cpu_ratio * batch_s + min(threads, cores) * step_s) / cores)


def remedies_for(labels: tuple[Label, ...], evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """Remedies of the findings' labels, those with the shortest predicted step first.

    Where several ranks wait for each other, what a change brings to one of them says little of the job:
    only the late rank's remedy has a prediction, and stands first.
    """
    found: list[Remedy] = []
    for label in labels:
        found += _BY_LABEL.get(label, _none)(evidence, cost, facts)
    if facts.ranks > 1:
        found = [r if r.id == LATE_RANK else replace(r, predicted_step_s=_RANKS_WAIT) for r in found]
    known = [r for r in found if not isinstance(r.predicted_step_s, Missing)]
    known.sort(key=lambda r: r.predicted_step_s if isinstance(r.predicted_step_s, (int, float)) else 0.0)
    return known + [r for r in found if isinstance(r.predicted_step_s, Missing)]


def _none(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    return []


def _input(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    ideal = cost.without(Part.INPUT, Part.EPOCH_START)
    found = [
        Remedy(
            "input.remove-stall",
            "Have every batch ready when the step asks for it (cheaper format, local or derived cache)",
            ideal,
            "the mean step less the measured input wait and epoch start: about the most a fix can give",
        )
    ]
    loader = _slowest(facts)
    if loader is not None:
        found += _workers(loader, cost, facts)
    epoch_s = cost.parts_s.get(Part.EPOCH_START, 0.0)
    if loader is not None and epoch_s > (1 - WORTH) * cost.mean_s and loader.persistent_workers is not True:
        found.append(
            Remedy(
                "input.persistent-workers",
                "Keep the workers between epochs: persistent_workers=True",
                cost.without(Part.EPOCH_START),
                "the mean step less the measured epoch start, spread over all steps",
            )
        )
    return found


def _slowest(facts: Facts) -> Loader | None:
    """The training loader that was waited for longest, if it is a DataLoader with known workers."""
    loaders = [item for item in facts.training_loaders() if not isinstance(item.num_workers, Missing)]
    return max(loaders, key=lambda item: item.wait_s, default=None)


def _workers(loader: Loader, cost: StepCost, facts: Facts) -> list[Remedy]:
    now, cores = loader.num_workers, facts.usable_cores
    if isinstance(now, Missing) or isinstance(cores, Missing) or not loader.fetches:
        return []
    if now > 0:
        how = f"{now} workers deliver a batch every {1e3 * cost.mean_s:.1f} ms, on {cores} cores"
        unknown = Missing("whether the workers compute or wait was not measured")
        return [Remedy("input.more-workers", f"Try more loader workers: num_workers={2 * now}", unknown, how)]
    # Where the device is the host, the counted steps tell; else all of the loader's host time.
    on_host = facts.device.kind == "cpu"
    batch_s = cost.parts_s[Part.INPUT] if on_host else loader.wait_s / loader.fetches
    cpu_ratio = 1.0 if isinstance(loader.cpu_ratio, Missing) else float(loader.cpu_ratio)
    step_s = cost.without(Part.INPUT, Part.EPOCH_START)
    threads, cores = facts.training_threads, int(cores)
    predicted = {
        w: workers_step_s(batch_s, cpu_ratio, step_s, w, cores, threads) for w in range(1, MAX_WORKERS + 1)
    }
    best = min(predicted.values())
    workers = next(w for w in predicted if predicted[w] <= best / WORTH)
    how = (
        f"a batch takes {1e3 * batch_s:.1f} ms in the training process, {100 * cpu_ratio:.0f} % of it on a "
        f"processor; {cores} cores, of which the step keeps {min(threads, cores)} busy"
    )
    if predicted[workers] > WORTH * cost.mean_s:
        title = "Loader workers: no, the cores are already busy"
        return [Remedy("input.workers", title, Missing("no gain is predicted"), how)]
    title = f"Load in {workers} worker process{'es' if workers > 1 else ''}: num_workers={workers}"
    return [Remedy("input.workers", title, predicted[workers], how)]


_HOST_REMEDIES = {
    Part.CHECKPOINT: ("host.checkpoint", "Write checkpoints less often, or in the background"),
    Part.OTHER: ("host.between", "Move logging, metrics and other host work off every step"),
    Part.HOST_GAP: (
        "host.launch",
        "Launch less: torch.compile or graphs, fused optimizer, no .item() per step",
    ),
}


def _host(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    how = "the mean step less what was measured for it: about the most it can give"
    return [
        Remedy(name, title, cost.without(part), how)
        for part, (name, title) in _HOST_REMEDIES.items()
        if part not in evidence.missing and cost.parts_s.get(part, 0.0) > (1 - WORTH) * cost.mean_s
    ]


def _communication(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    late: list[Remedy] = []
    if evidence.late_rank is not None and facts.others_wait_ratio > 1 - WORTH:
        late.append(
            Remedy(
                LATE_RANK,
                f"Find what makes rank {evidence.late_rank} late for the collectives",
                cost.mean_s * (1 - facts.others_wait_ratio),
                "the mean step less what the other ranks wait for it: about the most it can give",
            )
        )
    transfer_s = max(0.0, cost.parts_s.get(Part.COMMUNICATION, 0.0) - evidence.skew_ratio * cost.mean_s)
    if late and transfer_s <= (1 - WORTH) * cost.mean_s:
        return late  # nearly all of it is waiting for that rank
    how = "the mean step less the exposed communication: the most that hiding it can give"
    if late:
        how = "the mean step less the exposed transfer, waiting for late ranks apart: the most it can give"
    return [
        *late,
        Remedy(
            "communication.hide",
            "Fewer devices, a larger batch per device, or accumulation with no_sync()",
            cost.mean_s - transfer_s,
            how,
        ),
    ]


def _oversized(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    capacity, peak = facts.device.memory_bytes, facts.memory.peak_allocated_bytes
    if isinstance(capacity, Missing) or isinstance(peak, Missing) or not peak:
        return []
    unknown: Number = Missing("depends on how the step scales with the batch; measure it")
    times, smaller_gib = 0.9 * capacity / peak, 1.2 * peak / 2**30
    return [
        Remedy(
            "oversized.batch",
            f"A larger batch: memory alone would allow about {times:.0f} times",
            unknown,
            "90 % of the capacity over the peak, if all of the peak grew with the batch",
        ),
        Remedy(
            "oversized.device",
            f"A smaller device: the peak with a fifth of headroom is {smaller_gib:.1f} GiB",
            unknown,
            "measured peak of the allocator, plus 20 %",
        ),
    ]


def _correctly_sized(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    unknown: Number = Missing("algorithmic; measure it")
    levers = ("mixed precision", "gradient accumulation instead of more devices", "activation checkpointing")
    used = facts.levers or ()
    how = "not seen in use" if facts.levers is not None else "whether it is already in use was not looked at"
    return [
        Remedy(f"size.{lever.split()[0]}", f"Try {lever}", unknown, how)
        for lever in levers
        if lever not in used
    ]


_BY_LABEL = {
    "input-bound": _input,
    "host-bound": _host,
    "communication-bound": _communication,
    "oversized": _oversized,
    "correctly sized": _correctly_sized,
}
