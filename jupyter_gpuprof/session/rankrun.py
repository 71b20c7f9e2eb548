"""What a rank does: join, replicate the model, take its part of the data, run the cell, compare weights."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import GpuprofError
from jupyter_gpuprof.probes import dataparallel, shards
from jupyter_gpuprof.session.cell import compile_cell, give_shell, needs_shell, run_cell
from jupyter_gpuprof.session.job import Job, JobFolder, Round
from jupyter_gpuprof.session.profile import Options, Progress, Session, StopProfiling
from jupyter_gpuprof.session.rerun_child import first_line, outcome_of, prepare, step_blocks
from jupyter_gpuprof.session.shipping import unship

#: Seconds a collective may wait for a rank that hangs, before this one gives up.
COLLECTIVE_S = 120.0


def run_rank(job: Job, files: JobFolder) -> Round:
    """Run this rank's part of a job; what goes wrong is its outcome."""
    os.chdir(job.cwd)
    prepare(job)
    rank, world = dataparallel.world()
    try:
        code = compile_cell(job.source, job.script[0] if job.script else "<profiled cell>")
        if not job.raw:
            dataparallel.join(job.device_kind, COLLECTIVE_S)
        namespace = unship(Path(job.names)) if job.names else {"__name__": "__main__"}
        if needs_shell(job.source):
            give_shell(namespace)
        replicas = None if job.raw else _divide(job, rank, world)
    except GpuprofError as error:
        return Round("failed", error=str(error))
    except Exception as error:
        return Round("failed", error=f"{type(error).__name__}: {first_line(error)}")

    def progress(now: Progress) -> None:
        files.write_progress(now.step)

    options = Options(job.name, job.warmup, job.steps, in_step=True)
    session = Session(options, progress=progress, save=False)
    session.start()
    files.write_progress(0)
    raised: BaseException | None = None
    try:
        with shards.as_script(job.script) if job.script else nullcontext():
            run_cell(code, namespace)
    except StopProfiling:
        session.stopped_by_limit()
    except BaseException as error:
        raised = error
    session.ended_with(raised)
    run = session.finish()
    steps, per_block = step_blocks(session)
    done = Round(
        outcome_of(run, raised),
        run,
        steps,
        per_block,
        error="" if raised is None else f"{type(raised).__name__}: {first_line(raised)}",
    )
    return _checked(done, replicas)


def _divide(job: Job, rank: int, world: int) -> dataparallel.Replicas:
    """Let the ranks share what there is, and what the cell makes later."""
    loaders = shards.Shards(rank, world, strong=job.mode == "strong")
    loaders.divide_living()
    loaders.watch_loaders()
    replicas = dataparallel.Replicas(find_unused=job.find_unused)
    replicas.replicate_living()
    replicas.watch_optimizers()
    return replicas


def _checked(done: Round, replicas: Any) -> Round:
    """The round, failed if the ranks' models are no longer the same; leaves the process group."""
    if replicas is None:
        return done
    try:
        if done.outcome == "measured":
            why = replicas.disagreement()
            if why:
                return replace(done, outcome="failed", error=why)
        dataparallel.leave()
    except Exception as error:
        return replace(done, outcome="failed", error=f"{type(error).__name__}: {first_line(error)}")
    return done
