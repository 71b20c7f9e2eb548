"""Rerun a profiled cell in fresh processes, one by one; the kernel's own objects stay as they are."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import jobs, machine
from jupyter_gpuprof.session.interrupts import held
from jupyter_gpuprof.session.reruns.cell import Cell, compile_cell, plain_source
from jupyter_gpuprof.session.reruns.job import Job, JobFolder, Round
from jupyter_gpuprof.session.reruns.shipping import ship
from jupyter_gpuprof.session.reruns.writes import refuse_writes

#: A process that came to no further step for so long hangs.
PATIENCE_S = 120.0
#: A round measures about so long, within these numbers of steps.
ROUND_S, FEWEST_STEPS, MOST_STEPS = 8.0, 24, 400
#: What a job's process runs: its ``sys.path`` is the kernel's before anything of ours is imported.
_BOOT = (
    "import json, sys, pathlib; folder = sys.argv[1]; "
    "sys.path[:] = json.loads((pathlib.Path(folder) / 'job.json').read_text())['sys_path']; "
    "import {module} as child; child.main(folder)"
)

#: Bytes of a temporary folder's path in which `multiprocessing` can still make sockets: they may have 103
#: on macOS, the least of all systems, and end in "/pymp-XXXXXXXX/listener-XXXXXXXX".
MOST_TMPDIR_BYTES = 71

#: Starts a job's process some other way: gives what is like a `subprocess.Popen`, its tag, and the pid of
#: another process of that tag, which is not of the job.
Start = Callable[[JobFolder], tuple[Any, str, int]]
#: Told the step that a round has come to (-1 before the first).
OnStep = Callable[[int], None]


def steps_for(cell: Cell, wanted: int | None) -> int:
    """Counted steps of a round: what was asked for, or about eight seconds of them.

    Raises:
        UsageError: fewer than one was asked for.
    """
    if wanted is not None:
        if wanted < 1:
            raise UsageError(f"A round cannot count {wanted} steps: it takes 1 or more.")
        return wanted
    if not cell.mean_step_s:
        return FEWEST_STEPS
    return int(min(MOST_STEPS, max(FEWEST_STEPS, ROUND_S / cell.mean_step_s)))


class Rerun:
    """Reruns of one cell; use it as a context manager, which leaves no file behind.

    Args:
        cell: what to run.
        namespace: the kernel's; nothing in it is changed.
        allow_writes: run a cell that writes files all the same.

    Raises:
        UsageError: the cell writes files, or is nothing that can be rerun.
        CannotShip: a name it needs cannot be sent to another process.
    """

    def __init__(self, cell: Cell, namespace: Mapping[str, Any], *, allow_writes: bool = False) -> None:
        source = plain_source(cell.source)
        compile_cell(source)
        if not allow_writes:
            refuse_writes(cell.source, source, namespace)
        self.cell = cell
        self._namespace = namespace
        self._job = Job(
            source=source,
            name=cell.run_name,
            steps=FEWEST_STEPS,
            threads=machine.torch_threads(),
            device_module=machine.device_module(),
            sys_path=tuple(sys.path),
            cwd=os.getcwd(),
            guard_writes=not allow_writes,
        )

    def __enter__(self) -> Rerun:
        self._folder = Path(tempfile.mkdtemp(prefix="gpuprof-rerun-"))
        try:
            self._names = self._folder / "names.pkl"
            self.shipment = ship(self._job.source, self._namespace, self._names)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def round(
        self,
        settings: tuple[str, ...],
        steps: int,
        *,
        limit_s: float,
        patience_s: float = PATIENCE_S,
        on_step: OnStep | None = None,
    ) -> Round:
        """Run the cell once in a fresh process; whatever happens, no process is left.

        Args:
            settings: changes, as ``name=value``.
            steps: counted steps.
            limit_s: after so long the process is ended.
            patience_s: after so long without a further step, too.
            on_step: told where it is, about five times a second.
        """
        job = replace(self._job, steps=steps, settings=settings, names=str(self._names))
        with self._job_folder() as files:
            files.write_job(job)
            why, words = run_job(files, limit_s=limit_s, patience_s=patience_s, on_step=on_step)
            done = files.read_round()
            if why or done is None:
                return Round(why or "failed", error=words)
            return done

    @contextmanager
    def _job_folder(self) -> Iterator[JobFolder]:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            yield JobFolder(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run_job(
    files: JobFolder,
    *,
    limit_s: float,
    patience_s: float,
    on_step: OnStep | None,
    module: str = "jupyter_gpuprof.session.reruns.rerun_child",
    start: Start | None = None,
) -> tuple[Any, str]:
    """Start a job's process and wait for its end.

    Args:
        files: the job's.
        limit_s: after so long it is ended.
        patience_s: after so long without a further step, too.
        on_step: told where it is, about five times a second.
        module: whose `main` the process runs.
        start: starts it instead of us.

    Returns:
        "hung" or "timed out" if it was ended by us, else ""; and how it ended, in words.

    Raises:
        KeyboardInterrupt: and whatever else interrupts the wait, once the process is ended.
    """
    tag, keep = secrets.token_hex(8), 0
    started_s = moved_s = clock.now_s()
    step = -1
    process = None
    try:
        with held():
            if start is not None:
                process, tag, keep = start(files)
            else:
                command, env = boot_command(module, files.path), own_temporary(files.path)
                process = jobs.start(command, tag=tag, env=env, output=files.output)
        while not jobs.ended(process, 0.2):
            now_s, came_to = clock.now_s(), files.progress()
            if came_to != step:
                step, moved_s = came_to, now_s
            if on_step is not None:
                on_step(step)
            at = f"at step {step}" if step >= 0 else "before its first step"
            if now_s - started_s > limit_s:
                return "timed out", f"{at}, after {limit_s:.0f} s"
            if now_s - moved_s > patience_s:
                return "hung", f"{at}, for {patience_s:.0f} s"
        return "", jobs.how_ended(process) or files.last_words()
    finally:
        if process is not None:
            with held():  # a second Ctrl-C must not leave it behind
                jobs.end(process, tag, keep=keep)


def boot_command(module: str, folder: Path) -> list[str]:
    """What starts a process that runs `main(folder)` of a module of ours; the folder holds its job."""
    return [sys.executable, "-c", _BOOT.format(module=module), str(folder)]


def own_temporary(folder: Path) -> dict[str, str]:
    """The environment in which what a job's processes leave in the temporary folder goes with the job's."""
    return {"TMPDIR": str(folder)} if len(os.fsencode(folder)) <= MOST_TMPDIR_BYTES else {}
