"""The command ``jupyter gpuprof``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof import clock
from jupyter_gpuprof._version import __version__
from jupyter_gpuprof.cli.cache import add_cache
from jupyter_gpuprof.cli.devices import add_commands as add_device_commands
from jupyter_gpuprof.cli.fleet import add_fleet
from jupyter_gpuprof.cli.line import Line
from jupyter_gpuprof.cli.outputs import write
from jupyter_gpuprof.cli.scale import add_scale
from jupyter_gpuprof.cli.spot import add_spot
from jupyter_gpuprof.cli.sweep import add_sweep
from jupyter_gpuprof.errors import GpuprofError, UsageError
from jupyter_gpuprof.records.run import Run

if TYPE_CHECKING:
    from jupyter_gpuprof.session.profile import Progress


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status.

    Args:
        argv: the arguments after the command's name; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    script: list[str] = []
    if words[:1] == ["scale"] and "--" in words:
        end = words.index("--")
        words, script = words[:end], words[end + 1 :]
    args = _parser().parse_args(words)
    if script:
        args.script = script
    try:
        status: int = args.act(args)
    except GpuprofError as error:
        print(f"jupyter gpuprof: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # files are written whole, after the work
        print("jupyter gpuprof: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jupyter gpuprof",
        description="What is the training step bound by, and what fixes it?",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="profile a script, unchanged")
    run.add_argument("--name", default="", help="how to call the run (default: the script's name)")
    run.add_argument(
        "--warmup", type=_steps_or_auto, default=None, metavar="auto|K", help="steps to leave out at first"
    )
    run.add_argument("--steps", type=int, default=None, help="end the script after so many counted steps")
    run.add_argument("--kernels", default="auto", metavar="auto|off|K", help="steps of the gpu op window")
    run.add_argument("--prices", default="", metavar="DEVICE=P,...", help="what devices cost in an hour")
    _add_outputs(run)
    run.add_argument("--quiet", action="store_true", help="print no report; the run is saved all the same")
    run.add_argument("--no-live", action="store_true", help="no live line while the script runs")
    run.add_argument("script", type=Path, help="the script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    run.set_defaults(act=_run)

    add_scale(commands)
    add_device_commands(commands)
    add_spot(commands)
    add_sweep(commands)
    add_fleet(commands)
    add_cache(commands)

    show = commands.add_parser("show", help="the report of a saved run")
    show.add_argument("run", help='an id, a name, a JSON file, "last", "scale", "batch" or "try"')
    _add_outputs(show)
    show.set_defaults(act=_show)

    trace = commands.add_parser("trace", help="the verdict on stored traces of torch.profiler")
    trace.add_argument("files", nargs="+", type=Path, help="traces, archives or folders of ranks")
    trace.add_argument("--name", default="", help="how to call the run (default: the first file's name)")
    _add_outputs(trace)
    trace.set_defaults(act=_trace)

    history = commands.add_parser("history", help="the runs that were saved, newest first")
    history.set_defaults(act=_history)

    compare = commands.add_parser("compare", help="two runs side by side")
    compare.add_argument("first", help="a run, as in show")
    compare.add_argument("second", help="another one")
    compare.set_defaults(act=_compare)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the run as JSON")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write the report as an HTML page")
    parser.add_argument(
        "--timeline", type=Path, metavar="PATH", help="also write the gpu ops as an HTML page to zoom into"
    )


def _steps_or_auto(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _run(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.profile import Options, Session
    from jupyter_gpuprof.session.script import run_script
    from jupyter_gpuprof.session.window import parse_kernels

    kernels = parse_kernels(args.kernels)
    name = args.name or args.script.stem
    options = Options(name, args.warmup, args.steps, kernels, prices=args.prices)
    _check_outputs(args)
    live = _LiveLine() if not (args.quiet or args.no_live) and sys.stderr.isatty() else None
    session = Session(options, progress=live.show if live else None)
    run, raised = run_script(args.script, args.arguments, session)
    if live:
        live.clear()
    if not session.is_secondary:  # rank 0 reports for all
        if not args.quiet:
            _print_report(run)
        _write_outputs(run, args)
    return _exit_status(raised)


def _exit_status(raised: BaseException | None) -> int:
    """The script's own exit status; its traceback is printed as Python would."""
    if raised is None:
        return 0
    if isinstance(raised, SystemExit):
        if raised.code is None or isinstance(raised.code, int):
            return raised.code or 0
        print(raised.code, file=sys.stderr)
        return 1
    traceback.print_exception(raised)
    return 130 if isinstance(raised, KeyboardInterrupt) else 1


class _LiveLine(Line):
    """Where a run is."""

    def show(self, progress: Progress) -> None:
        from jupyter_gpuprof.views.live import live_text

        self.write(live_text(progress.step, progress.steps_per_s, progress.input_share, progress.warmup))


class _ReadingLine(Line):
    """How far a file is read, and for how long it will take."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s = self._shown_s = clock.now_s()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        from jupyter_gpuprof.views.live import reading_text

        now_s = clock.now_s()
        if now_s - self._shown_s >= 0.25:
            self._shown_s = now_s
            self.write(reading_text(done_bytes, total_bytes, now_s - self._began_s))


def _show(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.store.records import load_record

    _check_outputs(args)
    record = load_record(args.run)
    _print_report(record)
    _write_outputs(record, args)
    return 0


def _trace(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.trace import trace_run

    _check_outputs(args)
    bar = _ReadingLine() if sys.stderr.isatty() else None
    try:
        run = trace_run(args.files, name=args.name, progress=bar.show if bar else None)
    except KeyboardInterrupt:
        print("jupyter gpuprof: stopped; nothing was saved.", file=sys.stderr)
        return 130
    finally:
        if bar:
            bar.clear()
    _print_report(run)
    _write_outputs(run, args)
    return 0


def _history(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.records.scaling import Scaling
    from jupyter_gpuprof.store.runs import recent_runs
    from jupyter_gpuprof.store.trials import recent_curves
    from jupyter_gpuprof.views.scaling_list import scalings_text
    from jupyter_gpuprof.views.text import history_text

    print(history_text(recent_runs()))
    if scalings := recent_curves(Scaling):
        print(scalings_text(scalings))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.store.runs import load_run
    from jupyter_gpuprof.views.text import compare_text

    print(compare_text(load_run(args.first), load_run(args.second)))
    return 0


def _print_report(record: Any) -> None:
    import shutil

    from jupyter_gpuprof.views.record import record_text

    print(record_text(record, width=min(100, shutil.get_terminal_size((100, 24)).columns)))


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before an hour of training what could not be written after it."""
    for path in (args.json, args.html, args.timeline):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise UsageError(f"{path} cannot be written.", "Name a file in a folder that exists.")
    if args.timeline is not None and importlib.util.find_spec("bokeh") is None:
        raise UsageError("--timeline needs bokeh.", 'Install it with: pip install "jupyter-gpuprof[plot]"')


def _timeline_page(record: Any) -> str:
    from jupyter_gpuprof.views.timeline import timeline_page

    if not isinstance(record, Run):
        raise UsageError("Only a run has gpu ops.")
    return timeline_page(record)


def _write_outputs(record: Any, args: argparse.Namespace) -> None:
    from jupyter_gpuprof.views.record import record_page

    texts = (
        (args.json, lambda: json.dumps(record.to_dict(), indent=2) + "\n"),
        (args.html, lambda: record_page(record)),
        (args.timeline, lambda: _timeline_page(record)),
    )
    for path, text in texts:
        write(path, text)


if __name__ == "__main__":
    sys.exit(main())
