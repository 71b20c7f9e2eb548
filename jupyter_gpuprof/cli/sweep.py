"""``jupyter gpuprof sweep``: what a sweep has cost, and what of that was for nothing."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from jupyter_gpuprof.cli.outputs import write


def add_sweep(commands: Any) -> None:
    """Add the command to the parser's commands."""
    sweep = commands.add_parser("sweep", help="GPU-hours of a sweep, and those of trials that were losing")
    sweep.add_argument("study", help="STORAGE::NAME of an Optuna study, or a SweepBudget's study")
    sweep.add_argument("--cap", type=float, metavar="GPU_HOURS", help="what this cap would have done")
    sweep.add_argument("--json", type=Path, metavar="PATH", help="also write the report as JSON")
    sweep.add_argument("--html", type=Path, metavar="PATH", help="also write the report as an HTML page")
    sweep.set_defaults(act=_sweep)


def _sweep(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.sweeps.report import sweep_reader, sweep_report
    from jupyter_gpuprof.views.html import page
    from jupyter_gpuprof.views.sweep_html import sweep_html
    from jupyter_gpuprof.views.sweep_text import sweep_text

    report = sweep_report(sweep_reader(args.study), args.cap)
    print(sweep_text(report, width=min(100, shutil.get_terminal_size((100, 24)).columns)))
    for target, text in (
        (args.json, lambda: json.dumps(report.to_dict(), indent=2) + "\n"),
        (args.html, lambda: page(sweep_html(report), f"gpuprof: sweep {report.sweep.study}")),
    ):
        write(target, text)
    return 0
