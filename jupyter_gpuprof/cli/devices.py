"""``jupyter gpuprof devices``, ``holders``, ``reaper`` and ``ledger``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import UsageError

Json = dict[str, Any]
#: Between the first two looks without a server, in seconds: counters need two.
_APART_S = 0.3


def add_commands(subparsers: Any) -> None:
    """Add the commands to the parser's."""
    for name, help, act in (
        ("status", "version, devices, last run, and the servers' settings and warnings", _status),
        ("devices", "the devices and who holds them", _devices),
        ("holders", "the kernels, what they hold and what they do", _holders),
        ("reaper", "what the reaper decides and what it did", _reaper),
    ):
        command = subparsers.add_parser(name, help=help)
        command.add_argument("--json", action="store_true", help="as JSON")
        _add_watch(command)
        command.set_defaults(act=act)
    ledger = subparsers.add_parser("ledger", help="where the GPU-hours went")
    ledger.add_argument("--by", choices=("notebook", "device", "user", "day"), default="notebook")
    ledger.add_argument("--since", metavar="SPAN", help="only the last 7d, 12h, ...")
    ledger.add_argument(
        "--price", type=float, help="of a device for an hour (default: c.GpuProf.price of the server)"
    )
    _add_watch(ledger)
    form = ledger.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--csv", action="store_true", help="one line for each group, in seconds")
    ledger.add_argument(
        "--html", type=Path, metavar="PATH", help="also write a page with the days as a figure"
    )
    ledger.set_defaults(act=_ledger)


def _add_watch(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="again and again"
    )


def _status(args: argparse.Namespace) -> int:
    from jupyter_gpuprof._version import __version__
    from jupyter_gpuprof.cli.servers import ask_servers
    from jupyter_gpuprof.records.policy import Policy
    from jupyter_gpuprof.session.status import status_text
    from jupyter_gpuprof.views.policy_text import policy_line

    def answers() -> Iterator[Json]:
        while True:
            asked = ask_servers("status")
            servers = [{"url": url, **answer} for url, answer in asked.told]
            yield {
                "here": status_text(__version__).splitlines(),
                "servers": servers,
                "trouble": asked.trouble,
            }

    def text(answer: Json) -> str:
        lines = [*answer["here"]]
        for server in answer["servers"]:
            devices = server["devices"]
            policy = policy_line(Policy(**{**server["reaper"], "hook": None}))
            simulated = ", simulated" if devices["simulated"] else ""
            lines += [
                f"Server {server['url']}",
                f"  devices: {devices['count']} ({devices['state']}{simulated})",
                f"  {policy}",
                *(f"  {warning}" for warning in server["warnings"]),
                *([f"  {server['ledger']['trouble']}"] if server["ledger"]["trouble"] else []),
                *(f"  {remark}" for remark in server["ledger"]["remarks"]),
            ]
        return "\n".join([*lines, *answer["trouble"]]) + "\n"

    return _show(args, answers(), text)


def _devices(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.cli.servers import ask_servers
    from jupyter_gpuprof.views.sighting_json import devices_json
    from jupyter_gpuprof.views.sighting_text import devices_text

    def answers() -> Iterator[Json]:
        while (asked := ask_servers("devices")).told:  # a server knows dead kernels' processes, too
            yield {
                "servers": [{"url": url, **answer} for url, answer in asked.told],
                "trouble": asked.trouble,
            }
        for sighting in _sightings():
            yield devices_json(sighting, clock.now_s())

    def text(answer: Json) -> str:
        if "servers" not in answer:
            return devices_text(answer, _width())
        told = [f"{s['url']}\n{devices_text(s, _width())}" for s in answer["servers"]]
        return "\n".join([*told, *(f"{sentence}\n" for sentence in answer["trouble"])])

    return _show(args, answers(), text)


def _holders(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.cli.servers import ask_servers
    from jupyter_gpuprof.views.sighting_json import holders_json
    from jupyter_gpuprof.views.sighting_text import holders_text

    def answers() -> Iterator[Json]:
        while (asked := ask_servers("holders")).told or asked.trouble:
            servers = [{"url": url, **answer} for url, answer in asked.told]
            yield {"servers": servers, "trouble": asked.trouble}
        for sighting in _sightings():
            yield holders_json(sighting, clock.now_s(), {})

    def text(answer: Json) -> str:
        if "servers" not in answer:
            return holders_text(answer, _width())
        told = [f"{s['url']}\n{holders_text(s, _width())}" for s in answer["servers"]]
        return "\n".join([*told, *(f"{sentence}\n" for sentence in answer["trouble"])])

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
            asked = ask_servers("reaper")
            told = [{"url": url, **answer} for url, answer in asked.told]
            audit = [encode(row) for row in recent_audit(20)]
            yield {"servers": told, "trouble": asked.trouble, "audit": audit}

    def text(answer: Json) -> str:
        parts = [f"{sentence}\n" for sentence in answer["trouble"]]
        if not answer["servers"] and not parts:
            parts.append("No server of yours with this extension is running.\n")
        for server in answer["servers"]:
            policy = policy_line(Policy(**{**server["policy"], "hook": None}))
            parts.append(f"{server['url']}\n{reaper_text(server, policy, _width())}")
        return "\n".join([*filter(None, parts), *audit_lines(answer["audit"], _width())]) + "\n"

    return _show(args, answers(), text)


def _ledger(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.cli.servers import configured_price
    from jupyter_gpuprof.session.devices.keep import parse_span
    from jupyter_gpuprof.session.devices.ledger import ledger_report
    from jupyter_gpuprof.views.ledger_text import ledger_csv, ledger_json, ledger_text

    since_s = None if args.since is None else parse_span(args.since)
    price = configured_price() if args.price is None else args.price

    def reports() -> Iterator[Any]:
        while True:
            report = ledger_report(args.by, since_s, price)
            if args.html is not None:
                _write_page(args.html, report)
            yield report

    def text(report: Any) -> str:
        told = ledger_csv(report) if args.csv else ledger_text(report, _width())
        return told if told.endswith("\n") else told + "\n"

    return _show(args, reports(), text, lambda report: json.loads(ledger_json(report)))


def _write_page(path: Path, report: Any) -> None:
    from jupyter_gpuprof.views.ledger_figure import ledger_page

    try:
        path.write_text(ledger_page(report), encoding="utf-8")
    except ImportError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{path} was not written: {error.strerror}.") from None


def _sightings() -> Iterator[Any]:
    """Looks of our own, the first one after counters have had their time."""
    from jupyter_gpuprof.session.devices.localsight import LocalLook

    look = LocalLook()
    try:
        look.look()
        time.sleep(_APART_S)
        while True:
            yield look.look()
    finally:
        look.close()


def _show(
    args: argparse.Namespace, answers: Iterator[Any], text: Callable[[Any], str],
    as_json: Callable[[Any], Json] = lambda answer: answer,
) -> int:  # fmt: skip
    """Print the first answer, or all of them until the person interrupts."""
    if args.watch is not None and not 0.2 <= args.watch <= 3600:
        raise UsageError("--watch takes 0.2 to 3600 seconds.")
    try:
        for answer in answers:
            if args.json:
                print(json.dumps(as_json(answer), indent=None if args.watch else 2), flush=True)
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
