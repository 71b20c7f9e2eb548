"""The remedy that keeps samples instead of making them again, where their data set allows it."""

from __future__ import annotations

from jupyter_gpuprof.analysis.advice import Advice, costliest_line
from jupyter_gpuprof.analysis.cost import WORTH, StepCost
from jupyter_gpuprof.analysis.repeats import kept_activities
from jupyter_gpuprof.analysis.supply import Supply
from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Remedy

_ID, _SETTING = "input.cache", "cache"


def cache_remedy(
    advice: Advice, causes: Causes, supply: Supply | Missing, cost: StepCost, facts: Facts
) -> None:
    """Weigh `jupyter_gpuprof.cached`, by what the data set's code says of it."""
    prepared = facts.preparation
    names = kept_activities(prepared)
    share = sum(causes.share_of(name).value for name in names)
    if share <= 1 - WORTH:
        return
    bound = ": at most"
    call, caveat = "cached(dataset)", "what is random in the transforms cannot be kept"
    if not isinstance(prepared, Missing):
        if prepared.kind == "varying":
            advice.no_help.append(f"Caching the samples: no, {prepared.reason}")
            return
        caveat = "by its code nothing in it is random"
        if prepared.kind == "split":
            call, caveat = "cached(dataset, split=True)", f"{prepared.reason}, and stays"
            bound = ", and what the transforms before that cost, which was not measured apart"
    elif "already" in prepared.reason:
        return
    what = " and ".join(name for name in names if causes.share_of(name).value > 1 - WORTH)
    line = costliest_line(causes, *names)
    how = f"without {what}, {100 * share:.0f} % of a batch{bound}; {caveat}"
    title = f"Compute the samples once and read them back: {call}"
    predicted = supply if isinstance(supply, Missing) else supply.predicted_s(supply.without(causes, *names))
    advice.weigh(
        cost.mean_s,
        Remedy(_ID, title, predicted, f"{how}; {line}" if line else how, _SETTING),
        f"{title}: no, the step does not get shorter without {what} ({100 * share:.0f} % of a batch)",
    )
