"""``%gpuprof batch``: the last profiled cell at other batch sizes; what fits, and what it brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.batchcurve import conclude_batch
from jupyter_gpuprof.analysis.trial import mean_step
from jupyter_gpuprof.errors import OptionError, RerunError, UsageError
from jupyter_gpuprof.records.batch import BatchCurve, BatchPoint
from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.job import Round
from jupyter_gpuprof.session.reruns.rerun import Rerun, steps_for
from jupyter_gpuprof.session.reruns.trial import LIMIT_S, RerunProgress
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import save_curve

#: Multiples of today's batch size.
GROW = (1.0, 2.0, 4.0)
UNTIL_MEMORY = 0.9


def parse_grow(text: str) -> tuple[float, ...]:
    """``"1,2,4"`` as multiples of today's batch size, smallest first.

    Raises:
        OptionError: they are not positive numbers.
    """
    try:
        found = tuple(sorted({float(word) for word in text.split(",") if word.strip()}))
    except ValueError:
        found = ()
    if not found or not all(0 < value < float("inf") for value in found):
        raise OptionError(f"--grow takes multiples of the batch size such as 1,2,4, not {text!r}.")
    return found


def parse_share(text: str) -> float:
    """``"90%"`` or ``"0.9"`` as a share, above 0 and up to 1.

    Raises:
        OptionError: it is none.
    """
    try:
        value = float(text.rstrip("% ")) / (100.0 if text.rstrip().endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise OptionError(f"--until-memory takes a share of the memory such as 90%, not {text!r}.")
    return value


def batch_curve(
    cell: Cell,
    run: Run,
    namespace: Mapping[str, Any],
    *,
    grow: Sequence[float] = GROW,
    until_memory: float = UNTIL_MEMORY,
    steps: int | None = None,
    limit_s: float = LIMIT_S,
    allow_writes: bool = False,
    progress: Callable[[RerunProgress], None] | None = None,
) -> BatchCurve:
    """Rerun the cell in a fresh process for each batch size, smallest first, until memory ends.

    Where the fit says that a larger batch than those would fit, that one is tried as well.

    Args:
        cell: the last profiled cell.
        run: the run it gave.
        namespace: the kernel's; nothing in it is changed.
        grow: multiples of today's batch size.
        until_memory: the share of the device's memory that may be filled.
        steps, limit_s, allow_writes, progress: as in `try_change`.

    Raises:
        UsageError: the batch size of the cell is not known, or the cell none that can be rerun.
        CannotShip: a name the cell needs cannot be sent to another process.
        RerunError: no batch size could be measured.
    """
    today = _batch_size(run)
    sizes = sorted({max(1, round(today * factor)) for factor in grow})
    wanted = steps_for(cell, steps)
    capacity = run.device.memory_bytes
    started_at, started_s = clock.utc_now(), clock.now_s()
    points: list[BatchPoint] = []
    notes: list[str] = []
    with Rerun(cell, namespace, allow_writes=allow_writes) as rerun:

        def measure(size: int, number: int, of: int) -> BatchPoint:
            def on_step(step: int) -> None:
                if progress is not None:
                    done = (number + min(1.0, max(0, step) / (1.3 * wanted))) / of
                    progress(RerunProgress(f"batch size {size}", done, clock.now_s() - started_s))

            result = rerun.round((f"batch_size={size}",), wanted, limit_s=limit_s, on_step=on_step)
            if result.not_applied and not result.lines:
                why = "; ".join(result.not_applied)
                unknown = Missing(why)
                return BatchPoint(size, "failed", unknown, unknown, unknown, why)
            notes.extend(note for note in result.not_applied if note not in notes)
            return _point(size, result)

        for number, size in enumerate(sizes):
            points.append(measure(size, number, len(sizes)))
            if points[-1].outcome == "out of memory":
                break
        fit, largest, _, _ = conclude_batch(points, capacity, until_memory)
        beyond = not isinstance(fit, Missing) and not isinstance(largest, Missing) and largest > sizes[-1]
        if beyond and all(point.outcome == "measured" for point in points):
            points.append(measure(int(largest), len(sizes), len(sizes) + 1))  # type: ignore[arg-type]
    if not any(point.outcome != "failed" for point in points):
        raise RerunError(f"No batch size could be measured: {points[0].why}.".replace("..", "."))
    memory, largest, plateau, sentence = conclude_batch(points, capacity, until_memory)
    curve = BatchCurve(
        curve_id=new_run_id(started_at),
        run_id=run.run_id,
        run_name=run.name,
        started_at=started_at,
        device=run.device,
        points=tuple(sorted(points, key=lambda point: point.batch_size)),
        until_memory=until_memory,
        memory=memory,
        largest_batch=largest,
        plateau_batch=plateau,
        sentence=sentence,
        notes=tuple(notes),
    )
    save_curve(curve)
    return curve


def _batch_size(run: Run) -> int:
    for loader in run.loaders:
        if loader.role != "validation" and not isinstance(loader.batch_size, Missing):
            return int(loader.batch_size)
    raise UsageError(
        "The batch size of the last run is not known: no DataLoader told it.",
        "Use a DataLoader with batch_size in the profiled cell.",
    )


def _point(size: int, result: Round) -> BatchPoint:
    run = result.run
    if result.outcome != "measured" or run is None or not result.step_s:
        outcome = "out of memory" if result.outcome == "out of memory" else "failed"
        unknown = Missing(result.error or result.outcome)
        peak = run.memory.peak_allocated_bytes if run is not None else unknown
        return BatchPoint(size, outcome, unknown, unknown, peak, result.error or result.outcome)  # type: ignore[arg-type]
    step = mean_step([result.step_s])
    rate = Estimate(size / step.value, size / step.high, size / step.low)
    return BatchPoint(size, "measured", rate, step.value, run.memory.peak_allocated_bytes)
