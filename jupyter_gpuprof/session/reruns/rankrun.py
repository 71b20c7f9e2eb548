"""What a rank does: join, replicate the model, take its part of the data, run the cell, compare weights."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import GpuprofError
from jupyter_gpuprof.probes import dataparallel, shards
from jupyter_gpuprof.session.profile import Options
from jupyter_gpuprof.session.reruns.cell import CELL_NAME, compile_cell, give_shell, needs_shell, run_cell
from jupyter_gpuprof.session.reruns.job import Job, JobFolder, Round
from jupyter_gpuprof.session.reruns.rerun_child import first_line, measured, outcome_of, prepare, step_blocks
from jupyter_gpuprof.session.reruns.shipping import unship

#: Seconds that a collective may wait before it gives up; whoever started the ranks loses patience earlier.
COLLECTIVE_S = 180.0


def run_rank(job: Job, files: JobFolder) -> Round:
    """Run this rank's part of a job; what goes wrong is its outcome."""
    os.chdir(job.cwd)
    guard = prepare(job, files.path)
    rank, world = dataparallel.world()
    replicas: dataparallel.Replicas | None = None
    try:
        code = compile_cell(job.source, job.script[0] if job.script else CELL_NAME)
        # Alone, or where the cell does it by itself, there is nothing to divide: it runs as it is.
        divided = world > 1 and not job.raw
        if divided:
            dataparallel.join(job.device_kind, COLLECTIVE_S)
        namespace = unship(Path(job.names)) if job.names else vars(sys.modules["__main__"])
        if job.script:
            _be_script(job.script, namespace)
        if needs_shell(job.source):
            give_shell(namespace)
        if divided:
            replicas = _divide(job, rank, world)
    except Exception as error:
        return Round("failed", error=_words(error))

    options = Options(job.name, job.warmup, job.steps, in_step=True)
    session, run, raised = measured(options, files, guard, lambda: run_cell(code, namespace))
    steps, per_block = step_blocks(session)
    why = "" if raised is None else _words(raised)
    return _checked(Round(outcome_of(run, raised), run, steps, per_block, error=why), replicas)


def _be_script(words: tuple[str, ...], namespace: dict[str, Any]) -> None:
    """What ``python script.py args`` begins with."""
    sys.argv = list(words)
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    namespace["__file__"] = words[0]


def _divide(job: Job, rank: int, world: int) -> dataparallel.Replicas:
    """Let the ranks share what there is, and what the cell makes later."""
    loaders = shards.Shards(rank, world, strong=job.mode == "strong")
    loaders.divide_living()
    loaders.watch_loaders()
    replicas = dataparallel.Replicas(find_unused=job.find_unused)
    replicas.replicate_living()
    replicas.watch_optimizers()
    return replicas


def _checked(done: Round, replicas: dataparallel.Replicas | None) -> Round:
    """The round, failed if the ranks' models are no longer the same; leaves the process group."""
    if replicas is None or done.outcome != "measured":
        return done
    try:
        why = replicas.disagreement()
        dataparallel.leave()
    except Exception as error:
        why = _words(error)
    return replace(done, outcome="failed", error=why) if why else done


def _words(error: BaseException) -> str:
    """What went wrong; the doubled group is named by what to do about it."""
    if isinstance(error, GpuprofError):
        return str(error)
    words = f"{type(error).__name__}: {first_line(error)}"
    if "initialize the default process group twice" in words:
        words += " The cell distributes its work by itself: use --raw."
    return words
