"""The interval that a loop saves at today, from the saves that its run saw."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.spot import Range

#: Fewer saves tell no interval.
_FEWEST = 1.5


def interval_seen(run: Run, blocking_s: float) -> Range | Missing:
    """Seconds of other work between two saves of the run.

    From n saves in t seconds of other work it is known to ``t/(n+1)`` to ``t/(n-1)``.

    Args:
        run: of the loop; it counts its saves, warm-up and all, and tells the share of time that they took.
        blocking_s: what one save of that loop was measured to take, for a run that did not count.
    """
    share, wall_s = run.shares.between.checkpoint, run.steps.total_s
    if isinstance(share, Missing):
        return share
    saving_s = share.value * wall_s
    if isinstance(run.saves, Missing):
        count = saving_s / blocking_s
    else:
        count, wall_s = float(run.saves), wall_s + run.steps.warmup_s
    if count < 0.5:
        return Missing(f"no save was seen in the {wall_s:.3g} s that were profiled")
    if count < _FEWEST:
        return Missing(f"only one save was seen in the {wall_s:.3g} s that were profiled")
    between_s = wall_s - saving_s
    return Range(between_s / count, between_s / (count + 1), between_s / (count - 1))
