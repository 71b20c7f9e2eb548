"""The same preprocessing in several runs: what the device waited for, though it had been computed before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from jupyter_gpuprof.records.causes import Causes
from jupyter_gpuprof.records.derived import Preparation, Repeated
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Run


def repeated(runs: Iterable[Run]) -> list[Repeated]:
    """Preparations that several runs had, those that cost most first.

    Of each run after the first, ``devices * input wait * share of a batch that could have been kept`` counts.

    Args:
        runs: in any order; those on a CPU do not count.
    """
    by_key: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.started_at):
        prepared = run.preparation
        if run.device.kind != "cpu" and isinstance(prepared, Preparation) and prepared.kind != "varying":
            by_key[prepared.key].append(run)
    found = []
    for same in by_key.values():
        waits = [_idle_s(run) for run in same[1:]]
        known = [wait for wait in waits if not isinstance(wait, Missing)]
        preparation = same[0].preparation
        if known and isinstance(preparation, Preparation):
            found.append(Repeated(preparation.name, len(same), sum(known)))
    return sorted(found, key=lambda one: -one.idle_s)


def _idle_s(run: Run) -> float | Missing:
    """Device seconds of one run that a cache would have saved, at most."""
    wait, causes, preparation = run.shares.exposed_input, run.input_causes, run.preparation
    if isinstance(causes, Missing) or not isinstance(wait, Estimate) or isinstance(preparation, Missing):
        return Missing("what it waited for was not sampled")
    kept = kept_share(causes, preparation)
    return wait.value * run.steps.total_s * max(1, run.device.count) * kept


def kept_share(causes: Causes, preparation: Preparation) -> float:
    """The part of making a batch that need not be done again."""
    return sum(causes.share_of(name).value for name in kept_activities(preparation))


def kept_activities(preparation: Preparation | Missing) -> tuple[str, ...]:
    """What of making a batch need not be done again; of a split pipeline only what surely comes before."""
    if isinstance(preparation, Preparation) and preparation.kind == "split":
        return ("decoding",)
    return ("decoding", "transforming")


def repeat_sentences(found: Iterable[Repeated], least_s: float = 36.0) -> tuple[str, ...]:
    """A sentence each, for those that cost a hundredth of a device hour or more."""
    return tuple(
        f"The preprocessing of {one.name} was repeated in {one.runs} runs: {one.idle_s / 3600:.2f} GPU-hours "
        "of idle device, at most, that cached() would have saved"
        for one in found
        if one.idle_s >= least_s
    )
