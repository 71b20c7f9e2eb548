"""What can be asked with ``%gpuprof WORD ...``: one small command each, in one table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.utils.process import arg_split

from jupyter_gpuprof._version import __version__
from jupyter_gpuprof.errors import GpuprofError, NoCellError, OptionError
from jupyter_gpuprof.notebook import output
from jupyter_gpuprof.notebook.devicecommands import DEVICE_COMMANDS
from jupyter_gpuprof.notebook.parsing import Command, option, outputs, parser_of
from jupyter_gpuprof.notebook.spotcommands import SPOT_COMMANDS
from jupyter_gpuprof.notebook.sweepcommands import SWEEP_COMMANDS

if TYPE_CHECKING:
    from jupyter_gpuprof.notebook.magics import GpuprofMagics


def run_line(magics: GpuprofMagics, line: str) -> Any:
    """Do what ``%gpuprof line`` asks; what it returns is shown.

    Raises:
        UsageError: of IPython, one sentence, for whatever the person can mend.
    """
    try:
        words = arg_split(line)
    except ValueError as error:  # a quote that is not closed
        raise UsageError(f"The options cannot be read: {error}.") from None
    name, *rest = words or ["status"]
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"%gpuprof does not know {line.strip()!r}. See %gpuprof help.")
    args = command.parser.parse_args(rest)
    try:
        return command.act(magics, args)
    except (GpuprofError, ImportError) as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        print(f"gpuprof: {name} was interrupted; {command.interrupted}.", file=sys.stderr)
        return None


def _reruns() -> tuple[tuple[tuple[str, ...], dict[str, Any]], ...]:
    """What all commands take that rerun the last profiled cell."""
    return (
        option("--steps", type=int, default=None),
        option("--timeout", type=float, default=None, metavar="SECONDS"),
        option("--allow-writes", action="store_true"),
        *outputs(),
    )


# -- what is saved -----------------------------------------------------------------------------------


def _status(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.session.status import status_text

    print(status_text(__version__))


def _help(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.notebook.magics import HELP

    print(HELP)


def _last(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.store.runs import load_run

    return load_run("last")


def _show(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.notebook.scaling_output import ScalingDisplay
    from jupyter_gpuprof.records.scaling import Scaling
    from jupyter_gpuprof.store.records import load_record

    record = load_record(args.run)
    if not isinstance(record, Scaling):
        return record
    ScalingDisplay(magics.ip).end(record)
    return None


def _history(magics: GpuprofMagics, args: Any) -> None:
    if args.predictions:
        from jupyter_gpuprof.store.trials import recent_trials
        from jupyter_gpuprof.views.trial_html import predictions_html
        from jupyter_gpuprof.views.trial_text import predictions_text

        trials = recent_trials(None)
        output.show(predictions_text(trials), predictions_html(trials))
        return
    from jupyter_gpuprof.records.scaling import Scaling
    from jupyter_gpuprof.store.runs import recent_runs
    from jupyter_gpuprof.store.trials import recent_curves
    from jupyter_gpuprof.views.html import history_html
    from jupyter_gpuprof.views.scaling_list import scalings_html, scalings_text
    from jupyter_gpuprof.views.text import history_text

    runs, scalings = recent_runs(), recent_curves(Scaling)
    output.show(
        "\n".join(filter(None, (history_text(runs), scalings_text(scalings)))),
        history_html(runs) + scalings_html(scalings),
    )


def _compare(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.store.runs import load_run
    from jupyter_gpuprof.views.html import compare_html
    from jupyter_gpuprof.views.text import compare_text

    a, b = load_run(args.first), load_run(args.second)
    output.show(compare_text(a, b), compare_html(a, b))


def _timeline(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.store.runs import load_run

    output.show_timeline(load_run(args.run))


def _trace(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.trace import trace_run

    line = output.ReadingLine(magics.ip)
    try:
        run = trace_run([Path(file).expanduser() for file in args.files], name=args.name, progress=line.show)
    finally:
        line.finish("")
    output.write_outputs(run, args)
    return run


# -- reruns of the last profiled cell ------------------------------------------------------------------


def _try(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.reruns.trial import try_change

    return _rerun(magics, args, "try", partial(try_change, words=args.settings))


def _batch(magics: GpuprofMagics, args: Any) -> Any:
    from jupyter_gpuprof.session.reruns.batch import batch_curve, parse_grow, parse_share

    grow, until_memory = parse_grow(args.grow), parse_share(args.until_memory)
    curve = _rerun(magics, args, "batch", partial(batch_curve, grow=grow, until_memory=until_memory))
    if args.figure:
        from jupyter_gpuprof.views.batch_figure import batch_page

        output.show_page(
            batch_page(curve), "batch sizes", "Throughput and memory over batch size, to zoom into."
        )
    return curve


def _rerun(magics: GpuprofMagics, args: Any, name: str, measure: Callable[..., Any]) -> Any:
    """Rerun the last cell by `measure` with the options that all of these have."""
    from jupyter_gpuprof.session.reruns.trial import LIMIT_S

    cell, run = _last_cell(magics)
    if args.timeout is not None and not args.timeout > 0:
        raise OptionError(f"--timeout takes seconds above 0, not {args.timeout:g}.")
    options = {"steps": args.steps, "limit_s": args.timeout or LIMIT_S, "allow_writes": args.allow_writes}
    return output.measured(magics.ip, args, name, partial(measure, cell, run, magics.ip.user_ns, **options))


def _scale(magics: GpuprofMagics, args: Any) -> None:
    from jupyter_gpuprof.notebook.scaling_output import ScalingDisplay
    from jupyter_gpuprof.session.reruns.backends import backend_of
    from jupyter_gpuprof.session.reruns.scale import Scale
    from jupyter_gpuprof.session.reruns.scaleoptions import parse_counts, scale_options

    options = scale_options(parse_counts(args.counts), args)
    output.check_writable(args)
    cell, run = _last_cell(magics)
    shown = ScalingDisplay(magics.ip)
    measured = Scale(
        cell, run, magics.ip.user_ns, options, backend=backend_of(args), on_update=shown.show
    ).run()
    shown.end(measured)
    output.write_record(measured, args)


def _last_cell(magics: GpuprofMagics) -> Any:
    """The last profiled cell and its run.

    Raises:
        NoCellError: there is none in this kernel.
    """
    if magics.last_cell is None:
        raise NoCellError("No cell was profiled in this kernel yet.")
    return magics.last_cell


COMMANDS: dict[str, Command] = {
    "status": Command(parser_of("status"), _status),
    "help": Command(parser_of("help"), _help),
    "last": Command(parser_of("last"), _last),
    "show": Command(parser_of("show", option("run")), _show),
    "history": Command(parser_of("history", option("--predictions", action="store_true")), _history),
    "compare": Command(parser_of("compare", option("first"), option("second")), _compare),
    "timeline": Command(parser_of("timeline", option("run")), _timeline),
    "trace": Command(
        parser_of(
            "trace",
            option("files", nargs="+"),
            option("--name", default=""),
            *outputs(),
            option("--timeline", type=Path, default=None, metavar="PATH"),
        ),
        _trace,
    ),
    "try": Command(parser_of("try", option("settings", nargs="*"), *_reruns()), _try),
    "scale": Command(
        parser_of(
            "scale",
            option("counts", nargs="+"),
            option("--mode", choices=("weak", "strong"), default="weak"),
            option("--repeats", type=int, default=3),
            option("--raw", action="store_true"),
            option("--least-gain", type=float, default=1.6),
            option("--least-efficiency", type=float, default=0.7),
            option("--price", type=float, default=None),
            option("--on", choices=("slurm",), default=None),
            option("--partition", default=""),
            option("--account", default=""),
            option("--gpus-per-node", type=int, default=None),
            option("--time", type=int, default=None, metavar="MINUTES"),
            *_reruns(),
        ),
        _scale,
    ),
    "batch": Command(
        parser_of(
            "batch",
            option("--grow", default="1,2,4", metavar="FACTORS"),
            option("--until-memory", default="90%", metavar="SHARE"),
            option("--figure", action="store_true"),
            *_reruns(),
        ),
        _batch,
    ),
    **DEVICE_COMMANDS,
    **SPOT_COMMANDS,
    **SWEEP_COMMANDS,
}
