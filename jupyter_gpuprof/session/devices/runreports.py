"""A run tells the server now and then how much of its time the device waits for input."""

from __future__ import annotations

import os
import threading

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.session.devices.kernelreports import report_now, tell_run

#: Seconds between two reports.
PERIOD_S = 5.0


class RunReports:
    """Reports of one run, written by short threads of their own: the training thread never waits for a file.

    Nothing is told where no Jupyter server started this kernel, since nobody would read it.

    Args:
        run_id: of the run.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._due_s = clock.now_s()
        self._thread: threading.Thread | None = None
        self._on = "JPY_PARENT_PID" in os.environ

    def tell(self, input_ratio: float | None) -> None:
        """The share so far; written if the last report is old enough."""
        now_s = clock.now_s()
        if not self._on or now_s < self._due_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._due_s = now_s + PERIOD_S
        ratio: Number = Missing("no loader was seen") if input_ratio is None else input_ratio
        tell_run(self._run_id, ratio)
        self._thread = threading.Thread(target=report_now, name="gpuprof report", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The run is over: what is told at the end of the cell names it no more."""
        if self._thread is not None:
            self._thread.join(2.0)
            tell_run("")
