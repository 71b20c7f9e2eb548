"""The fresh process of a rerun: unpack the names, make the change, run the cell under a session."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from jupyter_gpuprof.errors import WritesFiles
from jupyter_gpuprof.probes import changes, machine
from jupyter_gpuprof.probes.writeguard import WriteGuard
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.settings import parse_settings
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.session.cache.trial import kept_for_trial
from jupyter_gpuprof.session.profile import Options, Progress, Session, StopProfiling
from jupyter_gpuprof.session.reruns.cell import compile_cell, give_shell, needs_shell, run_cell
from jupyter_gpuprof.session.reruns.job import Job, JobFolder, Outcome, Round
from jupyter_gpuprof.session.reruns.shipping import unship


def main(folder: str) -> None:
    """Run the job of a folder and leave its round there."""
    files = JobFolder(Path(folder))
    job = files.read_job()
    files.write_round(_round(job, files))


def _round(job: Job, files: JobFolder) -> Round:
    os.chdir(job.cwd)
    guard = prepare(job, files.path)
    code = compile_cell(job.source)
    try:
        namespace = unship(Path(job.names))
        if needs_shell(job.source):
            give_shell(namespace)
        applied = changes.apply(parse_settings(job.settings), namespace, kept_for_trial)
    except Exception as error:
        return Round("failed", error=f"{type(error).__name__}: {error}")

    def work() -> None:
        with ExitStack() as stack:
            for context in applied.contexts:
                stack.enter_context(context)
            run_cell(code, namespace)

    session, run, raised = measured(Options(job.name, job.warmup, job.steps), files, guard, work)
    step_s, per_block = step_blocks(session)
    outcome = outcome_of(run, raised)
    return Round(
        outcome,
        run,
        step_s,
        per_block,
        applied.not_applied,
        applied.lines,
        "" if raised is None else f"{type(raised).__name__}: {first_line(raised)}",
    )


def measured(
    options: Options, files: JobFolder, guard: WriteGuard | None, work: Callable[[], None]
) -> tuple[Session, Run, BaseException | None]:
    """Do the work under a session that tells its progress.

    Args:
        options: of the session.
        files: of the job.
        guard: of the person's files.
        work: what runs the cell.

    Returns:
        The finished session, its run, and what the work ended with, where that is an error.
    """

    def progress(now: Progress) -> None:
        files.write_progress(now.step)

    session = Session(options, progress=progress, save=False)
    session.start()
    files.write_progress(0)
    raised: BaseException | None = None
    try:
        work()
    except StopProfiling:
        session.stopped_by_limit()
    except BaseException as error:
        raised = error
    if raised is None and guard is not None and guard.refused:
        raised = WritesFiles(guard.refused)  # somebody caught it
    session.ended_with(raised)
    return session, session.finish(), raised


def prepare(job: Job, folder: Path) -> WriteGuard | None:
    """The devices are the kernel's; the random numbers and the threads of every rerun are the same.

    Args:
        job: what is run.
        folder: its files.

    Returns:
        The guard of the person's files, unless they may be written.
    """
    random.seed(job.seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(job.seed)
    torch = machine.import_torch()
    if torch is not None:
        if job.device_module:
            importlib.import_module(job.device_module)
        torch.manual_seed(job.seed)
        if job.threads is not None:
            torch.set_num_threads(job.threads)
    if not job.guard_writes:
        return None
    guard = WriteGuard(folder)
    guard.install()
    return guard


def outcome_of(run: Run, raised: BaseException | None) -> Outcome:
    """What a run that ended like this is worth."""
    if raised is not None and machine.is_out_of_memory(raised):
        return "out of memory"
    if raised is not None and not isinstance(raised, SystemExit):
        return "failed"
    return "measured" if run.steps.counted else "no step"


def step_blocks(session: Session) -> tuple[tuple[float, ...], int]:
    """Mean seconds of a step per block of counted steps, validation left out, and the size of a block."""
    table, run = session.table, session.run
    if table is None or run is None:
        return (), 1
    warm_rows = -(-run.steps.warmup // table.steps_per_row)
    rows = table.seconds[warm_rows:]
    kept = [part for part in Part if part is not Part.VALIDATION]
    per_row = rows[:, kept].sum(axis=1) / table.steps_per_row
    return tuple(float(value) for value in per_row), table.steps_per_row


def first_line(error: BaseException) -> str:
    """What an error says, short; of one that a loader's worker passed on, what it said there."""
    lines: list[str] = str(error).strip().splitlines()
    if len(lines) > 2 and lines[1].startswith("Original Traceback"):
        return f"{lines[-1].partition(': ')[2] or lines[-1]} (in a DataLoader worker)"[:300]
    return lines[0][:300] if lines else ""
