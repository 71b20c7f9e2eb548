"""What is here and what is switched on, for ``%gpuprof`` without a word."""

from __future__ import annotations

import os

from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.probes import hooks, machine
from jupyter_gpuprof.store.database import ENVIRONMENT_VARIABLE, database_path
from jupyter_gpuprof.store.runs import recent_runs


def status_text(version: str) -> str:
    """Devices, last run, version and what is on, as lines of text."""
    lines = [f"jupyter_gpuprof {version}", f"Devices: {', '.join(machine.devices())}"]
    try:
        runs = recent_runs(1)
        last = f"{runs[0].run_id} {runs[0].name}: {runs[0].verdict.label}" if runs else "none yet"
    except LedgerError as error:
        last = f"unknown. {error}"
    lines.append(f"Last run: {last}")
    # No whole path: this is saved in notebooks, which are shared.
    moved = ENVIRONMENT_VARIABLE in os.environ
    where = f"as {ENVIRONMENT_VARIABLE} says" if moved else "in the Jupyter data directory, folder gpuprof"
    lines.append(f"Ledger: {database_path().name}, {where}")
    lines.append("Profiling: on" if hooks.installed() else "Profiling: off, nothing of ours is in torch")
    return "\n".join(lines)
