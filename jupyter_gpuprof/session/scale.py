"""``%gpuprof scale``: the last profiled cell, unchanged, on several device counts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.trial import mean_step
from jupyter_gpuprof.errors import OptionError, RerunError, UsageError
from jupyter_gpuprof.planning.scaling import conclude_scaling, point
from jupyter_gpuprof.probes import dataparallel, machine
from jupyter_gpuprof.records.reading import Estimate, Missing, Number, Share
from jupyter_gpuprof.records.run import Device, Run
from jupyter_gpuprof.records.scaling import Scaling, ScalingPoint, ScalingProgress
from jupyter_gpuprof.session.cell import Cell, compile_cell, plain_source
from jupyter_gpuprof.session.job import Job, JobFolder, Round
from jupyter_gpuprof.session.launch import Backend, Local
from jupyter_gpuprof.session.rerun import PATIENCE_S, steps_for
from jupyter_gpuprof.session.shipping import ship
from jupyter_gpuprof.session.writes import refuse_writes
from jupyter_gpuprof.store.runs import new_run_id
from jupyter_gpuprof.store.trials import save_curve

Mode = Literal["weak", "strong"]
#: Seconds after which a job of one count is ended.
LIMIT_S = 300.0
LIVE_PERIOD_S = 0.25
#: What in a cell's source says that it distributes its work by itself.
_DISTRIBUTED = re.compile(
    r"torch\.distributed|init_process_group|DistributedDataParallel|fully_shard|FullyShardedDataParallel"
    r"|\bAccelerator\(|\bFabric\(|\bTrainer\("
)


@dataclass(frozen=True)
class ScaleOptions:
    """What a person may choose.

    Args:
        counts: device counts, each once.
        mode: "weak" keeps the batch of each device, "strong" that of all together.
        steps: counted steps of each rank in each repeat; None chooses.
        repeats: of each count.
        limit_s: a job that runs longer is ended; waiting in a queue does not count.
        raw: the cell distributes its work by itself; None looks at its source.
        allow_writes: run a cell that writes files all the same.
        least_gain, least_efficiency: the rule of what a count must bring to be worth it.
        price_per_hour: of one device, in any currency.
    """

    counts: tuple[int, ...]
    mode: Mode = "weak"
    steps: int | None = None
    repeats: int = 3
    limit_s: float = LIMIT_S
    raw: bool | None = None
    allow_writes: bool = False
    least_gain: float = 1.6
    least_efficiency: float = 0.7
    price_per_hour: float | None = None


#: Told the record so far and where the measurement is, at most four times a second.
OnUpdate = Callable[[Scaling, ScalingProgress], None]


def scale_options(counts: tuple[int, ...], args: Any) -> ScaleOptions:
    """The options of a door's parsed arguments.

    Raises:
        OptionError: a value makes no sense.
    """
    if args.repeats < 1:
        raise OptionError(f"--repeats takes 1 or more, not {args.repeats}.")
    if args.price is not None and args.price < 0:
        raise OptionError(f"--price takes what a device costs in an hour, not {args.price}.")
    if not args.least_gain > 1 or not 0 < args.least_efficiency <= 1:
        raise OptionError("--least-gain takes a number above 1, --least-efficiency one up to 1.")
    return ScaleOptions(
        counts=counts,
        mode=args.mode,
        steps=args.steps,
        repeats=args.repeats,
        limit_s=args.timeout or LIMIT_S,
        raw=True if args.raw else None,
        allow_writes=args.allow_writes,
        least_gain=args.least_gain,
        least_efficiency=args.least_efficiency,
        price_per_hour=args.price,
    )


def parse_counts(words: Sequence[str]) -> tuple[int, ...]:
    """Device counts, smallest first.

    Raises:
        OptionError: they are no positive whole numbers, or one comes twice.
    """
    try:
        counts = [int(word) for word in words]
    except ValueError:
        counts = [0]
    if not counts or min(counts) < 1:
        raise OptionError(
            f"Device counts are whole numbers from 1 on, not {' '.join(words)!r}.",
            "For example: %gpuprof scale 1 2 4 8",
        )
    if len(set(counts)) < len(counts):
        raise OptionError(f"A device count comes twice in {' '.join(words)}.", "Name each count once.")
    return tuple(sorted(counts))


def interleaved(counts: Sequence[int], repeats: int) -> Iterator[int]:
    """1, 2, 4, 4, 2, 1, 1, 2, 4: what drifts meanwhile hits all counts alike."""
    for repeat in range(repeats):
        yield from counts if repeat % 2 == 0 else reversed(counts)


@dataclass
class _Tally:
    """What one count has given so far."""

    count: int
    throughputs: list[float] = field(default_factory=list)
    spread: Estimate | None = None  # within the last repeat
    startups_s: list[float] = field(default_factory=list)
    communication: Share = field(default_factory=lambda: Missing("not measured"))
    waiting: Share = field(default_factory=lambda: Missing("not measured"))
    peak_bytes: Number = field(default_factory=lambda: Missing("not measured"))
    outcome: Any = "measured"
    why: str = ""

    @property
    def over(self) -> bool:
        """Whether it makes no sense to run this count again."""
        return self.outcome != "measured"


class Scale:
    """One measurement: `run` does all of it and gives the record, also when it is interrupted."""

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
        device = machine.awake_accelerator() or machine.any_accelerator()
        self._device: Device = machine.describe_device(device)
        cpu = self._device.kind == "cpu"
        room = machine.usable_cores() if cpu else machine.device_count(self._device.kind)
        fit = [count for count in options.counts if count <= room]
        threads = max(1, machine.usable_cores() // max(fit, default=1))
        self._backend: Backend = backend or Local(room, threads)
        self._raw = bool(_DISTRIBUTED.search(source)) if options.raw is None else options.raw
        self._notes: list[str] = []
        if self._raw and options.raw is None:
            self._notes.append("The cell distributes its work by itself and was left to do so.")
        self._job = Job(
            source=source,
            name=cell.run_name,
            steps=steps_for(cell, options.steps),
            threads=threads if cpu else None,
            sys_path=tuple(sys.path),
            cwd=os.getcwd(),
            mode=options.mode,
            raw=self._raw,
            device_kind=self._device.kind,
            script=tuple(script),
        )
        self._started_at, self._started_s = clock.utc_now(), clock.now_s()
        self._id = new_run_id(self._started_at)
        self._tallies = {count: _Tally(count) for count in options.counts}
        self._shown_s = 0.0
        self._skip_what_is_too_many()

    def run(self) -> Scaling:
        """Measure all counts; saved in the ledger.

        Raises:
            UsageError, CannotShip: before anything runs.
            RerunError: no count could be measured at all.
        """
        order = list(interleaved(self._options.counts, self._options.repeats))
        finished = True
        with self._shared_folder() as folder:
            try:
                self._ship(folder)
                for number, count in enumerate(order):
                    tally = self._tallies[count]
                    if not tally.over:
                        self._measure(tally, folder, number, len(order))
            except KeyboardInterrupt:
                finished = False
                self._notes.append("The measurement was interrupted; it holds what was measured until then.")
                for tally in self._tallies.values():
                    if not tally.throughputs and not tally.over:
                        tally.outcome, tally.why = "cancelled", "interrupted"
        record = self._record(finished)
        if not any(tally.throughputs for tally in self._tallies.values()) and finished:
            whys = [f"{t.count}: {t.why}" for t in self._tallies.values() if t.why]
            raise RerunError(f"No device count could be measured ({'; '.join(whys)}).")
        save_curve(record)
        return record

    # -- one count -------------------------------------------------------------------------------

    def _measure(self, tally: _Tally, folder: Path, number: int, of: int) -> None:
        rounds, outcome, why = self._job_of(tally, folder, number, of)
        if outcome == "failed" and "find_unused_parameters" in why and not self._job.find_unused:
            self._job = replace(self._job, find_unused=True)
            self._notes.append("Some parameters are not used in every step; the reduction looks for them.")
            rounds, outcome, why = self._job_of(tally, folder, number, of)
        if outcome != "measured":
            tally.outcome, tally.why = outcome, why
            if tally.throughputs:
                self._notes.append(f"A repeat of {tally.count} was left out: {why}.")
            return
        samples, step = _samples_per_step(rounds), mean_step([done.step_s for done in rounds])
        tally.throughputs.append(samples / step.value)
        tally.spread = Estimate(samples / step.value, samples / step.high, samples / step.low)
        first = rounds[0].run
        assert first is not None
        tally.communication = first.shares.exposed_communication
        tally.waiting = _waiting(first)
        peaks = [done.run.memory.peak_allocated_bytes for done in rounds if done.run is not None]
        known = [peak for peak in peaks if not isinstance(peak, Missing)]
        tally.peak_bytes = max(known) if known else peaks[0]

    def _job_of(self, tally: _Tally, folder: Path, number: int, of: int) -> tuple[list[Round], Any, str]:
        """Run one job: its ranks' rounds, the outcome, and why it is not "measured"."""
        job_folder = Path(tempfile.mkdtemp(dir=folder))
        ranks = [JobFolder(job_folder, rank) for rank in range(tally.count)]
        ranks[0].write_job(self._job)
        handle = self._backend.submit(job_folder, tally.count)
        try:
            ended_by_us = self._wait(handle, ranks, tally, number, of)
        finally:
            self._backend.cancel(handle)
        rounds = [done for files in ranks if (done := files.read_round()) is not None]
        words = ranks[0].last_words()
        shutil.rmtree(job_folder, ignore_errors=True)
        return _judge(rounds, tally.count, ended_by_us, words)

    def _wait(self, handle: Any, ranks: list[JobFolder], tally: _Tally, number: int, of: int) -> str:
        """Wait for a job's end; why it was ended by us, or ""."""
        running_s = moved_s = clock.now_s()
        step, first = -1, (0.0, 0)
        while (status := self._backend.status(handle)).state != "ended":
            now_s = clock.now_s()
            if status.state == "queued":
                running_s = moved_s = now_s
            came_to = min(files.progress() for files in ranks)
            if came_to != step:
                if step < 0:
                    first = (now_s, came_to)
                    tally.startups_s.append(now_s - running_s)
                step, moved_s = came_to, now_s
            rate = (step - first[1]) / (now_s - first[0]) if step > first[1] and now_s > first[0] else None
            self._show(tally, status.words or status.state, step, rate, number, of)
            if now_s - running_s > self._options.limit_s:
                return f"it took longer than {self._options.limit_s:.0f} s and was ended"
            if now_s - moved_s > PATIENCE_S:
                return f"a rank came to no further step in {PATIENCE_S:.0f} s, and all were ended"
        return ""

    def _show(self, tally: _Tally, state: str, step: int, rate: float | None, number: int, of: int) -> None:
        now_s = clock.now_s()
        if self._on_update is None or now_s - self._shown_s < LIVE_PERIOD_S:
            return
        self._shown_s = now_s
        done = (number + min(1.0, max(0, step) / (1.3 * self._job.steps))) / of
        batch = _batch_size(self._profiled)
        running = None
        if rate is not None and batch is not None:
            samples = batch if self._options.mode == "strong" else batch * tally.count
            running = (tally.count, rate * samples)
        repeat = len(tally.throughputs) + 1
        what = f"{tally.count} {self._ranks_word(tally.count)}, repeat {repeat}, {state}"
        self._on_update(self._record(False), ScalingProgress(what, done, now_s - self._started_s, running))

    # -- around it -------------------------------------------------------------------------------

    def _skip_what_is_too_many(self) -> None:
        most = self._backend.most()
        if most is None:
            return
        for tally in self._tallies.values():
            if tally.count > most:
                what = "cores" if self._device.kind == "cpu" else "devices"
                tally.outcome, tally.why = "skipped", f"this machine has {most} {what}"
        if all(tally.over for tally in self._tallies.values()):
            raise UsageError(
                f"None of these counts fits on this machine: it has room for {most}.",
                "Name a smaller count, or use --on slurm.",
            )

    def _ship(self, folder: Path) -> None:
        if self._job.script:
            return
        path = folder / "names.pkl"
        shipment = ship(self._job.source, self._namespace, path)
        frameworks = dataparallel.names_of_frameworks(
            self._namespace[name] for name in shipment.names if name in self._namespace
        )
        if frameworks:
            raise UsageError(
                f"The cell uses a {frameworks[0]} object that was made before it for one process.",
                "Make it inside the profiled cell; it then distributes the work by itself.",
            )
        self._job = replace(self._job, names=str(path))

    @contextmanager
    def _shared_folder(self) -> Iterator[Path]:
        root = getattr(self._backend, "shared_folder", None)
        folder = Path(tempfile.mkdtemp(prefix="gpuprof-scale-", dir=root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _ranks_word(self, count: int) -> str:
        word = "CPU process" if self._device.kind == "cpu" else "device"
        return word if count == 1 else word + ("es" if word.endswith("s") else "s")

    def _record(self, finished: bool) -> Scaling:
        options = self._options
        points = tuple(_point(tally) for tally in self._tallies.values())
        done = conclude_scaling(
            points,
            options.mode,
            ranks="CPU processes" if self._device.kind == "cpu" else "devices",
            least_gain=options.least_gain,
            least_efficiency=options.least_efficiency,
            price_per_device_hour=options.price_per_hour,
        )
        return Scaling(
            scaling_id=self._id,
            run_id=self._profiled.run_id if self._profiled else "",
            run_name=self._cell.run_name,
            started_at=self._started_at,
            mode=options.mode,
            backend=self._backend.name,
            ranks="CPU processes" if self._device.kind == "cpu" else "devices",
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


def _judge(rounds: list[Round], count: int, ended_by_us: str, words: str) -> tuple[list[Round], Any, str]:
    if any(done.outcome == "out of memory" for done in rounds):
        return rounds, "out of memory", next(r.error for r in rounds if r.outcome == "out of memory")
    if ended_by_us:
        return rounds, "failed", ended_by_us
    bad = [done for done in rounds if done.outcome != "measured" or not done.step_s]
    if bad:
        # The rank that failed first tells why; the others only lost it.
        own = [done.error for done in bad if done.error and "Connection" not in done.error]
        return rounds, "failed", (own or [bad[0].error or "no training step was counted"])[0]
    if len(rounds) < count:
        return rounds, "failed", f"{count - len(rounds)} of {count} ranks died ({words or 'without a word'})"
    return rounds, "measured", ""


def _samples_per_step(rounds: list[Round]) -> int:
    """Samples in a step of all ranks together; batches where the batch size is not known."""
    return sum(_batch_size(done.run) or 1 for done in rounds)


def _batch_size(run: Run | None) -> int | None:
    for loader in run.loaders if run is not None else ():
        if loader.role != "validation" and not isinstance(loader.batch_size, Missing):
            return int(loader.batch_size)
    return None


def _waiting(run: Run) -> Share:
    """The share of waiting for input, the start of epochs included."""
    share, start = run.shares.exposed_input, run.shares.between.epoch_start
    if isinstance(share, Missing) or isinstance(start, Missing):
        return share
    return Estimate(share.value + start.value, share.low + start.value, min(1.0, share.high + start.value))


def _point(tally: _Tally) -> ScalingPoint:
    starts = tally.startups_s
    return point(
        tally.count,
        tally.throughputs,
        within=tally.spread,
        exposed_communication=tally.communication,
        exposed_input=tally.waiting,
        peak_memory_bytes=tally.peak_bytes,
        startup_s=sum(starts) / len(starts) if starts else None,
        outcome="measured" if tally.throughputs else tally.outcome,
        why="" if tally.throughputs else tally.why,
    )
