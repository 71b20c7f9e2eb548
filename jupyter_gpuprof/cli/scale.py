"""``jupyter gpuprof scale 1 2 4 -- train.py args``: a script on several device counts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.cli.line import Line
from jupyter_gpuprof.errors import UsageError

if TYPE_CHECKING:
    from jupyter_gpuprof.records.scaling import Scaling, ScalingProgress


def add_scale(commands: Any) -> None:
    """Add the command to the parser's commands."""
    scale = commands.add_parser(
        "scale",
        help="a script on several device counts: what more of them are worth",
        usage="jupyter gpuprof scale COUNT... [options] -- SCRIPT [ARGUMENT...]",
    )
    scale.add_argument("--name", default="", help="how to call it (default: the script's name)")
    scale.add_argument("--mode", choices=("weak", "strong"), default="weak", help="which batch stays fixed")
    scale.add_argument("--steps", type=int, default=None, help="counted steps of each rank and repeat")
    scale.add_argument("--repeats", type=int, default=3, help="of each count")
    scale.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help="of one job")
    scale.add_argument("--raw", action="store_true", help="the script distributes its work by itself")
    scale.add_argument("--least-gain", type=float, default=1.6, help="what a doubling must bring")
    scale.add_argument("--least-efficiency", type=float, default=0.7, help="what the efficiency must be")
    scale.add_argument("--price", type=float, default=None, help="of a device for an hour")
    scale.add_argument("--on", choices=("slurm",), default=None, help="where the ranks run")
    scale.add_argument("--partition", default="", help="of Slurm")
    scale.add_argument("--account", default="", help="of Slurm")
    scale.add_argument("--gpus-per-node", type=int, default=None, help="of Slurm")
    scale.add_argument("--time", type=int, default=None, metavar="MINUTES", help="of Slurm")
    scale.add_argument("--json", type=Path, metavar="PATH", help="also write the result as JSON")
    scale.add_argument("--html", type=Path, metavar="PATH", help="also write it as an HTML page")
    scale.add_argument("counts", nargs="+", metavar="COUNT", help="device counts")
    scale.set_defaults(act=_scale, allow_writes=True, script=[])


def _scale(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.backends import backend_of
    from jupyter_gpuprof.session.cell import Cell
    from jupyter_gpuprof.session.scale import Scale
    from jupyter_gpuprof.session.scaleoptions import parse_counts, scale_options
    from jupyter_gpuprof.views.scaling_html import scaling_page
    from jupyter_gpuprof.views.scaling_text import scaling_text

    script = args.script
    if not script:
        raise UsageError(
            "A script is needed after the counts.", "For example: jupyter gpuprof scale 1 2 4 -- train.py"
        )
    options = scale_options(parse_counts(args.counts), args)
    path = Path(script[0]).resolve()
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{script[0]} cannot be read: {why}.") from None
    shown = _ScaleLine()
    measured = Scale(
        Cell(source, run_name=args.name or path.stem),
        None,
        {},
        options,
        backend=backend_of(args),
        script=(str(path), *script[1:]),
        on_update=shown.show if sys.stderr.isatty() else None,
    ).run()
    shown.clear()
    print(scaling_text(measured))
    for target, text in ((args.json, _json), (args.html, scaling_page)):
        if target is not None:
            try:
                target.write_text(text(measured), encoding="utf-8")
            except OSError as error:
                print(f"jupyter gpuprof: {target} was not written: {error.strerror}", file=sys.stderr)
    return 0 if measured.finished else 130


def _json(measured: Scaling) -> str:
    return json.dumps(measured.to_dict(), indent=2) + "\n"


class _ScaleLine(Line):
    """Where the measurement is."""

    def show(self, scaling: Scaling, progress: ScalingProgress | None = None) -> None:
        from jupyter_gpuprof.views.scaling_text import scaling_line

        self.write(scaling_line(scaling, progress))
