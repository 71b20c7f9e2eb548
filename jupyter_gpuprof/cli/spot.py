"""``jupyter gpuprof spot``: is a job safe on spot capacity, from figures."""

from __future__ import annotations

import argparse
import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.cli.outputs import write
from jupyter_gpuprof.session.spotoptions import SPOT_OPTIONS

if TYPE_CHECKING:
    from jupyter_gpuprof.records.spot import SpotDecision


def add_spot(commands: Any) -> None:
    """Add the command to the parser's commands."""
    spot = commands.add_parser("spot", help="is a job safe on spot capacity, and how often must it save?")
    spot.add_argument("--run", default=None, help='a saved run, for its step and how often it saves ("last")')
    for flags, options in SPOT_OPTIONS:
        spot.add_argument(*flags, **options)
    spot.add_argument("--json", type=Path, metavar="PATH", help="also write the decision as JSON")
    spot.add_argument("--html", type=Path, metavar="PATH", help="also write the report as an HTML page")
    spot.set_defaults(act=_spot)


def _spot(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.spot import measured_cost, spot_decision
    from jupyter_gpuprof.store.runs import load_run
    from jupyter_gpuprof.views.spot_text import spot_text

    run = load_run(args.run) if args.run is not None else None
    cost = measured_cost(run) if run is not None else None
    decision = spot_decision(args, run=run, cost=cost)
    print(spot_text(decision, width=min(100, shutil.get_terminal_size((100, 24)).columns)))
    for target, text in ((args.json, _json), (args.html, _page)):
        write(target, partial(text, decision))
    return 0


def _json(decision: SpotDecision) -> str:
    return json.dumps(decision.to_dict(), indent=2) + "\n"


def _page(decision: SpotDecision) -> str:
    from jupyter_gpuprof.views.html import page
    from jupyter_gpuprof.views.spot_html import spot_html

    return page(spot_html(decision), f"gpuprof: spot capacity for {decision.run_name}")
