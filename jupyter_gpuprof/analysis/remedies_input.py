"""Remedies for a step that waits for its input."""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import WORTH, StepCost
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Loader, Remedy
from jupyter_gpuprof.records.timing import Part

#: More loader workers than this are not proposed.
MAX_WORKERS = 16


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


def input_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> list[Remedy]:
    """What brings batches sooner."""
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
