"""What samples stacks during a run: the training thread, workers from inside, and workers from outside."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof.probes import hostmemory, pyspy
from jupyter_gpuprof.probes.recorder import Recorder
from jupyter_gpuprof.probes.sampler import TrainingSampler
from jupyter_gpuprof.probes.workerreports import WorkerReports
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.samples import Samples


@dataclass(frozen=True)
class Sampled:
    """What the sampling of one run gave.

    Args:
        training: of the training thread; ``None`` if it could not be sampled.
        workers: of loader workers, from inside and from outside where there were such; see `Samples`.
            Only busy samples are in there, so that ``total * period_s / wall_s`` is how busy a worker is.
            Batches are handed over by a second thread, whose samples come on top.
        worker_memory_bytes: what the largest worker takes for itself.
        free_memory_bytes: what more workers could have, at the moment when least was free.
        remarks: what a person should know.
    """

    training: Samples | None = None
    workers: tuple[Samples, ...] = ()
    worker_memory_bytes: Number = Missing("no loader worker was seen")
    free_memory_bytes: Number = Missing("not read")
    remarks: tuple[str, ...] = ()

    def all_remarks(self) -> tuple[str, ...]:
        """What a person should know, of the sampling and of each kind of samples."""
        own = (samples.remarks for samples in (self.training, *self.workers) if samples is not None)
        return tuple(dict.fromkeys((*self.remarks, *(remark for group in own for remark in group))))


class Sampling:
    """Samples during one run, from `start` to `stop`; what fails in it is a remark and nothing more.

    Args:
        recorder: of the run.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pid = os.getpid()
        self._remarks: list[str] = []
        self._training: TrainingSampler | None = None
        self._outside: pyspy.OutsideSampler | None = None
        self._reports: WorkerReports | None = None
        self._sampled: Sampled | None = None

    def start(self) -> None:
        """Begin, on the training thread."""
        for begin in (self._start_reports, self._start_outside, self._start_training):
            try:
                begin()
            except Exception as error:
                self._failed(error)

    def _start_reports(self) -> None:
        self._reports = WorkerReports()
        self._recorder.lend = self._lend

    def _lend(self, loader: Any) -> Any:
        try:
            return self._reports.lend(loader) if self._reports is not None else None
        except Exception as error:
            self._failed(error)
            return None

    def _start_outside(self) -> None:
        workers = pyspy.running_workers()
        if not workers:
            return
        program = pyspy.find()
        if program is None:
            self._remarks.append(
                "Workers that ran before were not looked into: py-spy is not there. "
                "Install it with: pip install py-spy"
            )
            return
        self._outside = pyspy.OutsideSampler(program, workers)
        self._outside.start()

    def _start_training(self) -> None:
        self._training = TrainingSampler(self._recorder)
        self._training.start()

    def _failed(self, error: Exception) -> None:
        remark = f"Sampling failed in part ({type(error).__name__}: {error})."
        if remark not in self._remarks:
            self._remarks.append(remark)

    def halt(self) -> None:
        """Sample the training thread no more: what it does from here on is ours."""
        if self._training is not None:
            self._training.halt()

    def stop(self) -> Sampled:
        """End everything and say what was seen; may be called again, also after an interrupt in it."""
        if os.getpid() != self._pid:
            return Sampled()  # of a forked child, in which nothing of it runs
        if self._sampled is None:
            self._recorder.lend = None
            try:
                training = self._ended(self._training)
            finally:
                try:
                    outside = self._ended(self._outside)
                finally:
                    inside = self._ended(self._reports)
            if outside is not None and not outside.total and (inside is not None or not outside.remarks):
                outside = None  # left over from something before, with nothing to do
            self._sampled = self._all(training, [s for s in (inside, outside) if s is not None])
        return self._sampled

    def _ended(self, source: TrainingSampler | pyspy.OutsideSampler | WorkerReports | None) -> Samples | None:
        try:
            return source.stop() if source is not None else None
        except Exception as error:
            self._failed(error)
            return None

    def _all(self, training: Samples | None, workers: list[Samples]) -> Sampled:
        own: list[Number] = [s.own_bytes for s in (self._reports, self._outside) if s is not None]
        known = [n for n in own if not isinstance(n, Missing)]
        free = self._reports.free_bytes if self._reports is not None else Missing("not read")
        return Sampled(
            training=training,
            workers=tuple(workers),
            worker_memory_bytes=max(known) if known else (own[0] if workers else Sampled.worker_memory_bytes),
            free_memory_bytes=hostmemory.free_bytes() if isinstance(free, Missing) else free,
            remarks=tuple(self._remarks),
        )
