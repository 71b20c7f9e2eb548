"""The processes of an audit, one by one: straight, interrupted, and going on; nothing of them is left."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.resumeaudit import Resumed, Straight, conclude_case
from jupyter_gpuprof.analysis.resumecompare import repeatable
from jupyter_gpuprof.errors import RerunError
from jupyter_gpuprof.probes import machine
from jupyter_gpuprof.records.resumeaudit import Case, SeenStep
from jupyter_gpuprof.session.audit.plan import Kill, Planned
from jupyter_gpuprof.session.audit.standin import Folders, stand_in
from jupyter_gpuprof.session.audit.task import Left, Task, Write, read_lines, write_task
from jupyter_gpuprof.session.audit.warm import Warm
from jupyter_gpuprof.session.reruns.cell import Cell, compile_cell, plain_source
from jupyter_gpuprof.session.reruns.job import Job, JobFolder
from jupyter_gpuprof.session.reruns.rerun import PATIENCE_S, run_job
from jupyter_gpuprof.session.reruns.shipping import ship
from jupyter_gpuprof.session.reruns.trial import RerunProgress

Progress = Callable[[RerunProgress], None]

_CHILD = "jupyter_gpuprof.session.audit.child"
#: What an audit runs before it knows what else, in processes.
_AT_FIRST = 16


@dataclass(frozen=True)
class Options:
    """Of an audit; see `jupyter_gpuprof.session.audit.audit.audit_cell`."""

    save: str
    load: str
    folders: Folders
    steps: int
    limit_s: float
    allow_writes: bool


class Processes:
    """Runs them; use it as a context manager, which leaves no file behind.

    Args:
        cell: what they run.
        namespace: the kernel's; nothing in it is changed.
        options: of the audit.
        progress: told where it is.

    Raises:
        UsageError: the cell is nothing that can be rerun.
        CannotShip: a name it needs cannot be sent to another process.
    """

    def __init__(
        self, cell: Cell, namespace: Mapping[str, Any], options: Options, progress: Progress | None
    ) -> None:
        source = plain_source(cell.source)
        compile_cell(source)
        self._options, self._progress, self._namespace = options, progress, namespace
        self._began_s = clock.now_s()
        self._done, self._expected = 0, _AT_FIRST
        self._warm: Warm | None = None
        #: What a process wrote before it was killed, and the steps it made: of the one that saved most often.
        self.longest: tuple[tuple[Write, ...], int] = ((), 0)
        #: The same of the straight run, which may save too seldom for those that were killed early.
        self.straight_writes: tuple[tuple[Write, ...], int] = self.longest
        self._job = Job(
            source=source,
            name=cell.run_name,
            steps=options.steps,
            threads=machine.torch_threads(),
            device_module=machine.device_module(),
            sys_path=tuple(sys.path),
            cwd=os.getcwd(),
        )

    def __enter__(self) -> Processes:
        self._folder = Path(tempfile.mkdtemp(prefix="gpuprof-audit-"))
        try:
            names, options = self._folder / "names.pkl", self._options
            own = f"\n{options.save}; {options.load}" if options.save else ""
            own += "".join(f"\n{name}" for name in options.folders.variables)
            ship(self._job.source + own, self._namespace, names)
            self._job = replace(self._job, names=str(names))
            if Warm.possible(self._job):
                (self._folder / "warm").mkdir()
                self._warm = Warm(self._folder / "warm", self._job)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        if self._warm is not None:
            self._warm.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def expect(self, cases: Sequence[Planned]) -> None:
        """So many processes will follow."""
        self._expected = self._done + sum(len(case.kills) + 1 + bool(case.settings) for case in cases)

    def straight(self, times: int = 2, settings: tuple[str, ...] = ()) -> Straight:
        """The run that nobody interrupts; what two of them agree on is what can be asked.

        The first is a process that was not forked: what both agree on hangs on nothing that forks share.

        Raises:
            RerunError: the cell fails, or makes no step.
        """
        found = []
        for number in range(times):
            with self._place() as work:
                task = Task(str(work), self._options.steps, two_epochs=True)
                what = f"straight, {number + 1} of {times}"
                found.append(self._run(task, settings, what, fresh=times > 1 and not number))
        for left in found:
            if left.error:
                raise RerunError(f"The cell failed in a fresh process: {left.error.rstrip('.')}.")
            check_steps(left.steps)
        first, last = found[0], found[-1]
        self.straight_writes = first.writes, len(first.steps)
        return Straight(first.steps, repeatable(first.steps, last.steps), first.ended)

    def case(self, case: Planned, straight: Straight) -> Case:
        """Interrupt as planned, let it go on, and compare.

        Raises:
            RerunError: the cell failed before it was interrupted.
        """
        if case.settings:
            straight = replace(self.straight(1, case.settings), asked=straight.asked)
        what = f"interrupted {case.name}"
        with self._place() as work:
            first = self._run(self._until(case.kills[0], 0, straight, work), case.settings, what)
            if first.error and case.kills[0].how == "SIGKILL":
                raise RerunError(f"The cell failed in a fresh process: {first.error.rstrip('.')}.")
            made, resumed = len(first.steps), list[Resumed]()
            self._after(case.kills[0], first, work)
            for kill in (*case.kills[1:], None):
                task = replace(self._until(kill, made, straight, work), load=self._options.load)
                left = self._run(task, case.settings, what)
                known = made if self._options.save and not case.kills[0].in_save else None
                resumed.append(Resumed(left.steps, left.error, left.ended, known))
                made += len(left.steps)
        return conclude_case(
            case.name,
            tuple(_kill_words(kill, self._options.save) for kill in case.kills),
            straight,
            len(first.steps),
            resumed,
            wrote=bool(self._options.save) or any(write.steps for write in first.writes),
            in_save=case.kills[0].in_save,
        )

    def _until(self, kill: Kill | None, made: int, straight: Straight, work: Path) -> Task:
        """The process that goes on after so many steps, until it is killed or as far as the straight one.

        It may begin anew at a save that is up to an epoch old.
        """
        total = len(straight.steps)
        epoch = sum(step.epoch == straight.steps[0].epoch for step in straight.steps)
        task = Task(str(work), max(1, min(total, total - made + epoch)))
        if kill is None:
            return task
        task = replace(task, stop_after=total + 2, kill_how=kill.how, kill_write=kill.write)
        if not kill.write:
            task = replace(task, kill_after=max(1, kill.after - made))
        if self._options.save:
            task = replace(task, save=self._options.save, save_from=max(1, kill.after - made - 1))
        return task

    def _after(self, kill: Kill, left: Left, work: Path) -> None:
        """Cut the file that was being written; note what was written, to interrupt that later."""
        if kill.in_save is not None and kill.in_save.cut and left.writes:
            number = kill.write - 1 if kill.write else len(left.writes)
            _cut(work / left.writes[min(number, len(left.writes)) - 1].path)
        elif kill.how == "SIGKILL" and not kill.write:
            known, here = (len({write.steps for write in ws}) for ws in (self.longest[0], left.writes))
            if here > known:
                self.longest = left.writes, len(left.steps)

    def _run(self, task: Task, settings: tuple[str, ...], what: str, fresh: bool = False) -> Left:
        options = self._options
        renamed = {name: str(Path(task.work) / f"folder-{name}") for name in options.folders.variables}
        task = replace(task, renamed=renamed, allow_writes=options.allow_writes)
        folder = Path(tempfile.mkdtemp(dir=self._folder))

        def on_step(step: int) -> None:
            if self._progress is not None:
                share = (self._done + min(1.0, max(0, step) / task.stop_after)) / max(1, self._expected)
                self._progress(RerunProgress(what, min(1.0, share), clock.now_s() - self._began_s))

        try:
            files = JobFolder(folder)
            files.write_job(replace(self._job, settings=settings))
            write_task(folder, task)
            why, words = run_job(
                files,
                limit_s=options.limit_s,
                patience_s=PATIENCE_S,
                on_step=on_step,
                module=_CHILD,
                start=None if fresh or self._warm is None or not self._warm.ready() else self._warm.start,
            )
            left, last = read_lines(folder), files.last_words()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._done += 1
        if left.refused and left.error:
            raise RerunError(
                f"The cell writes {left.refused}, which an audit leaves as it is.",
                "Name the folder of its checkpoints with --folder, or allow it with --allow-writes.",
            )
        if why:
            return replace(left, error=f"it {'hung' if why == 'hung' else 'took too long'} {words}")
        if not left.error and "exit status" in words:
            return replace(left, error=last or words)
        return left

    @contextmanager
    def _place(self) -> Iterator[Path]:
        """A stand-in for the current folder."""
        own = Path(tempfile.mkdtemp(prefix="w", dir=self._folder))
        try:
            stand_in(Path.cwd(), own / "w", self._options.folders.hidden)
            for name in self._options.folders.variables:
                if os.path.isdir(self._namespace[name]):
                    (own / "w" / f"folder-{name}").mkdir()
            yield own / "w"
        finally:
            shutil.rmtree(own, ignore_errors=True)


def check_steps(steps: Sequence[SeenStep]) -> None:
    """See that a straight run can be interrupted between its steps.

    Raises:
        RerunError: it has fewer than two.
    """
    if len(steps) > 1:
        return
    if steps and not steps[0].content:
        raise RerunError(
            "The cell trains without a DataLoader, by whose batches an audit tells its steps.",
            "Let it read its batches from a torch.utils.data.DataLoader.",
        )
    number = "no training step" if not steps else "one training step, and an audit needs two"
    raise RerunError(
        f"In a fresh process the cell made {number}.",
        "If it goes on from checkpoints that are there already, name their folder with --folder.",
    )


def _cut(path: Path) -> None:
    """Leave half of a file, as an interruption in the middle of writing it does."""
    with suppress(OSError):
        os.truncate(path, path.stat().st_size // 2)


def _kill_words(kill: Kill, save: str) -> str:
    if kill.in_save is not None:
        return f"{kill.how} in the save after step {kill.after}"
    return f"{kill.how} {'after' if kill.how == 'SIGKILL' or save else 'in'} step {kill.after}"
