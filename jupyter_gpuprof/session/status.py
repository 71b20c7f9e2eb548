"""What is here and what is switched on, for ``%gpuprof`` without a word."""

from __future__ import annotations

import sqlite3

from jupyter_gpuprof.probes import hooks, machine
from jupyter_gpuprof.store.database import database_path
from jupyter_gpuprof.store.runs import recent_runs


def status_text(version: str) -> str:
    """Devices, last run, version and what is on, as lines of text."""
    lines = [f"jupyter_gpuprof {version}", f"Devices: {', '.join(machine.devices())}"]
    try:
        runs = recent_runs(1)
        last = f"{runs[0].run_id} {runs[0].name}: {runs[0].verdict.label}" if runs else "none yet"
    except (OSError, sqlite3.Error) as error:
        last = f"unknown, the ledger cannot be read ({error})"
    lines.append(f"Last run: {last}")
    lines.append(f"Ledger: {database_path().name} in the Jupyter data directory's gpuprof folder")
    lines.append("Profiling: on" if hooks.installed() else "Profiling: off, nothing of ours is in torch")
    return "\n".join(lines)
