"""What a change should bring, from the run that is to be improved."""

from __future__ import annotations

from jupyter_gpuprof.analysis.cost import StepCost, ms
from jupyter_gpuprof.analysis.supply import supply_of
from jupyter_gpuprof.probes import machine
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Estimate, Missing, Number
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.timing import PART_NAMES


def predicted_ratio(run: Run, settings: tuple[str, ...]) -> tuple[Number, str]:
    """Time of a step now over its predicted time with the settings, and how that was predicted.

    The remedies of the run predict the settings that they name; another number of workers is predicted by
    the model behind them. What neither knows has no prediction.
    """
    now_s, wanted = run.steps.mean_s, " ".join(settings)
    if isinstance(now_s, Missing) or not now_s:
        return Missing("the run counted no step"), ""
    for remedy in run.remedies:
        if remedy.setting == wanted:
            then_s = remedy.predicted_step_s
            if isinstance(then_s, Missing) or not then_s:
                return then_s or Missing("no time is left of a step"), remedy.how
            return now_s / then_s, remedy.how
    if len(settings) != 1:
        return Missing("several changes at once are not predicted"), ""
    name, _, value = wanted.partition("=")
    if name == "num_workers" and value.isdecimal():
        return _with_workers(run, int(value), float(now_s))
    return Missing("the run's remedies do not name this change"), ""


def _with_workers(run: Run, workers: int, now_s: float) -> tuple[Number, str]:
    loaders = [loader for loader in run.loaders if loader.role == "training"]
    if not loaders:
        return Missing("no training loader was seen"), ""
    facts = Facts(
        device=run.device,
        memory=run.memory,
        loaders=run.loaders,
        training_threads=machine.training_threads(run.clock),
        usable_cores=machine.usable_cores(),
        input_causes=run.input_causes,
    )
    shares = dict(run.shares.items())
    parts_s = {
        part: share.value * run.steps.total_s / max(1, run.steps.counted + run.steps.failed)
        for part, name in PART_NAMES.items()
        if isinstance(share := shares[name], Estimate)
    }
    loader = max(loaders, key=lambda item: item.wait_s)
    supply = supply_of(loader, StepCost(now_s, parts_s), facts)
    if isinstance(supply, Missing):
        return supply, ""
    then_s = supply.predicted_s(supply.with_workers(workers))
    how = f"a batch takes {ms(supply.batch_s)}, on {supply.cores} cores"
    if not supply.workers:
        how += "; starting the workers at each epoch comes on top"
    return now_s / then_s, how
