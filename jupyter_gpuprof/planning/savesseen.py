"""The interval that a loop saves at today, from the share of its time that saving took."""

from __future__ import annotations

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.spot import Range

_FEWEST = 1.5


def interval_seen(run: Run, blocking_s: float) -> Range | Missing:
    """Seconds of other work between two saves of the run, from `blocking_s` for each of them.

    A run tells the share of its wall time in which it wrote checkpoints, not how many: their number is that
    time over what one takes. From n of them the interval is known to ``t/(n+1)`` to ``t/(n-1)``.

    Args:
        run: of the loop.
        blocking_s: what one save of that loop was measured to take.
    """
    share, wall_s = run.shares.between.checkpoint, run.steps.total_s
    if isinstance(share, Missing):
        return share
    saving_s = share.value * wall_s
    count = saving_s / blocking_s
    if count < 0.5:
        return Missing(f"no save was seen in the {wall_s:.3g} s that were profiled")
    if count < _FEWEST:
        return Missing(f"only one save was seen in the {wall_s:.3g} s that were profiled")
    between_s = wall_s - saving_s
    return Range(between_s / count, between_s / (count + 1), between_s / (count - 1))
