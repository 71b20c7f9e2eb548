"""``%gpuprof try``: the last profiled cell with and without a change, in turn, and what that showed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.trial import mean_step, ratio_of
from jupyter_gpuprof.errors import RerunError, UsageError
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.settings import parse_settings
from jupyter_gpuprof.records.trial import Trial, Variant
from jupyter_gpuprof.session.reruns.cell import Cell
from jupyter_gpuprof.session.reruns.job import Round
from jupyter_gpuprof.session.reruns.prediction import predicted_ratio
from jupyter_gpuprof.session.reruns.rerun import Rerun, steps_for
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import save_trial

#: A without the change, B with it; in this order what drifts meanwhile hits both alike.
ORDER = "ABBA"
#: Seconds after which a round is ended.
LIMIT_S = 300.0


@dataclass(frozen=True)
class RerunProgress:
    """Where a series of reruns is: `done` of all its steps, 0 to 1, and what runs now."""

    what: str
    done: float
    elapsed_s: float


def try_change(
    cell: Cell,
    run: Run,
    namespace: Mapping[str, Any],
    words: Sequence[str],
    *,
    steps: int | None = None,
    limit_s: float = LIMIT_S,
    allow_writes: bool = False,
    progress: Callable[[RerunProgress], None] | None = None,
) -> Trial:
    """Run the cell four times in fresh processes, A B B A, and compare.

    Args:
        cell: the last profiled cell.
        run: the run it gave.
        namespace: the kernel's; nothing in it is changed.
        words: the change, as ``name=value``; without any, that of the top remedy that can be tried.
        steps: counted steps of each round; by default about eight seconds of them.
        limit_s: a round that takes longer is ended.
        allow_writes: rerun a cell that writes files all the same.
        progress: told where it is.

    Raises:
        UsageError: the change is none that can be tried, or the cell none that can be rerun.
        CannotShip: a name the cell needs cannot be sent to another process.
        RerunError: the cell failed, hung or counted no step, with or without the change.
    """
    settings = tuple(words) or _top_remedy(run)
    parse_settings(settings)
    predicted, how = predicted_ratio(run, settings)
    wanted = steps_for(cell, steps)
    started_at, started_s = clock.utc_now(), clock.now_s()
    rounds: dict[str, list[Round]] = {"A": [], "B": []}
    changed = ", ".join(settings)
    with Rerun(cell, namespace, allow_writes=allow_writes) as rerun:
        for number, letter in enumerate(ORDER):
            what = f"round {number + 1} of {len(ORDER)}, {'with ' + changed if letter == 'B' else 'as it is'}"

            def on_step(step: int, number: int = number, what: str = what) -> None:
                if progress is not None:
                    done = (number + min(1.0, max(0, step) / (1.3 * wanted))) / len(ORDER)
                    progress(RerunProgress(what, done, clock.now_s() - started_s))

            applied = settings if letter == "B" else ()
            result = rerun.round(applied, wanted, limit_s=limit_s, on_step=on_step)
            rounds[letter].append(_measured(result, changed if letter == "B" else ""))
            if letter == "B" and result.not_applied and not result.lines:
                raise UsageError(
                    f"{changed} cannot be tried on this cell: {'; '.join(result.not_applied).rstrip('.')}.",
                    "Nothing of yours was changed.",
                )
    before, after = (_variant(rounds[letter]) for letter in "AB")
    unit, scale = _unit(before, after)
    workers = (_workers(rounds["A"]), _workers(rounds["B"]))
    first = rounds["B"][0]
    trial = Trial(
        trial_id=new_run_id(started_at),
        run_id=run.run_id,
        run_name=run.name,
        started_at=started_at,
        device=_run(first).device,
        settings=settings,
        order=ORDER,
        unit=unit,
        before=before,
        after=after,
        ratio=ratio_of([r.step_s for r in rounds["A"]], [r.step_s for r in rounds["B"]], workers, scale),
        predicted=predicted,
        predicted_how=how,
        lines=first.lines,
        not_applied=first.not_applied,
        notes=_notes(before, after, wanted),
    )
    save_trial(trial)
    return trial


def _top_remedy(run: Run) -> tuple[str, ...]:
    for remedy in run.remedies:
        if remedy.setting:
            return tuple(remedy.setting.split())
    raise UsageError(
        "The last run has no remedy that can be tried by itself.",
        "Name a change: %gpuprof try num_workers=4 (%gpuprof help lists them).",
    )


def _measured(result: Round, changed: str) -> Round:
    """The round, if it measured something."""
    if result.outcome == "measured" and result.run is not None and result.step_s:
        return result
    where = f"with {changed}" if changed else "as it is, in a fresh process,"
    what = {
        "out of memory": "ran out of memory",
        "no step": "ran without a training step that could be counted",
        "hung": "came to no further step and was ended",
        "timed out": "took too long and was ended",
    }.get(result.outcome, "failed")
    words = f": {result.error}" if result.error else ""
    raise RerunError(f"The cell {where} {what}{words}.".replace("..", "."))


def _variant(rounds: list[Round]) -> Variant:
    runs = [_run(item) for item in rounds]
    last = runs[-1]
    agree = all(run.verdict.label == last.verdict.label for run in runs)
    sizes = [
        loader.batch_size
        for loader in last.loaders
        if loader.role == "training" and not isinstance(loader.batch_size, Missing)
    ]
    size: Number = sizes[0] if sizes else Missing("no loader tells its batch size")
    peaks = [
        run.memory.peak_allocated_bytes
        for run in runs
        if not isinstance(run.memory.peak_allocated_bytes, Missing)
    ]
    return Variant(
        label=last.verdict.label if agree else "unclear",
        sentence=last.verdict.sentence if agree else "Its rounds came to different verdicts.",
        step_s=mean_step([item.step_s for item in rounds], _workers(rounds)),
        rounds_s=tuple(item.mean_s for item in rounds),
        steps=sum(run.steps.counted for run in runs),
        samples_per_step=size,
        shares=last.shares,
        peak_allocated_bytes=max(peaks) if peaks else last.memory.peak_allocated_bytes,
    )


def _unit(before: Variant, after: Variant) -> tuple[Any, float]:
    """What is compared: steps, or samples where the batch size changed."""
    a, b = before.samples_per_step, after.samples_per_step
    if isinstance(a, Missing) or isinstance(b, Missing) or a == b or not a:
        return "step", 1.0
    return "sample", b / a


def _notes(before: Variant, after: Variant, wanted: int) -> tuple[str, ...]:
    fewest = min(before.steps, after.steps)
    if fewest >= len(ORDER) // 2 * wanted * 0.8:
        return ()
    return (f"The cell ended by itself before {wanted} steps: {fewest} were counted in two rounds.",)


def _workers(rounds: list[Round]) -> int:
    counts = [
        int(loader.num_workers)
        for loader in _run(rounds[0]).loaders
        if not isinstance(loader.num_workers, Missing)
    ]
    return max(counts, default=0)


def _run(result: Round) -> Run:
    assert result.run is not None
    return result.run
