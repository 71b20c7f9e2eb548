"""One profiled stretch: the hooks go in, the marks are assembled into steps, and a `Run` comes out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.conclude import conclude
from jupyter_gpuprof.analysis.steps import PARTS, StepAssembler
from jupyter_gpuprof.analysis.trace_breakdown import breakdown
from jupyter_gpuprof.analysis.window import agreement, apply_window
from jupyter_gpuprof.errors import OptionError, TraceError
from jupyter_gpuprof.planning.catalogue import prices
from jupyter_gpuprof.probes import hooks, machine
from jupyter_gpuprof.probes.events import torch_events
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.records.facts import Facts
from jupyter_gpuprof.records.ops import OpWindow
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Run
from jupyter_gpuprof.records.timing import Part, StepTable
from jupyter_gpuprof.session.devices.runreports import RunReports
from jupyter_gpuprof.session.evidence import missing_parts, overhead_of, remarks_on, series_of
from jupyter_gpuprof.session.facts import gather_facts
from jupyter_gpuprof.session.opwindow import describe_window
from jupyter_gpuprof.session.ranks import merge_ranks
from jupyter_gpuprof.session.sampling import Sampled, Sampling
from jupyter_gpuprof.session.window import WindowControl
from jupyter_gpuprof.store.rankfolder import RankReport, collect, forget, leave, rank_folder, rank_of
from jupyter_gpuprof.store.runs import new_run_id, save_run

#: Seconds between two live updates: at most four a second.
LIVE_PERIOD_S = 0.25
#: How long rank 0 waits at the end for the reports of the others.
RANK_PATIENCE_S = 60.0

_CAUGHT = (
    "The wanted number of steps was counted, but the code caught the request to end and ran on; "
    "what came after is not in these numbers."
)

#: Runs of one process, so that its ranks agree which of them belong together.
_RUN_NUMBER = itertools.count()


class StopProfiling(BaseException):
    """Ends a profiled stretch after its last wanted step; not an error, and no `Exception` on purpose."""


@dataclass(frozen=True)
class Progress:
    """What a live line shows."""

    step: int
    steps_per_s: float
    input_share: float | None
    warmup: bool


@dataclass(frozen=True)
class Options:
    """What a person may choose for a run.

    Args:
        name: how to call the run.
        warmup: steps to leave out at the beginning; None chooses.
        steps: end after so many counted steps; None runs to the end.
        kernels: steps of the kernel window; 0 for none, None for a few where there is an accelerator.
        in_step: end by the number of batches fetched, which is the same on all ranks of a job, and not
            by the steps that the device has come to, which is not.
        prices: of devices for an hour, in any currency: "H100=2.50,A100-80GB=1.80".

    Raises:
        OptionError: a value makes no sense.
    """

    name: str = ""
    warmup: int | None = None
    steps: int | None = None
    kernels: int | None = None
    in_step: bool = False
    prices: str = ""

    def __post_init__(self) -> None:
        if self.warmup is not None and self.warmup < 0:
            raise OptionError(f"The warm-up cannot be {self.warmup} steps: it takes 0 or more, or auto.")
        if self.steps is not None and self.steps < 1:
            raise OptionError(f"A run cannot end after {self.steps} steps: it takes 1 or more.")


class Session:
    """A run in the making: `start`, the person's code, `finish`.

    Args:
        options: what the person chose.
        progress: called on the training thread with a `Progress`, at most four times a second.
        save: whether the run is kept in the ledger database.
        file_names: what to call the files of the person's code (a notebook's cells), by their path.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        save: bool = True,
        file_names: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.options = options or Options()
        self.run: Run | None = None
        self.table: StepTable | None = None  # of a finished session
        self._samples = Sampled()
        self._progress = progress
        self._save = save
        self._file_names = file_names
        self._notes: list[str] = []
        self._doubts: list[str] = []
        self._stopped = False
        self._asked_to_end = False
        self._device: Any = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Put the hooks in."""
        torch = machine.import_torch()
        if torch is None:
            self._notes.append(
                "torch is not installed here: only watch()ed sources are seen. "
                "Install it with: pip install torch"
            )
        grad_enabled = torch.is_grad_enabled if torch is not None else lambda: True
        self.started_at = clock.utc_now()
        self.run_id = new_run_id(self.started_at)
        self._reports = RunReports(self.run_id)
        self._live_ns = clock.now_ns()
        self._live_steps = 0
        self.assembler = StepAssembler()
        self.recorder = Recorder(self.assembler, grad_enabled)
        self.recorder.on_device = self._on_device
        self.recorder.on_drain = self._on_drain
        if self.options.steps is not None:
            self.recorder.read_back_at_once()
        self._memory = machine.PeakMemory(machine.awake_accelerator())
        self._prices = prices(self.options.prices)  # a price that cannot be read ends the cell before it runs
        self._window = WindowControl(self.recorder, self.options.kernels, self._notes.append)
        if not self._window.done:
            self.recorder.observe(self._window)
        self.rank, self._world = rank_of()
        if self._world > 1:
            self._folder = rank_folder() / str(next(_RUN_NUMBER))
            forget(self._folder, self.rank)
        self._pid = os.getpid()
        self._sampling = Sampling(self.recorder)
        try:
            hooks.push(self.recorder)
            self._sampling.start()
        except BaseException:  # an interrupt at the wrong moment, too
            self._sampling.stop()
            hooks.pop(self.recorder)
            raise

    def finish(self) -> Run:
        """Take the hooks out, wait once for the device, and conclude.

        Whatever fails in here is our own: it becomes a note of the run.
        """
        try:
            return self._finish()
        finally:
            try:
                self._sampling.stop()
            finally:
                hooks.pop(self.recorder)  # last: what we do here is not the time of a run around this one

    def _finish(self) -> Run:
        self._sampling.halt()
        self._reports.end()
        for end in (self._window.end, self.recorder.finish):
            try:
                end()
            except Exception as error:
                self.recorder.failed(error)
        self._samples = self._sampling.stop()
        if self.recorder.disturbed:
            self._doubts.append("Another run was on in another thread: steps of this one are missing.")
        self.run = self._conclude()
        if self._save and not self.is_secondary and os.getpid() == self._pid:  # not in a forked child
            try:
                remark = save_run(self.run)
            except Exception as error:
                remark = f"The run could not be saved in the ledger ({error})."
            if remark:
                self.run = _with_note(self.run, remark)
        return self.run

    @property
    def is_secondary(self) -> bool:
        """Whether this process is a rank whose run is part of rank 0's: it shows and saves nothing."""
        return self.rank > 0

    def stopped_by_limit(self) -> None:
        """The run ended because it had the wanted number of steps."""
        self._stopped = True

    def ended_with(self, error: BaseException | None) -> None:
        """What the person's code raised, if anything."""
        if error is not None and not isinstance(error, StopProfiling):
            self._notes.append(f"The run ended with {type(error).__name__}.")

    def note(self, text: str) -> None:
        """A remark for the report."""
        self._notes.append(text)

    # -- while it runs ---------------------------------------------------------------------------

    def _on_device(self, device: Any) -> None:
        """The first backward pass told where the training runs; an accelerator has its own clock."""
        if device.type == "cpu":
            return
        backend = torch_events(device)
        self._device = device
        if self._memory.device != device:
            self._memory = machine.PeakMemory(device, fresh=True)
        if backend is None:
            self._doubts.append(
                f"Events of the {device.type} device cannot be timed here: times are the host's, "
                "and waits that the device hides are counted as waits."
            )
            return
        hooks.patch_copies()
        self.assembler = StepAssembler()
        self.recorder.use(self.assembler, backend)

    def _on_drain(self) -> None:
        if self.recorder.on_device is not None and not self.recorder.optimizer_steps:
            device = machine.accelerator_in_use()
            if device is not None:  # an inference loop: no backward pass will tell
                self.recorder.on_device = None
                self._on_device(device)
        steps = series_of(self.assembler).steps
        wanted = self.options.steps
        if wanted is not None and not self._asked_to_end and self._is_enough(wanted):
            self._asked_to_end = True
            self.recorder.stop_request = StopProfiling()
        if self._device is not None:
            self._reports.tell(self._input_share())
        if self._progress is not None:
            now = clock.now_ns()
            elapsed_s = (now - self._live_ns) * 1e-9
            if elapsed_s >= LIVE_PERIOD_S:
                self._show_progress(steps, elapsed_s)
                self._live_ns, self._live_steps = clock.now_ns(), steps

    def _is_enough(self, wanted: int) -> bool:
        if self.options.in_step:
            most = max((source.fetches for source in self.recorder.sources.all), default=0)
            return max(most, self.recorder.backwards) > wanted + self._expected_warmup(wanted)
        return self.assembler.steps_done >= wanted + self._expected_warmup(wanted)

    def _expected_warmup(self, wanted: int) -> int:
        if self.options.warmup is not None:
            return self.options.warmup
        workers = self.recorder.sources.most_workers
        # What stability.warmup_steps leaves out of so many steps, at the least.
        return min(max(5, 2 * workers), -(-wanted // 3))

    def _input_share(self) -> float | None:
        """The share of waiting for input so far; None where no loader was seen."""
        total = series_of(self.assembler).total()
        wall = total[:PARTS].sum()
        seen = self.assembler.loader_seen and wall > 0
        return float((total[Part.INPUT] + total[Part.EPOCH_START]) / wall) if seen else None

    def _show_progress(self, steps: int, elapsed_s: float) -> None:
        share = self._input_share()
        rate = (steps - self._live_steps) / elapsed_s
        assert self._progress is not None
        paused = self.recorder.backend.clock != "device" and self.recorder.simple("pause")
        try:
            self._progress(Progress(steps, rate, share, steps < 5))
        except Exception as error:
            self._progress = None
            self._notes.append(f"The live line was switched off ({type(error).__name__}: {error}).")
        finally:
            if paused:
                self.recorder.simple("resume")

    # -- at the end ------------------------------------------------------------------------------

    def _conclude(self) -> Run:
        self.assembler.finish(self.recorder.t_s)
        series = series_of(self.assembler)
        blocks = series.blocks()
        table = StepTable(
            seconds=blocks[:, :PARTS],
            steps_per_row=series.block_size,
            missing=missing_parts(
                self.recorder, self.assembler, blocks, on_accelerator=self._device is not None
            ),
            steps=series.steps,
            sample_s=series.sample(),
        )
        table, ops = self._with_window(table)
        self.table = table
        if self._device is None:
            self._memory = machine.PeakMemory(None)
        memory, remark = self._memory.reading()
        facts = gather_facts(
            self.recorder,
            self.assembler,
            self._samples,
            device=self._device,
            memory=memory,
            warmup=self._expected_warmup(self.options.steps)
            if self._stopped and self.options.steps is not None
            else self.options.warmup,
            prices=self._prices,
            doubts=self._doubts,
            names=self._file_names(),
        )
        conclusion = conclude(table, facts)
        run = Run(
            run_id=self.run_id,
            name=self.options.name or "cell",
            started_at=self.started_at,
            device=facts.device,
            clock="device" if self.recorder.backend.clock == "device" else "host",
            steps=conclusion.steps,
            shares=conclusion.shares,
            verdict=conclusion.verdict,
            remedies=conclusion.remedies,
            overhead=overhead_of(self.recorder, table),
            memory=memory,
            loaders=facts.loaders,
            notes=tuple(self._all_notes(remark)),
            ops=ops,
            input_causes=facts.input_causes,
            host_causes=facts.host_causes,
            levers=facts.levers or (),
            no_help=conclusion.no_help,
            saves=self.recorder.saves,
            preparation=facts.preparation,
        )
        return self._with_ranks(RankReport(self.rank, run, table, self._window.trace), facts)

    def _all_notes(self, memory_remark: str) -> list[str]:
        ended = f"The cell was ended after {self.options.steps} counted steps, as asked."
        return [
            *self._notes,
            *([ended] if self._stopped else []),
            *([_CAUGHT] if self._asked_to_end and not self._stopped else []),
            *remarks_on(self.recorder, self.assembler, window=self._window.trace is not None),
            *([memory_remark] if memory_remark else []),
            *self._samples.all_remarks(),
        ]

    def _with_window(self, table: StepTable) -> tuple[StepTable, OpWindow | Missing]:
        """The table with the inside of its steps as the kernel window saw it, and what it saw."""
        trace = self._window.trace
        if trace is None:
            return table, Missing(self._window.why)
        try:
            seen = breakdown(trace)
        except TraceError as error:
            return table, Missing(str(error))
        workers = self.recorder.sources.most_workers
        agree, words = agreement(table, seen.table, workers)
        if not agree:
            self._doubts.append(words)
        return apply_window(table, seen.table), describe_window([trace], [seen], agreement=words)

    def _with_ranks(self, report: RankReport, facts: Facts) -> Run:
        """The run of all ranks where this is rank 0 of several; else this one's."""
        if self._world == 1:
            return report.run
        try:
            if self.is_secondary:
                leave(self._folder, report)
                return report.run
            others = collect(self._folder, self._world, patience_s=RANK_PATIENCE_S)
            return merge_ranks([report, *others], facts, self._world)
        except Exception as error:  # the rank's own run is worth more than none
            why = f"The ranks could not be brought together ({type(error).__name__}: {error})."
            return _with_note(report.run, why)


def _with_note(run: Run, note: str) -> Run:
    return replace(run, notes=(*run.notes, note))
