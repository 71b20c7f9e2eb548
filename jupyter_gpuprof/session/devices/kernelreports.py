"""A kernel tells its server, through the ledger file, what it holds and that it is to be kept.

To be called after each cell, and whenever a keep begins or ends; the server's half is `reported.py`.
"""

from __future__ import annotations

import sqlite3
import sys
from dataclasses import replace

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes.owndevice import own_reports
from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.records.reading import Number
from jupyter_gpuprof.session.devices.keep import current_keep
from jupyter_gpuprof.store.kernelreports import NOT_MEASURED, KeptKernel, KernelReports

#: The profiled run that is on, and how much of its time the device waits for input.
_run: tuple[str, Number] = ("", NOT_MEASURED)
#: The study that this kernel works for, and its trials that run.
_sweep: tuple[str, str] = ("", "")
_said: list[object] = []  # what was told last: only changes are written


def tell_run(run_id: str, input_ratio: Number = NOT_MEASURED) -> None:
    """From now on reports name this run; "" for none."""
    global _run
    _run = run_id, input_ratio


def tell_sweep(study: str, trial: str) -> None:
    """From now on reports name this study and trial; "" for none."""
    global _sweep
    _sweep = study, trial


def report_now(file: KernelReports | None = None) -> bool:
    """Tell what this kernel holds now, if that has changed; whether it was written.

    Never raises: a file that cannot be written is tried again next time.
    """
    me, now_s, now_unix_s = process_id(), clock.now_s(), clock.unix_ns() * 1e-9
    if me is None:
        return False
    run_id, ratio = _run
    study, trial = _sweep
    reports = [
        replace(report, run_id=run_id, input_ratio=ratio, study=study, trial=trial)
        for report in own_reports(now_s)
    ]
    suspension = sys.modules.get("jupyter_gpuprof.session.devices.suspend")
    if suspension is not None and suspension.suspended():
        reports = []  # it is all on the host
    keep = current_keep()
    says: list[object] = [
        [
            (
                r.device_uuid,
                r.device_index,
                r.allocated_bytes,
                r.reserved_bytes,
                r.training_active,
                _run,
                _sweep,
            )
            for r in reports
        ],
        keep,
    ]
    if says == (_said or [[], None]):
        return False
    kept = None
    if keep is not None:
        offset_s = now_unix_s - now_s
        kept = KeptKernel(me, keep.since_s + offset_s, keep.until_s + offset_s, keep.why)
    own = file or KernelReports()
    try:
        own.write(me, reports, kept, now_unix_s)
    except (sqlite3.Error, OSError):
        return False
    finally:
        if file is None:
            own.close()
    _said[:] = says
    return True
