"""How the training loader's data set makes its samples, for the report: by its code, nothing of it is run."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.derived import Preparation
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.cache.cached import CachedData
from jupyter_gpuprof.session.cache.plan import name_of, plan_of
from jupyter_gpuprof.session.cache.split import split_of


def preparation_seen(recorder: Recorder) -> Preparation | Missing:
    """That of the loader that the training waited for most."""
    sources = [source for source in recorder.sources.all if source.origin == "loader" and source.fetches]
    loader: Any = max(sources, key=lambda source: source.wait_ns).ref() if sources else None
    dataset = getattr(loader, "dataset", None)
    if dataset is None:
        return Missing("no DataLoader was seen, or it is gone")
    try:
        return preparation_of(dataset)
    except Exception as error:  # whatever a data set's attributes do when they are looked at
        return Missing(f"its code could not be read ({type(error).__name__}: {error})")


def preparation_of(dataset: Any) -> Preparation | Missing:
    """That of a data set."""
    if isinstance(dataset, CachedData):
        return Missing("its samples are cached already")
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return Missing("a stream's samples have no numbers to keep them by")
    name = name_of(dataset)
    plan = plan_of(dataset, name, brief=True)
    if not plan.hazards:
        return Preparation(plan.key, name, "deterministic")
    cut = split_of(dataset)
    if cut is not None:
        head = plan_of(cut.dataset, name, brief=True)
        if not head.hazards:
            return Preparation(head.key, name, "split", str(cut.reason))
    return Preparation(plan.key, name, "varying", str(plan.hazards[0]))
