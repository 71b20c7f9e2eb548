"""This user's running Jupyter servers, asked over their REST API for what only they know."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import OptionError

_LIMIT_S = 3.0
_PRICE_HINT = "--price says another one."


@dataclass
class Answers:
    """What servers told, with their addresses, and sentences on those that could not be asked."""

    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


def ask_servers(what: str) -> Answers:
    """Ask all servers of this user that run and have our extension.

    Args:
        what: a route below ``gpuprof/api/v1``.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    answers = Answers()
    for path in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        try:
            server = json.loads(path.read_text(encoding="utf-8"))
            url = str(server["url"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if not _runs(server.get("pid")):
            continue  # it crashed; who listens there now is not to have its token
        try:
            answers.told.append((url, _ask(server, what)))
        except urllib.error.HTTPError as error:
            if error.code != 404:  # 404: without our extension
                answers.trouble.append(f"The server at {url} does not answer this command: {error.reason}.")
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "reason", error)
            answers.trouble.append(f"The server at {url} cannot be asked: {reason}.")
    return answers


def configured_price() -> float | None:
    """What a device hour costs by ``c.GpuProf.price`` in the configuration of this environment's servers.

    Raises:
        OptionError: it is no price, or the configuration cannot be read.
    """
    from jupyter_core.application import JupyterApp

    price = None
    for name in ("jupyter_server_config", "jupyter_gpuprof_config"):  # the second: of the extension alone
        app = JupyterApp(config_file_name=name, raise_config_file_errors=True)
        try:
            app.load_config_file(suppress_errors=False)
        except Exception as error:  # of whatever the files run
            raise OptionError(f"{name} cannot be read ({error}).", _PRICE_HINT) from None
        price = app.config.GpuProf.get("price", price)
    if price is None:
        return None
    if isinstance(price, bool) or not isinstance(price, (int, float)) or not 0 < price < float("inf"):
        raise OptionError(f"c.GpuProf.price must be above 0, not {price!r}.", _PRICE_HINT)
    return float(price)


def _runs(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _ask(server: dict[str, Any], what: str) -> dict[str, Any]:
    url = urllib.parse.urljoin(str(server["url"]), f"gpuprof/api/v1/{what}")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url} is no web address")
    request = urllib.request.Request(url)
    if server.get("token"):
        request.add_header("Authorization", f"token {server['token']}")
    with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
        body = json.load(answer)
    if not isinstance(body, dict):
        raise ValueError("the answer is none of ours")
    return body
