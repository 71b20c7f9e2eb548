"""``%gpuprof audit``: the cell in fresh processes, straight and interrupted, and what that showed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.resumeaudit import Straight, conclude_audit
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.resumeaudit import ResumeAudit
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.spot import Audit
from jupyter_gpuprof.session.audit.plan import epoch_steps, planned, write_kills
from jupyter_gpuprof.session.audit.processes import Options, Processes, Progress
from jupyter_gpuprof.session.audit.standin import folders_of
from jupyter_gpuprof.session.checkpoints.checkpointcost import own_function
from jupyter_gpuprof.session.reruns.cell import Cell, plain_source
from jupyter_gpuprof.session.reruns.trial import LIMIT_S
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import recent_curves, save_curve

#: The straight run is no longer, though no second epoch has ended by then.
MOST_STEPS = 400


def audit_cell(
    cell: Cell,
    run: Run | None,
    namespace: Mapping[str, Any],
    *,
    save: str = "",
    load: str = "",
    folders: Sequence[str] = (),
    steps: int | None = None,
    limit_s: float = LIMIT_S,
    allow_writes: bool = False,
    only: Sequence[str] = (),
    progress: Progress | None = None,
) -> ResumeAudit:
    """Interrupt the cell in fresh processes, let it go on, and compare with the straight run.

    Args:
        cell: the last profiled cell.
        run: the run it gave, which tells whether its loader has workers.
        namespace: the kernel's; nothing in it is changed.
        save, load: the person's functions of a path, called after a step, and before the cell in the process
            that goes on; without them, the cell saves and goes on by itself.
        folders: where the cell keeps its checkpoints: relative paths, or variables that hold a path.
        steps: at most so many of the straight run.
        limit_s: a process that takes longer is ended.
        allow_writes: let the cell write outside of the audit's folder.
        only: beginnings of the names of cases, for tests; all of them without any.
        progress: told where it is.

    Raises:
        OptionError: an option makes no sense.
        CannotShip: a name the cell needs cannot be sent to another process.
        RerunError: the cell failed without an interruption, made no step, or writes elsewhere.
    """
    if bool(save) != bool(load):
        raise OptionError("An audit needs both --save and --load, or neither where the cell saves by itself.")
    if steps is not None and steps < 2:
        raise OptionError(f"A run of {steps} steps cannot be interrupted and go on: it takes 2 or more.")
    for name, flag in ((save, "--save"), (load, "--load")):
        if name:
            own_function(namespace, name, flag)
    started_at = clock.utc_now()
    options = Options(save, load, folders_of(folders, namespace), steps or MOST_STEPS, limit_s, allow_writes)
    with Processes(cell, namespace, options, progress) as processes:
        straight = processes.straight()
        length = epoch_steps(straight.steps, straight.ended)
        chosen, left = planned(len(straight.steps), length, straight.ended, _has_workers(run))
        chosen = [case for case in chosen if not only or case.name.startswith(tuple(only))]
        processes.expect(chosen)
        cases = [processes.case(case, straight) for case in chosen]
        if not only or any(name.startswith("while") for name in only):
            in_saves = write_kills(*processes.longest) or write_kills(*processes.straight_writes)
            processes.expect(in_saves)
            cases += [processes.case(case, straight) for case in in_saves]
            if not in_saves:
                left.append(
                    "An interruption in the middle of a save was not tried: fewer than two saves were seen."
                )
    outcome, sentence = conclude_audit(cases, straight)
    audit = ResumeAudit(
        audit_id=new_run_id(started_at),
        run_id=run.run_id if run is not None else cell.run_id,
        run_name=cell.run_name,
        started_at=started_at,
        cell_digest=cell_digest(cell),
        how=f"{save} and {load}" if save else "the cell itself",
        steps=len(straight.steps),
        epoch_steps=length,
        cases=tuple(cases),
        outcome=outcome,
        sentence=sentence,
        notes=(*_notes(straight), *left),
    )
    save_curve(audit)
    return audit


def audit_of(cell: Cell | None) -> Audit:
    """What the last audit of that cell came to, for `jupyter_gpuprof.session.spot`."""
    if cell is None:
        return "never ran"
    digest = cell_digest(cell)
    found = (audit for audit in recent_curves(ResumeAudit, None) if audit.cell_digest == digest)
    newest = next(found, None)
    return "never ran" if newest is None else newest.audit


def cell_digest(cell: Cell) -> str:
    """Of the cell's Python, whatever its first line says."""
    return hashlib.sha256(plain_source(cell.source).encode()).hexdigest()[:16]


def _has_workers(run: Run | None) -> bool:
    loaders = run.loaders if run is not None else ()
    return any(not isinstance(one.num_workers, Missing) and one.num_workers > 0 for one in loaders)


def _notes(straight: Straight) -> list[str]:
    words = {
        "samples": "samples",
        "rates": "learning rates",
        "content": "content of the samples",
        "losses": "losses",
    }
    other = [name for key, name in words.items() if key not in straight.asked]
    if not other:
        return []
    return [f"Two straight runs do not agree in their {', '.join(other)}: these were not compared."]
