"""The fresh process of an audit: run the cell, write down its steps, and be interrupted as told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from jupyter_gpuprof.probes import changes
from jupyter_gpuprof.probes.auditedwrites import FileWatch
from jupyter_gpuprof.probes.trail import Trail
from jupyter_gpuprof.records.resumeaudit import SeenStep
from jupyter_gpuprof.records.settings import parse_settings
from jupyter_gpuprof.session.audit.task import Lines, Task, Write, read_task
from jupyter_gpuprof.session.checkpoints import checkpointer
from jupyter_gpuprof.session.reruns.cell import compile_cell, give_shell, needs_shell, run_cell
from jupyter_gpuprof.session.reruns.job import Job, JobFolder
from jupyter_gpuprof.session.reruns.rerun_child import first_line, prepare
from jupyter_gpuprof.session.reruns.shipping import unship

#: A process that was told to end has so many steps to do so.
GRACE_STEPS = 2
#: Of the third epoch so many steps are looked at.
_INTO_THIRD = 2


def main(folder: str) -> None:
    """Run the job of a folder; what is left of it are the lines it wrote."""
    path = Path(folder)
    _Process(JobFolder(path), read_task(path), Lines(path)).run()


class _Process:
    def __init__(self, files: JobFolder, task: Task, lines: Lines) -> None:
        self._files, self._task, self._lines = files, task, lines
        self._namespace: dict[str, Any] = {}
        self._trail = Trail(self._stepped, self._boundary, self._update)
        self._boundaries = self._writes = self._in_third = 0
        self._first_epoch: int | None = None

    def run(self) -> None:
        """Until the cell ends or this process does."""
        job, task = self._files.read_job(), self._task
        os.chdir(task.work)
        prepare(job, self._files.path)
        code = compile_cell(job.source)
        try:
            self._set_up(job)
            self._guard()
            if task.load:
                self._call(task.load)
            contexts = changes.apply(parse_settings(job.settings), self._namespace).contexts
        except Exception as error:
            self._failed(error)
            return
        self._trail.start()
        try:
            for context in contexts:
                context.__enter__()
            run_cell(code, self._namespace)
            self._trail.close_step()
            self._boundary(self._trail.steps)
            self._lines.write("ended", True)
        except SystemExit:
            self._trail.close_step()
        except BaseException as error:
            self._trail.close_step()
            self._failed(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # threads and workers of the cell are none of ours; the audit ends them

    def _set_up(self, job: Job) -> None:
        self._namespace = namespace = unship(Path(job.names))
        for name, folder in self._task.renamed.items():
            namespace[name] = type(namespace[name])(folder)
        if needs_shell(job.source):
            give_shell(namespace)
        _take_checkpointers(Path(self._task.work))

    def _guard(self) -> None:
        FileWatch(
            Path(self._task.work),
            also=[self._files.path],
            refuse=not self._task.allow_writes,
            on_write=self._writing,
            on_refusal=lambda path: self._lines.write("refused", path),
        ).start()

    def _failed(self, error: BaseException) -> None:
        self._lines.write("error", f"{type(error).__name__}: {first_line(error)}")

    def _call(self, name: str) -> None:
        """The person's function that saves or loads; that it failed is said of it, not of the cell."""
        try:
            self._namespace[name](self._task.checkpoint)
        except Exception as error:
            self._lines.write("error", f"`{name}` raised {type(error).__name__}: {first_line(error)}")
            raise

    def _writing(self, what: str, path: str) -> None:
        self._writes += 1
        self._lines.write("write", Write(what, path, self._trail.step))
        if self._writes == self._task.kill_write:
            os.kill(os.getpid(), signal.SIGKILL)

    def _stepped(self, step: int, seen: SeenStep) -> None:
        self._lines.write("step", seen)
        self._files.write_progress(step)
        if self._first_epoch is None:
            self._first_epoch = seen.epoch
        self._in_third += seen.epoch > self._first_epoch + 1

    def _boundary(self, steps: int) -> None:
        """After a step, before the next batch; what belongs to a step is done once."""
        task = self._task
        if steps == self._boundaries:
            return
        self._boundaries = steps
        if task.save and task.save_from and steps >= task.save_from:
            self._call(task.save)
        last = task.kill_after + (GRACE_STEPS if task.kill_how == "SIGTERM" and not task.save else 0)
        if task.kill_after and steps >= last:
            os.kill(os.getpid(), getattr(signal, "SIGKILL" if not task.save else task.kill_how))
        if steps >= task.stop_after or (task.two_epochs and self._in_third >= _INTO_THIRD):
            os._exit(0)

    def _update(self, step: int) -> None:
        """In the middle of a step: the cell's own handler has the rest of it to act."""
        task = self._task
        if step == task.kill_after and task.kill_how == "SIGTERM" and not task.save:
            os.killpg(0, signal.SIGTERM)  # as a launcher does: loader workers get it too


def _take_checkpointers(work: Path) -> None:
    """Our Checkpointers write into the audit's folder, after each step, and wait until it is safe."""
    original = checkpointer.Checkpointer.__init__

    def __init__(self: Any, folder: Any, **options: Any) -> None:
        name = "".join(letter if letter.isalnum() else "-" for letter in os.fspath(folder))
        original(self, work / f"checkpointer{name}", **{**options, "every": 1, "async_": False})

    checkpointer.Checkpointer.__init__ = __init__  # type: ignore[method-assign]
