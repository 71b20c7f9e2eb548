"""A step table and its context in, shares, verdict and remedies out: the whole of the thinking."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jupyter_gpuprof.analysis.advice import Advice
from jupyter_gpuprof.analysis.cost import StepCost
from jupyter_gpuprof.analysis.remedies import remedies_for
from jupyter_gpuprof.analysis.rules import Evidence, Thresholds
from jupyter_gpuprof.analysis.stability import (
    Resampled,
    block_length,
    least_warmup,
    resample,
    trimmed_mean,
    warmup_steps,
)
from jupyter_gpuprof.analysis.verdict import halves_of, judge
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.reading import Missing, Number, Share
from jupyter_gpuprof.records.run import Between, Remedy, Shares, Steps, Verdict
from jupyter_gpuprof.records.timing import PART_NAMES, Part, StepTable


@dataclass(frozen=True)
class Conclusion:
    """What a table of steps says."""

    steps: Steps
    shares: Shares
    verdict: Verdict
    remedies: tuple[Remedy, ...]
    no_help: tuple[str, ...] = ()  # what would not help, and why


def conclude(table: StepTable, facts: Facts, limits: Thresholds | None = None) -> Conclusion:
    """Shares with intervals, the verdict and its remedies.

    Args:
        table: where each step's time went, warm-up included.
        facts: the context.
        limits: thresholds other than the default ones.
    """
    workers, prefetch = _workers(facts)
    warm_rows = _warmup_rows(table, facts, workers, prefetch)
    warmup, counted = table.seconds[:warm_rows], table.seconds[warm_rows:]
    block = max(1, block_length(workers) // table.steps_per_row)
    skew = (facts.exposed_skew_ratio, facts.late_rank)
    evidence = Evidence(resample(counted, block), table.missing, *skew)
    halves = [
        Evidence(resample(half, block), table.missing, *skew) for half in halves_of(counted) if len(half)
    ]
    steps = _steps(table, facts, counted, warmup, warm_rows)
    expected = least_warmup(table.steps, workers=workers, prefetch=prefetch) + table.steps_per_row
    long_warmup = facts.live and facts.warmup_steps is None and steps.warmup > expected
    if long_warmup and steps.counted:
        doubt = (
            f"{steps.warmup} of {table.steps} steps were left out as warm-up: they were slower than the rest."
        )
        facts = replace(facts, doubts=(*facts.doubts, doubt))
    verdict = judge(evidence, halves, steps, facts, limits)
    shares = _shares(evidence.resampled, table.missing, bool(len(counted)))
    advice = Advice()
    if steps.counted and not isinstance(steps.mean_s, Missing):
        n = steps.counted + steps.failed
        cost = StepCost(
            float(steps.mean_s), {part: float(evidence.resampled.sums[part] / n) for part in Part}
        )
        advice = remedies_for((verdict.label, *verdict.also), evidence, cost, facts)
    return Conclusion(steps, shares, verdict, tuple(advice.remedies), tuple(advice.no_help))


def _workers(facts: Facts) -> tuple[int, int]:
    """Most workers of a training loader and its prefetch factor."""
    best = (0, 2)
    for loader in facts.training_loaders():
        if not isinstance(loader.num_workers, Missing) and loader.num_workers > best[0]:
            prefetch = 2 if isinstance(loader.prefetch_factor, Missing) else int(loader.prefetch_factor)
            best = (int(loader.num_workers), prefetch)
    return best


def _warmup_rows(table: StepTable, facts: Facts, workers: int, prefetch: int) -> int:
    rows = len(table.seconds)
    if facts.warmup_steps is not None:
        return min(rows, -(-facts.warmup_steps // table.steps_per_row))
    if not facts.live:
        return 0  # a stored trace holds few steps, chosen after warm-up by whoever took it
    inside = [part for part in Part if part not in (Part.EPOCH_START, Part.CHECKPOINT, Part.VALIDATION)]
    durations = table.seconds[:, inside].sum(axis=1) / table.steps_per_row
    return warmup_steps(durations, workers=workers, prefetch=prefetch)


def _steps(
    table: StepTable,
    facts: Facts,
    counted: NDArray[np.float64],
    warmup: NDArray[np.float64],
    warm_rows: int,
) -> Steps:
    n = max(0, table.steps - warm_rows * table.steps_per_row) if len(counted) else 0
    failed = min(facts.failed_steps, n)
    total_s = float(counted.sum())
    nothing = Missing("no step was counted")
    sample = table.sample_s[warm_rows:] if len(table.sample_s) > warm_rows else table.sample_s
    typical: Number = trimmed_mean(sample) if n and len(sample) else nothing
    mean: Number = (total_s - float(counted[:, Part.VALIDATION].sum())) / n if n else nothing
    return Steps(
        counted=n - failed,
        warmup=table.steps - n,
        failed=failed,
        optimizer_steps=facts.optimizer_steps,
        typical_s=typical,
        mean_s=mean,
        total_s=total_s,
        warmup_s=float(warmup.sum()),
    )


def _shares(resampled: Resampled, missing: dict[Part, str], any_step: bool) -> Shares:
    def share(part: Part) -> Share:
        if part in missing:
            return Missing(missing[part])
        return resampled.share((part,)) if any_step else Missing("no step was counted")

    by_name = {name: share(part) for part, name in PART_NAMES.items()}
    between = {
        name.partition(".")[2]: value for name, value in by_name.items() if name.startswith("between.")
    }
    inside = {name: value for name, value in by_name.items() if not name.startswith("between.")}
    return Shares(between=Between(**between), **inside)
