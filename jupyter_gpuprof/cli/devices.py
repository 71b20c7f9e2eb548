"""``jupyter gpuprof devices``, ``holders``, ``reaper`` and ``ledger``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import UsageError

Json = dict[str, Any]
#: Between the first two looks without a server, in seconds: counters need two.
_APART_S = 0.3


def add_commands(subparsers: Any) -> None:
    """Add the commands to the parser's."""
    for name, help, act in (
        ("devices", "the devices and who holds them", _devices),
        ("holders", "the kernels, what they hold and what they do", _holders),
        ("reaper", "what the reaper decides and what it did", _reaper),
    ):
        command = subparsers.add_parser(name, help=help)
        command.add_argument("--json", action="store_true", help="as JSON")
        command.add_argument(
            "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="again and again"
        )
        command.set_defaults(act=act)
    ledger = subparsers.add_parser("ledger", help="where the GPU-hours went")
    ledger.add_argument("--by", choices=("notebook", "device", "user", "day"), default="notebook")
    ledger.add_argument("--since", metavar="SPAN", help="only the last 7d, 12h, ...")
    ledger.add_argument("--price", type=float, help="of a device for an hour")
    form = ledger.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--csv", action="store_true", help="one line for each group, in seconds")
    ledger.set_defaults(act=_ledger)


def _devices(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.views.sighting_json import devices_json
    from jupyter_gpuprof.views.sighting_text import devices_text

    def answers() -> Iterator[Json]:
        for sighting in _sightings():
            yield devices_json(sighting, clock.now_s())

    return _show(args, answers(), lambda answer: devices_text(answer, _width()))


def _holders(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.cli.servers import ask_servers
    from jupyter_gpuprof.views.sighting_json import holders_json
    from jupyter_gpuprof.views.sighting_text import holders_text

    def answers() -> Iterator[Json]:
        while told := ask_servers("holders"):
            yield {"servers": [{"url": url, **answer} for url, answer in told]}
        for sighting in _sightings():
            yield holders_json(sighting, clock.now_s(), {})

    def text(answer: Json) -> str:
        if "servers" not in answer:
            return holders_text(answer, _width())
        return "\n".join(f"{s['url']}\n{holders_text(s, _width())}" for s in answer["servers"])

    return _show(args, answers(), text)


def _reaper(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.cli.servers import ask_servers
    from jupyter_gpuprof.records.codec import encode
    from jupyter_gpuprof.records.policy import Policy
    from jupyter_gpuprof.store.audit import recent_audit
    from jupyter_gpuprof.views.policy_text import policy_line
    from jupyter_gpuprof.views.sighting_text import audit_lines, reaper_text

    def answers() -> Iterator[Json]:
        while True:
            told = [{"url": url, **answer} for url, answer in ask_servers("reaper")]
            yield {"servers": told, "audit": [encode(row) for row in recent_audit(20)]}

    def text(answer: Json) -> str:
        parts = ["" if answer["servers"] else "No server of yours with this extension is running.\n"]
        for server in answer["servers"]:
            policy = policy_line(Policy(**{**server["policy"], "hook": None}))
            parts.append(f"{server['url']}\n{reaper_text(server, policy, _width())}")
        return "\n".join([*filter(None, parts), *audit_lines(answer["audit"], _width())]) + "\n"

    return _show(args, answers(), text)


def _ledger(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.keep import parse_span
    from jupyter_gpuprof.session.ledger import ledger_report
    from jupyter_gpuprof.views.ledger_text import ledger_csv, ledger_json, ledger_text

    report = ledger_report(args.by, None if args.since is None else parse_span(args.since), args.price)
    text = (
        ledger_json(report)
        if args.json
        else ledger_csv(report)
        if args.csv
        else ledger_text(report, _width())
    )
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


def _sightings() -> Iterator[Any]:
    """Looks of our own, the first one after counters have had their time."""
    from jupyter_gpuprof.session.localsight import LocalLook

    look = LocalLook()
    try:
        look.look()
        time.sleep(_APART_S)
        while True:
            yield look.look()
    finally:
        look.close()


def _show(args: argparse.Namespace, answers: Iterator[Json], text: Callable[[Json], str]) -> int:
    """Print the first answer, or all of them until the person interrupts."""
    if args.watch is not None and not 0.2 <= args.watch <= 3600:
        raise UsageError("--watch takes 0.2 to 3600 seconds.")
    try:
        for answer in answers:
            if args.json:
                print(json.dumps(answer, indent=None if args.watch else 2), flush=True)
            else:
                clear = "\x1b[H\x1b[2J" if args.watch and sys.stdout.isatty() else ""
                print(clear + text(answer), end="", flush=True)
            if args.watch is None:
                break
            time.sleep(args.watch)
    except KeyboardInterrupt:
        return 130
    finally:
        answers.close()  # type: ignore[attr-defined]
    return 0


def _width() -> int:
    return max(60, shutil.get_terminal_size((100, 24)).columns)
