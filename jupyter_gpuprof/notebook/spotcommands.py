"""What a checkpoint costs, and whether the job is safe on interruptible capacity."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.errors import NoCellError, OptionError
from jupyter_gpuprof.notebook import output
from jupyter_gpuprof.notebook.parsing import Command, option, outputs, parser_of
from jupyter_gpuprof.session.spotoptions import SPOT_OPTIONS

if TYPE_CHECKING:
    from jupyter_gpuprof.notebook.magics import GpuprofMagics


def _checkpoint(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.checkpoints.checkpointcost import measure_checkpoint

    cell, run = magics.last_cell or (None, None)
    options = {"save": args.save, "load": args.load, "repeats": args.repeats}
    measure = partial(
        measure_checkpoint, cell, run, magics.ip.user_ns, folder=args.to.expanduser(), **options
    )
    return output.measured(magics.ip, args, "checkpoint", measure)


def _audit(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.audit.audit import audit_cell
    from jupyter_gpuprof.session.reruns.trial import LIMIT_S

    if magics.last_cell is None:
        raise NoCellError("No cell was profiled in this kernel yet.")
    if args.timeout is not None and not args.timeout > 0:
        raise OptionError(f"--timeout takes seconds above 0, not {args.timeout:g}.")
    cell, run = magics.last_cell
    options = {"save": args.save, "load": args.load, "folders": args.folder, "steps": args.steps}
    options |= {"limit_s": args.timeout or LIMIT_S, "allow_writes": args.allow_writes}
    return output.measured(
        magics.ip, args, "audit", partial(audit_cell, cell, run, magics.ip.user_ns, **options)
    )


def _spot(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.audit.audit import audit_of
    from jupyter_gpuprof.session.spot import measured_cost, spot_decision

    cell, run = magics.last_cell or (None, None)
    decision = spot_decision(args, run=run, cost=measured_cost(run), audit=audit_of(cell))
    output.write_record(decision, args)
    if args.figure:
        from jupyter_gpuprof.views.spot_figure import spot_page

        output.show_page(
            spot_page(decision), "checkpoint interval", "The cost over the interval, to zoom into."
        )
    return decision


SPOT_COMMANDS: dict[str, Command] = {
    "checkpoint": Command(
        parser_of(
            "checkpoint",
            option("--to", type=Path, required=True, metavar="FOLDER"),
            option("--save", default=""),
            option("--load", default=""),
            option("--repeats", type=int, default=5),
            *outputs(),
        ),
        _checkpoint,
        interrupted="the files that were written are gone again",
    ),
    "audit": Command(
        parser_of(
            "audit",
            option("--save", default=""),
            option("--load", default=""),
            option("--folder", action="append", default=[]),
            option("--steps", type=int, default=None),
            option("--timeout", type=float, default=None, metavar="SECONDS"),
            option("--allow-writes", action="store_true"),
            *outputs(),
        ),
        _audit,
    ),
    "spot": Command(
        parser_of("spot", *SPOT_OPTIONS, option("--figure", action="store_true"), *outputs()), _spot
    ),
}
