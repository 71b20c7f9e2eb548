"""Remedies for a step that waits for its input."""

from __future__ import annotations

from jupyter_gpuprof.analysis.advice import Advice, costliest_line
from jupyter_gpuprof.analysis.cost import WORTH, StepCost, ms
from jupyter_gpuprof.analysis.remedies_cache import cache_remedy
from jupyter_gpuprof.analysis.rules import Evidence
from jupyter_gpuprof.analysis.supply import Supply, supply_of
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Loader, Remedy
from jupyter_gpuprof.records.timing import Part

#: More loader workers than this are not proposed, unless there are many already.
MAX_WORKERS = 16
_FEW = 1 - WORTH  # a smaller part of a batch, or of a step, is not worth a change
_GIB = 2**30

#: For activities of a batch: id, title, what of it is meant, and how `try` calls it.
_ACTIVITIES = (
    (
        "input.cheaper-format",
        "Decode less: a cheaper format, or images stored at the size that the model needs",
        ("decoding",),
        "",
    ),
    ("input.local-copy", "Read from a local copy, or more at once (larger shards)", ("reading",), ""),
    (
        "input.on-device",
        "Move transforms to the device, a whole batch at a time",
        ("transforming",),
        "",
    ),
)
_CAVEATS = {
    "input.on-device": "what it costs there comes on top",
}


def input_remedies(evidence: Evidence, cost: StepCost, facts: Facts) -> Advice:
    """What brings batches sooner, and what would not."""
    advice = Advice()
    advice.remedies.append(
        Remedy(
            "input.remove-stall",
            "Have every batch ready when the step asks for it (cheaper format, local or derived cache)",
            cost.without(Part.INPUT, Part.EPOCH_START),
            "the mean step less the measured input wait and epoch start: about the most a fix can give",
        )
    )
    loader = max(facts.training_loaders(), key=lambda item: item.wait_s, default=None)
    if loader is None:
        return advice
    supply = supply_of(loader, cost, facts)
    _workers(advice, loader, supply, cost, facts)
    _prefetch(advice, loader, supply, cost)
    _persistent(advice, loader, cost)
    _pinned(advice, loader, evidence, cost, facts)
    if isinstance(facts.input_causes, Causes):
        _activities(advice, facts.input_causes, supply, cost, facts)
        cache_remedy(advice, facts.input_causes, supply, cost, facts)
    _reading_values(advice, supply, cost, facts)
    return advice


def _workers(advice: Advice, loader: Loader, supply: Supply | Missing, cost: StepCost, facts: Facts) -> None:
    now, cores = loader.num_workers, facts.usable_cores
    if isinstance(now, Missing) or isinstance(cores, Missing) or not loader.fetches:
        return
    now, cores = int(now), int(cores)
    if isinstance(supply, Missing):
        how = f"{now} workers deliver a batch every {ms(cost.mean_s)}, on {cores} cores"
        title = f"Try more loader workers: num_workers={2 * now}"
        setting = f"num_workers={2 * now}"
        advice.remedies.append(Remedy("input.more-workers", title, supply, how, setting))
        return
    what = "More workers" if now else "Loader workers"
    most, memory = _most_workers(now, facts)
    if most <= now:
        advice.no_help.append(f"{what}: no, {memory}")
        return
    predicted = {w: supply.predicted_s(supply.with_workers(w)) for w in range(now + 1, most + 1)}
    best = min(predicted.values())
    workers = next(w for w in predicted if predicted[w] <= best / WORTH)
    made = f"made by {now} worker{'s' if now > 1 else ''}" if now else "in the training process"
    how = (
        f"a batch takes {ms(supply.batch_s)} {made}, {100 * supply.cpu_ratio:.0f} % of it on a "
        f"processor; {cores} cores, of which the step keeps {min(facts.training_threads, cores)} busy"
    )
    if memory and workers == most:
        how += f"; {memory}"
    setting = f"num_workers={workers}"
    if not now:  # or they would start anew at each epoch, which is not in the prediction
        setting += " persistent_workers=True"
    title = f"Load in {workers} worker process{'es' if workers > 1 else ''}: {setting.replace(' ', ', ')}"
    advice.weigh(
        cost.mean_s,
        Remedy(
            "input.more-workers" if now else "input.workers",
            title,
            predicted[workers],
            how,
            setting,
        ),
        f"{what}: no, {_why_no_workers(supply.with_workers(workers), supply)}",
    )


def _most_workers(now: int, facts: Facts) -> tuple[int, str]:
    """The most workers to propose, and what memory has to do with it."""
    most, free, each = max(MAX_WORKERS, 2 * now), facts.free_memory_bytes, facts.worker_memory_bytes
    if isinstance(free, Missing) or isinstance(each, Missing) or each <= 0:
        return most, ""
    fit = now + int(free // each)
    if fit >= most:
        return most, ""
    return fit, f"a worker takes {each / _GIB:.1f} GiB of memory, and {free / _GIB:.1f} GiB are free"


def _why_no_workers(then: Supply, now: Supply) -> str:
    if then.cores_busy:
        return f"{then.cores} core{'s are' if then.cores > 1 else ' is'} already busy"
    if now.workers:
        return f"{now.workers} already deliver a batch every {ms(now.batch_s / now.workers)}"
    return f"a batch takes {ms(now.batch_s)} only"


def _prefetch(advice: Advice, loader: Loader, supply: Supply | Missing, cost: StepCost) -> None:
    """Workers that are fast enough on average, but deliver in bursts."""
    wait_s = cost.parts_s.get(Part.INPUT, 0.0)
    if isinstance(supply, Missing) or not supply.workers or wait_s <= _FEW * cost.mean_s:
        return
    if supply.bound_s > supply.free_s / WORTH:
        advice.no_help.append(
            f"A longer prefetch queue: no, it would run dry: a batch comes every {ms(supply.bound_s)} on "
            f"average, and a step that never waits takes {ms(supply.free_s)}"
        )
        return
    factor = 2 if isinstance(loader.prefetch_factor, Missing) else int(loader.prefetch_factor)
    setting = f"prefetch_factor={2 * factor}"
    advice.remedies.append(
        Remedy(
            "input.prefetch",
            f"Let the workers fetch further ahead: {setting}",
            supply.free_s + supply.epoch_s,
            f"the {supply.workers} workers are fast enough on average (a batch every "
            f"{ms(supply.batch_s / supply.workers)}), but uneven: at most what is waited for",
            setting,
        )
    )


def _persistent(advice: Advice, loader: Loader, cost: StepCost) -> None:
    epoch_s = cost.parts_s.get(Part.EPOCH_START, 0.0)
    known = not isinstance(loader.num_workers, Missing) and loader.num_workers > 0
    if known and epoch_s > _FEW * cost.mean_s and loader.persistent_workers is not True:
        advice.remedies.append(
            Remedy(
                "input.persistent-workers",
                "Keep the workers between epochs: persistent_workers=True",
                cost.without(Part.EPOCH_START),
                f"the mean step less the measured epoch start, {ms(epoch_s)} spread over all steps",
                "persistent_workers=True",
            )
        )


def _pinned(advice: Advice, loader: Loader, evidence: Evidence, cost: StepCost, facts: Facts) -> None:
    """Copies from pageable memory: only where there is a device to copy to."""
    if facts.device.kind in ("cpu", "mps") or loader.pin_memory is not False:
        return
    title = "Copy from pinned memory: pin_memory=True, and .to(device, non_blocking=True)"
    setting, id = "pin_memory=True", "input.pin-memory"
    if Part.COPIES in evidence.missing:
        unknown = Missing(f"copies were not measured: {evidence.missing[Part.COPIES]}")
        advice.remedies.append(Remedy(id, title, unknown, "the loader does not pin its batches", setting))
        return
    copies_s = cost.parts_s.get(Part.COPIES, 0.0)
    how = f"the mean step less the measured copies, {ms(copies_s)}: the most that hiding them can give"
    advice.weigh(
        cost.mean_s,
        Remedy(id, title, cost.without(Part.COPIES), how, setting),
        f"Pinned memory: no, copies take {ms(copies_s)} of a step",
    )


def _activities(
    advice: Advice, causes: Causes, supply: Supply | Missing, cost: StepCost, facts: Facts
) -> None:
    for id, title, names, setting in _ACTIVITIES:
        share = sum(causes.share_of(name).value for name in names)
        if share <= _FEW or (id == "input.on-device" and facts.device.kind == "cpu"):
            continue
        what = " and ".join(name for name in names if causes.share_of(name).value > _FEW)
        line, caveat = costliest_line(causes, *names), _CAVEATS.get(id, "")
        how = f"without {what}, {100 * share:.0f} % of a batch: at most" + (f"; {caveat}" if caveat else "")
        predicted = (
            supply if isinstance(supply, Missing) else supply.predicted_s(supply.without(causes, *names))
        )
        advice.weigh(
            cost.mean_s,
            Remedy(id, title, predicted, f"{how}; {line}" if line else how, setting),
            f"{title}: no, the step does not get shorter without {what} ({100 * share:.0f} % of a batch)",
        )


def _reading_values(advice: Advice, supply: Supply | Missing, cost: StepCost, facts: Facts) -> None:
    """Without workers, the loader could work while the device does, were it not for a wait in each step."""
    host = facts.host_causes
    if facts.device.kind == "cpu" or isinstance(supply, Missing) or isinstance(host, Missing):
        return
    waits = host.share_of("synchronising").value
    if supply.workers or waits <= _FEW or isinstance(host.batch_s, Missing):
        return
    line = costliest_line(host, "synchronising")
    ahead_s = supply.batch_s + (1 - waits) * host.batch_s
    if max(supply.free_s, ahead_s) <= WORTH * cost.mean_s:
        advice.remedies.append(
            Remedy(
                "input.synchronising",
                "Do not read a value from the device in each step" + (f" ({line})" if line else ""),
                max(supply.free_s, ahead_s),
                "it makes the loader wait until the device is done, and turns time that would be hidden "
                "into a stall: the larger of the device's time and the host's own, at most",
            )
        )
