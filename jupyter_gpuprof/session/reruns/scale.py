"""``%gpuprof scale``: the last profiled cell, unchanged, on several device counts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import RerunError, UsageError
from jupyter_gpuprof.planning.scaling import Conclusion, Outcome, conclude_scaling
from jupyter_gpuprof.probes import dataparallel, machine
from jupyter_gpuprof.records.run import Device, Run
from jupyter_gpuprof.records.scaling import Scaling, ScalingPoint, ScalingProgress
from jupyter_gpuprof.session.interrupts import held
from jupyter_gpuprof.session.reruns.backends import device_kind_of
from jupyter_gpuprof.session.reruns.cell import Cell, compile_cell, plain_source
from jupyter_gpuprof.session.reruns.job import Job, JobFolder, Round
from jupyter_gpuprof.session.reruns.launch import Backend, Local
from jupyter_gpuprof.session.reruns.names import needed_names
from jupyter_gpuprof.session.reruns.rerun import PATIENCE_S, steps_for
from jupyter_gpuprof.session.reruns.scaleoptions import ScaleOptions, interleaved
from jupyter_gpuprof.session.reruns.shipping import ship
from jupyter_gpuprof.session.reruns.tally import Tally, batch_size, judge
from jupyter_gpuprof.session.reruns.writes import refuse_writes
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import save_curve

LIVE_PERIOD_S = 0.25
#: Once a rank has failed, the others may take so long to end by themselves.
LAST_S = 10.0
#: What in a cell's source says that it distributes its work by itself.
_DISTRIBUTED = re.compile(
    r"torch\.distributed|init_process_group|DistributedDataParallel|fully_shard|FullyShardedDataParallel"
    r"|\bAccelerator\(|\bFabric\(|\bTrainer\("
)
#: Told the record so far and where the measurement is, at most four times a second.
OnUpdate = Callable[[Scaling, ScalingProgress], None]


class Scale:
    """One measurement: `run` does all of it and gives the record, also when it is interrupted.

    Args:
        cell: what to run; of a script, its text.
        profiled: the run the cell gave, where there is one.
        namespace: the kernel's; nothing in it is changed.
        options: what the person chose.
        backend: where the ranks run; None is this machine.
        script: a script and its arguments, instead of a cell.
        on_update: told where it is.

    Raises:
        UsageError: the cell writes files or is nothing that can be rerun, or no count fits here.
    """

    def __init__(
        self,
        cell: Cell,
        profiled: Run | None,
        namespace: Mapping[str, Any],
        options: ScaleOptions,
        *,
        backend: Backend | None = None,
        script: Sequence[str] = (),
        on_update: OnUpdate | None = None,
    ) -> None:
        source = cell.source if script else plain_source(cell.source)
        compile_cell(source)
        if not options.allow_writes and not script:
            refuse_writes(cell.source, source, namespace)
        self._cell, self._profiled, self._options = cell, profiled, options
        self._namespace = namespace
        self._on_update = on_update
        self._device: Device = machine.describe_device(
            machine.awake_accelerator() or machine.any_accelerator()
        )
        kind = device_kind_of(backend) or self._device.kind
        threads = None
        if backend is None:
            room = machine.usable_cores() if kind == "cpu" else machine.device_count(kind)
            fit = [count for count in options.counts if count <= room]
            threads = max(1, machine.usable_cores() // max(fit, default=1))
            backend = Local(room, threads)
        self._backend = backend
        raw = bool(_DISTRIBUTED.search(source)) if options.raw is None else options.raw
        self._ranks: Literal["devices", "CPU processes"] = "CPU processes" if kind == "cpu" else "devices"
        self._notes: list[str] = []
        if raw and options.raw is None:
            self._note("The cell distributes its work by itself and was left to do so.")
        self._job = Job(
            source=source,
            name=cell.run_name,
            steps=steps_for(cell, options.steps),
            threads=threads if kind == "cpu" else None,
            sys_path=tuple(sys.path),
            cwd=os.getcwd(),
            mode=options.mode,
            raw=raw,
            device_kind=kind,
            device_module=machine.device_module(),
            script=tuple(script),
            guard_writes=not options.allow_writes and not script,
        )
        self._started_at, self._started_s = clock.utc_now(), clock.now_s()
        self._id = new_run_id(self._started_at)
        self._tallies = {count: Tally(count) for count in options.counts}
        self._batch = batch_size(profiled)  # of one rank; in strong mode, of all together
        self._concluded: tuple[tuple[ScalingPoint, ...], Conclusion] | None = None
        self._shown_s = 0.0
        self._skip_what_is_too_many()

    def run(self) -> Scaling:
        """Measure all counts; saved in the ledger if there is anything to save.

        Raises:
            UsageError, CannotShip: before anything runs.
            RerunError: no count could be measured at all.
        """
        order = list(interleaved(self._options.counts, self._options.repeats))
        finished = True
        try:
            with self._folder() as folder:
                self._ship(folder)
                for number, count in enumerate(order):
                    tally = self._tallies[count]
                    if not tally.over:
                        self._measure(tally, folder, number / len(order), 1 / len(order))
        except KeyboardInterrupt:
            finished = False
            self._note("The measurement was interrupted; it holds what was measured until then.")
            for tally in self._tallies.values():
                if not tally.throughputs and not tally.over:
                    tally.end("cancelled", "interrupted")
        measured = any(tally.throughputs for tally in self._tallies.values())
        if not measured and finished:
            whys = [f"{t.count}: {t.why}" for t in self._tallies.values() if t.why]
            raise RerunError(f"No device count could be measured ({'; '.join(whys)}).")
        with held():
            if measured:
                self._save(finished)
            return self._record(finished)

    # -- one count -------------------------------------------------------------------------------

    def _measure(self, tally: Tally, folder: Path, done: float, part: float) -> None:
        rounds, outcome, why = self._job_of(tally, folder, done, part)
        if outcome == "failed" and "find_unused_parameters" in why and not self._job.find_unused:
            self._job = replace(self._job, find_unused=True)
            self._note("Some parameters are not used in every step; the reduction looks for them.")
            rounds, outcome, why = self._job_of(tally, folder, done, part)
        if outcome != "measured":
            tally.end(outcome, why)
            if tally.throughputs:
                self._note(f"A repeat of {tally.count} was left out: {why}.")
            return
        run = tally.add(rounds)
        self._device = run.device
        each = batch_size(run)
        if each is not None:
            self._batch = each * tally.count if self._options.mode == "strong" else each
        else:
            self._note("The size of a batch is not known: throughput counts batches as if they were samples.")
        for sentence in run.ranks.sentences if run.ranks is not None else ():
            self._note(f"At {tally.count}: {sentence}")

    def _job_of(
        self, tally: Tally, folder: Path, done: float, part: float
    ) -> tuple[list[Round], Outcome, str]:
        """Run one job: its ranks' rounds, the outcome, and why it is not "measured"."""
        job_folder = Path(tempfile.mkdtemp(dir=folder))
        ranks = [JobFolder(job_folder, rank) for rank in range(tally.count)]
        ranks[0].write_job(self._job)
        handle = None
        try:
            with held():
                handle = self._backend.submit(job_folder, tally.count)
            ended_because, words = self._wait(handle, ranks, tally, done, part)
        except RerunError as error:  # the launcher refused; other counts may fit
            ended_because, words = str(error), ""
        finally:
            with held():
                if handle is not None:
                    self._backend.cancel(handle)
        rounds = _rounds(ranks)
        shutil.rmtree(job_folder, ignore_errors=True)
        outcome, why = judge(rounds, tally.count, ended_because, words)
        return rounds, outcome, why.rstrip(".")

    def _wait(
        self, handle: Any, ranks: list[JobFolder], tally: Tally, done: float, part: float
    ) -> tuple[str, str]:
        """Wait for a job's end: why it was ended by us, or "", and the launcher's last words."""
        running_s = moved_s = clock.now_s()
        failed_s: float | None = None
        step, first = -1, (0.0, 0)  # `first`: when the ranks were first seen at work, and at which step
        while (status := self._backend.status(handle)).state != "ended":
            now_s = clock.now_s()
            if status.state == "queued":
                running_s = moved_s = now_s
            came_to = min(files.progress() for files in ranks)
            if came_to != step:
                if step < 0:
                    tally.startups_s.append(now_s - running_s)
                if step <= 0:
                    first = (now_s, came_to)
                step, moved_s = came_to, now_s
            rate = (step - first[1]) / (now_s - first[0]) if step > first[1] and now_s > first[0] else None
            ahead = done + part * min(1.0, max(0, step) / (1.3 * self._job.steps))
            self._show(tally, status.words or status.state, ahead, rate)
            if now_s - running_s > self._options.limit_s:
                return f"it took longer than {self._options.limit_s:.0f} s and was ended", ""
            if step > 0 and now_s - moved_s > PATIENCE_S:
                return f"a rank came to no further step in {PATIENCE_S:.0f} s, and all were ended", ""
            if failed_s is None and any(left.outcome != "measured" for left in _rounds(ranks)):
                failed_s = now_s
            if failed_s is not None and now_s - failed_s > LAST_S:
                return "a rank failed, and the others were ended", ""
        return "", status.words

    def _show(self, tally: Tally, state: str, done: float, rate: float | None) -> None:
        now_s = clock.now_s()
        if self._on_update is None or now_s - self._shown_s < LIVE_PERIOD_S:
            return
        self._shown_s = now_s
        running = None
        if rate is not None and self._batch is not None:
            ranks = 1 if self._options.mode == "strong" else tally.count
            running = (tally.count, rate * self._batch * ranks)
        what = f"{tally.count} {self._ranks_word(tally.count)}, repeat {len(tally.throughputs) + 1}, {state}"
        self._on_update(self._record(False), ScalingProgress(what, done, now_s - self._started_s, running))

    # -- around it -------------------------------------------------------------------------------

    def _skip_what_is_too_many(self) -> None:
        most = self._backend.most()
        if most is None:
            return
        local = self._backend.name == "local"
        what = "device" if self._job.device_kind != "cpu" else "core" if local else "node"
        what += "s" if most != 1 else ""
        where = "this machine" if local else self._backend.name
        for tally in self._tallies.values():
            if tally.count > most:
                tally.end("skipped", f"{where} has {most} {what}")
        if all(tally.over for tally in self._tallies.values()):
            raise UsageError(
                f"None of these counts fits: {where} has room for {most}.",
                "Name a smaller count, or use --on slurm.",
            )

    def _ship(self, folder: Path) -> None:
        if self._job.script:
            return
        needed = needed_names(self._job.source)
        frameworks = dataparallel.names_of_frameworks(
            value for name, value in self._namespace.items() if name in needed
        )
        if frameworks:
            raise UsageError(
                f"The cell uses a {frameworks[0]} object that was made before it for one process.",
                "Make it inside the profiled cell; it then distributes the work by itself.",
            )
        path = folder / "names.pkl"
        ship(self._job.source, self._namespace, path)
        self._job = replace(self._job, names=str(path))

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        root = getattr(self._backend, "shared_folder", None)
        folder = Path(tempfile.mkdtemp(prefix="gpuprof-scale-", dir=root))
        try:
            yield folder
        finally:
            with held():
                shutil.rmtree(folder, ignore_errors=True)

    def _note(self, words: str) -> None:
        if words not in self._notes:
            self._notes.append(words)

    def _save(self, finished: bool) -> None:
        try:
            remark = save_curve(self._record(finished))
        except Exception as error:  # the person keeps the curve on the screen
            remark = f"The curve could not be saved in the ledger ({error})."
        if remark:
            self._note(remark)

    def _ranks_word(self, count: int) -> str:
        return self._ranks if count != 1 else "device" if self._ranks == "devices" else "CPU process"

    def _conclude(self) -> Conclusion:
        """What follows from the points, worked out anew only where they have changed: it takes a while."""
        points, options = tuple(tally.point() for tally in self._tallies.values()), self._options
        if self._concluded is None or self._concluded[0] != points:
            conclusion = conclude_scaling(
                points,
                options.mode,
                ranks=self._ranks,
                least_gain=options.least_gain,
                least_efficiency=options.least_efficiency,
                price_per_device_hour=options.price_per_hour,
            )
            self._concluded = points, conclusion
        return self._concluded[1]

    def _record(self, finished: bool) -> Scaling:
        done = self._conclude()
        return Scaling(
            scaling_id=self._id,
            run_id=self._profiled.run_id if self._profiled else "",
            run_name=self._cell.run_name,
            started_at=self._started_at,
            mode=self._options.mode,
            backend=self._backend.name,
            ranks=self._ranks,
            device_name=self._device.name,
            simulated=self._device.simulated,
            steps=self._job.steps,
            points=done.points,
            fit=done.fit,
            worth_it_count=done.worth_it_count,
            rule=done.rule,
            costs=done.costs,
            verdict=done.verdict,
            notes=tuple(self._notes),
            finished=finished,
        )


def _rounds(ranks: Sequence[JobFolder]) -> list[Round]:
    """What the ranks have left so far."""
    return [done for files in ranks if (done := files.read_round()) is not None]
