"""This user's running Jupyter servers, asked over their REST API for what only they know."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_LIMIT_S = 3.0


def ask_servers(what: str) -> list[tuple[str, dict[str, Any]]]:
    """The answers of all servers that have our extension, with their addresses.

    Args:
        what: a route below ``gpuprof/api/v1``.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    found = []
    for path in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        try:
            server = json.loads(path.read_text(encoding="utf-8"))
            found.append((str(server["url"]), _ask(server, what)))
        except (OSError, ValueError, KeyError, TypeError):  # gone, without our extension, or not to be asked
            continue
    return found


def _ask(server: dict[str, Any], what: str) -> dict[str, Any]:
    url = urllib.parse.urljoin(str(server["url"]), f"gpuprof/api/v1/{what}")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"not an address: {url}")
    request = urllib.request.Request(url)
    if server.get("token"):
        request.add_header("Authorization", f"token {server['token']}")
    with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
        body = json.load(answer)
    if not isinstance(body, dict):
        raise ValueError("no answer of ours")
    return body
