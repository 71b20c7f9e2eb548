"""``jupyter gpuprof cache``: what `jupyter_gpuprof.cached` keeps."""

from __future__ import annotations

import argparse
import json
import shutil
from typing import Any


def add_cache(commands: Any) -> None:
    """Add the command to the parser's commands."""
    cache = commands.add_parser("cache", help="what cached() keeps: list, show, verify, prune")
    actions = cache.add_subparsers(title="actions", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="all of it, last used first")
    listed.add_argument("--json", action="store_true", help="as JSON")
    listed.set_defaults(act=_list)
    show = actions.add_parser("show", help="what the results of one key depend on")
    show.add_argument("key", help="the beginning of a key, or a name")
    show.set_defaults(act=_show)
    verify = actions.add_parser("verify", help="read everything; damaged files are put aside")
    verify.add_argument("key", nargs="?", default=None, help="only this key or name")
    verify.set_defaults(act=_verify)
    prune = actions.add_parser("prune", help="take away damaged files and what was not used for longest")
    prune.add_argument(
        "--to", default=None, metavar="SIZE", help="what may stay: 20G, 0 (default: the limit)"
    )
    prune.add_argument(
        "--unused-for", type=float, default=None, metavar="DAYS", help="also what was not used for so long"
    )
    prune.set_defaults(act=_prune)


def _list(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.cache.listing import cache_report
    from jupyter_gpuprof.views.cache_text import cache_text

    report = cache_report()
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    print(
        json.dumps(report.to_dict(), indent=2) if args.json else cache_text(report, width),
        end="\n" if args.json else "",
    )
    return 0


def _show(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.cache.listing import find_entry
    from jupyter_gpuprof.views.cache_text import entry_text

    print(entry_text(find_entry(args.key)), end="")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.cache.listing import verify_cache
    from jupyter_gpuprof.views.cache_text import verified_text

    found = verify_cache(args.key)
    print(verified_text(found), end="")
    return 1 if any(damaged for _, damaged in found) else 0


def _prune(args: argparse.Namespace) -> int:
    from jupyter_gpuprof.session.cache.listing import prune_cache
    from jupyter_gpuprof.views.cache_text import pruned_text

    unused_s = None if args.unused_for is None else 86400 * args.unused_for
    print(pruned_text(prune_cache(args.to, unused_s=unused_s)), end="")
    return 0
