"""``jupyter gpuprof fleet``: where a fleet's GPU-hours went, and what another way of sharing would bring."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpuprof.cli.line import Line
from jupyter_gpuprof.cli.outputs import write
from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.records.reading import Missing

if TYPE_CHECKING:
    from jupyter_gpuprof.records.emission import Emission
    from jupyter_gpuprof.records.fleet import JobRecords


def add_fleet(commands: Any) -> None:
    """Add the command to the parser's commands."""
    fleet = commands.add_parser("fleet", help="the fleet's GPU-hours, queue waits and how to share it")
    kinds = fleet.add_subparsers(title="commands", metavar="COMMAND", required=True)

    report = kinds.add_parser("report", help="where the GPU-hours went, and how long jobs waited")
    _add_files(report, "*")
    report.add_argument("--prometheus", default="", metavar="URL", help="also ask it how busy devices were")
    report.add_argument(
        "--reserved", action="append", default=[], metavar="TEAM=GPUS", help="what is reserved for a team"
    )
    report.add_argument("--policy", type=Path, metavar="PATH", help="take its guarantees as reservations")
    _add_outputs(report)
    report.add_argument("--figure", type=Path, metavar="PATH", help="also write a page of Bokeh charts")
    report.set_defaults(act=_report)

    replay = kinds.add_parser("replay", help="what another policy would bring, from the site's own jobs")
    _add_files(replay, "+")
    replay.add_argument("--policy", type=Path, required=True, metavar="PATH", help="YAML, see docs/fleet.md")
    replay.add_argument(
        "--against",
        choices=("reserved", "today"),
        default="",
        help="each team in its guarantee alone, or the recorded waits (default: these, if they are told)",
    )
    replay.add_argument("--gpus-today", type=int, metavar="N", help="the pool before, if of another size")
    replay.add_argument("--search", action="store_true", help="find the smallest pool that keeps each p90")
    replay.add_argument("--seed", type=int, default=0, help="of the interruptions of spot capacity")
    _add_outputs(replay)
    replay.add_argument("--what-if", type=Path, metavar="PATH", help="also write an interactive what-if page")
    replay.set_defaults(act=_replay)

    emit = kinds.add_parser("emit", help="the policy as the configuration of a real queue; applies nothing")
    emit.add_argument("queue", choices=("kueue", "slurm"))
    emit.add_argument("--policy", type=Path, required=True, metavar="PATH", help="YAML, see docs/fleet.md")
    emit.add_argument("--out", type=Path, metavar="FOLDER", help="write files there (default: print them)")
    emit.add_argument(
        "--checkpoint-p99",
        metavar="TIME",
        help="what a save takes at most (default: as %%gpuprof checkpoint measured)",
    )
    emit.set_defaults(act=_emit)


def _add_files(parser: argparse.ArgumentParser, count: str) -> None:
    parser.add_argument(
        "files", nargs=count, type=Path, metavar="FILE", help='records of jobs, or "ledger" for ours'
    )
    parser.add_argument("--zone", default="", help="of times without one, such as Europe/Oslo (default UTC)")
    parser.add_argument("--columns", default="", metavar="A,B,...", help="of files without a header")
    parser.add_argument(
        "--map", action="append", default=[], metavar="WHAT=COLUMN", help="how to read another CSV file"
    )
    parser.add_argument("--team", default="", metavar="COLUMN", help="Slurm's column that is the team")
    parser.add_argument("--price", type=_price, default=None, help="of a GPU-hour")


def _price(text: str) -> float:
    price = float(text)
    if not 0 <= price < math.inf:
        raise ValueError
    return price


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write it as JSON")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write it as an HTML page")


def _report(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.fleet.comparison import report_fleet, reservations
    from jupyter_gpuprof.session.fleet.observed import observed
    from jupyter_gpuprof.session.fleet.policy import load_policy
    from jupyter_gpuprof.views.fleet_figure import fleet_page
    from jupyter_gpuprof.views.fleet_html import fleet_html
    from jupyter_gpuprof.views.fleet_text import fleet_text
    from jupyter_gpuprof.views.html import page

    _check(args.figure, args.json, args.html, args.figure)
    policy = load_policy(args.policy) if args.policy else None
    price = Missing("no price was given") if args.price is None else args.price
    if isinstance(price, Missing) and policy is not None:
        price = policy.price
    reserved = reservations(args.reserved, policy)
    if not args.files and not args.prometheus:
        raise UsageError("There is nothing to report on.", "Name files of jobs, or --prometheus URL.")
    report = report_fleet(_records(args), paths=args.files, reserved=reserved, price=price)
    if args.prometheus:
        report = observed(report, args.prometheus)
    print(fleet_text(report, width=_width()))
    write(args.json, lambda: json.dumps(report.to_dict(), indent=2) + "\n")
    write(args.html, lambda: page(fleet_html(report), "gpuprof: fleet"))
    write(args.figure, lambda: fleet_page(report))
    return 0


def _replay(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.fleet.comparison import compare_policies, priced, try_sizes
    from jupyter_gpuprof.session.fleet.policy import load_policy
    from jupyter_gpuprof.views.fleet_figure import what_if_page
    from jupyter_gpuprof.views.fleet_html import replay_html
    from jupyter_gpuprof.views.fleet_text import replay_text
    from jupyter_gpuprof.views.html import page

    _check(args.what_if, args.json, args.html, args.what_if)
    if args.gpus_today is not None and args.gpus_today < 1:
        raise UsageError(f"--gpus-today takes a number above 0, not {args.gpus_today}.")
    policy = priced(load_policy(args.policy), args.price)
    records = _records(args)
    line = Line()
    show = (lambda gpus: line.write(f"a pool of {gpus} GPUs ...")) if sys.stderr.isatty() else None
    try:
        comparison = compare_policies(
            records,
            policy,
            against=args.against,
            gpus_today=args.gpus_today,
            search=args.search,
            seed=args.seed,
            progress=show,
        )
    finally:
        line.clear()
    print(replay_text(comparison, width=_width()))
    write(args.json, lambda: json.dumps(comparison.to_dict(), indent=2) + "\n")
    write(args.html, lambda: page(replay_html(comparison), "gpuprof: fleet replay"))
    if args.what_if is not None:
        try:
            points = try_sizes(records, policy, seed=args.seed, progress=show)
        finally:
            line.clear()
        write(args.what_if, lambda: what_if_page(points, policy.name))
    return 0


def _emit(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.devices.keep import parse_span
    from jupyter_gpuprof.session.fleet.emit import emit_policy
    from jupyter_gpuprof.session.fleet.policy import load_policy
    from jupyter_gpuprof.views.fleet_words import bound_words
    from jupyter_gpuprof.views.format import clean

    save_p99_s = None if args.checkpoint_p99 is None else parse_span(args.checkpoint_p99)
    emission, claim = emit_policy(args.queue, load_policy(args.policy), save_p99_s=save_p99_s)
    if args.out is None:
        print("\n".join(f"# ==== {file.name}\n{file.text}" for file in emission.files), end="")
    else:
        _write_files(args.out, emission)
    bound = claim.bound_s
    words = bound.reason if isinstance(bound, Missing) else f"{bound_words(bound)} ({claim.parts})"
    print(words, *(f"note: {clean(note)}" for note in emission.notes), sep="\n", file=sys.stderr)
    return 0


def _write_files(folder: Path, emission: Emission) -> None:
    """The files of an emission; one that is there with another text is kept beside the new one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in emission.files:
            path, done = folder / file.name, "written"
            if path.exists():
                if path.read_text(encoding="utf-8") == file.text:
                    print(f"{path} is there already, the same")
                    continue
                old = path.with_name(f"{file.name}.old")
                path.replace(old)
                done = f"replaced; what it was is in {old.name}"
            path.write_text(file.text, encoding="utf-8")
            print(f"{path} {done}")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to: {error.strerror}.") from None


def _records(args: argparse.Namespace) -> JobRecords:
    from jupyter_gpuprof.session.fleet.comparison import parse_pairs, read_fleet

    columns = [name.strip() for name in args.columns.split(",") if name.strip()]
    mapping = parse_pairs(args.map, "mapping")
    return read_fleet(args.files, zone=args.zone, columns=columns, mapping=mapping, team=args.team)


def _check(figure: Path | None, *paths: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise UsageError(f"{path} cannot be written.", "Name a file in a folder that exists.")
    if figure is not None and importlib.util.find_spec("bokeh") is None:
        raise UsageError(f"{figure} needs bokeh.", 'Install it with: pip install "jupyter-gpuprof[plot]"')


def _width() -> int:
    return min(100, shutil.get_terminal_size((100, 24)).columns)
