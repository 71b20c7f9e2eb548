"""What the kernels of this machine say of themselves, read by whoever looks at them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from jupyter_gpuprof import clock
from jupyter_gpuprof.records.idleness import Keep
from jupyter_gpuprof.records.processes import KernelReport, ProcessId
from jupyter_gpuprof.store.kernelreports import KernelReports


class Reported:
    """What the kernels of this machine say, read at each look.

    Args:
        file: where they say it.
        now_s, now_unix_s: monotonic and wall-clock seconds.
    """

    def __init__(
        self,
        file: KernelReports | None = None,
        *,
        now_s: Callable[[], float] = clock.now_s,
        now_unix_s: Callable[[], float] = lambda: clock.unix_ns() * 1e-9,
    ) -> None:
        self._file = file or KernelReports()
        self._now_s = now_s
        self._now_unix_s = now_unix_s
        self.reports: tuple[KernelReport, ...] = ()
        self.keeps: dict[ProcessId, Keep] = {}

    def read(self) -> None:
        """Look again; while the file cannot be read, what was said last stands."""
        try:
            reports, keeps = self._file.read()
        except (sqlite3.Error, OSError):
            return
        offset_s = self._now_s() - self._now_unix_s()
        self.reports = reports
        self.keeps = {k.id: Keep(k.since_unix_s + offset_s, k.until_unix_s + offset_s, k.why) for k in keeps}

    def close(self) -> None:
        """Close the file."""
        self._file.close()
