"""``jupyter gpuprof scale 1 2 4 -- train.py args``: a script on several device counts."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.cli.line import Line
from jupyter_gpuprof.cli.outputs import write
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
    scale.add_argument("--on", choices=("slurm", "kubernetes"), default=None, help="where the ranks run")
    scale.add_argument("--gpus-per-node", type=int, default=None, help="of a node of Slurm, or of a pod")
    scale.add_argument("--partition", default="", help="of Slurm")
    scale.add_argument("--account", default="", help="of Slurm")
    scale.add_argument("--time", type=int, default=None, metavar="MINUTES", help="of Slurm")
    scale.add_argument("--dry-run", action="store_true", help="print the manifests for Kubernetes")
    scale.add_argument("--image", default="", help="for Kubernetes: with torch, jupyter-gpuprof, the script")
    scale.add_argument("--namespace", default="", help="of Kubernetes")
    scale.add_argument("--claim", default="", help="of Kubernetes: a volume claim that all pods can write")
    scale.add_argument("--json", type=Path, metavar="PATH", help="also write the result as JSON")
    scale.add_argument("--html", type=Path, metavar="PATH", help="also write it as an HTML page")
    scale.add_argument("counts", nargs="+", metavar="COUNT", help="device counts")
    scale.set_defaults(act=_scale, allow_writes=True, script=[])


def _scale(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.reruns.backends import backend_of, kubernetes_manifests
    from jupyter_gpuprof.session.reruns.cell import Cell
    from jupyter_gpuprof.session.reruns.scale import Scale
    from jupyter_gpuprof.session.reruns.scaleoptions import parse_counts, scale_options
    from jupyter_gpuprof.views.scaling_html import scaling_page
    from jupyter_gpuprof.views.scaling_text import scaling_text

    script = args.script
    if not script:
        raise UsageError(
            "A script is needed after the counts.", "For example: jupyter gpuprof scale 1 2 4 -- train.py"
        )
    options = scale_options(parse_counts(args.counts), args)
    path = Path(script[0]).resolve()
    name = args.name or path.stem
    if args.on == "kubernetes":  # the script is in the image
        print(kubernetes_manifests(script, name, options.counts, args), end="")
        return 0
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{script[0]} cannot be read: {why}.") from None
    for target in (args.json, args.html):  # before minutes of measuring, not after
        if target is not None and (target.is_dir() or not target.parent.is_dir()):
            raise UsageError(f"{target} cannot be written.", "Name a file in a folder that exists.")
    shown = _ScaleLine()
    with _ended_like_by_ctrl_c():
        measured = Scale(
            Cell(source, run_name=name),
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
        write(target, partial(text, measured))
    return 0 if measured.finished else 130


@contextmanager
def _ended_like_by_ctrl_c() -> Iterator[None]:
    """Whoever ends this process by SIGTERM ends the ranks, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _json(measured: Scaling) -> str:
    return json.dumps(measured.to_dict(), indent=2) + "\n"


class _ScaleLine(Line):
    """Where the measurement is."""

    def show(self, scaling: Scaling, progress: ScalingProgress | None = None) -> None:
        from jupyter_gpuprof.views.scaling_text import scaling_line

        self.write(scaling_line(scaling, progress))
