"""Which handler answers where, below the base URL of the server."""

from __future__ import annotations

import re
from typing import Any

from jupyter_server.utils import url_path_join
from tornado.web import Application

from jupyter_gpuprof.server.apihandler import MONITOR
from jupyter_gpuprof.server.handlers import (
    AuditHandler,
    EndOrphanHandler,
    KeepHandler,
    LedgerHandler,
    MetricsHandler,
    NowHandler,
    ReleaseHandler,
    RunHandler,
    RunsHandler,
)
from jupyter_gpuprof.server.protocol import Monitor

API = "gpuprof/api/v1"
METRICS = "gpuprof/metrics"

_ID = "([^/]+)"


def routes(base_url: str) -> list[tuple[Any, ...]]:
    """The rules for the web application.

    Args:
        base_url: of the server, ``/`` or ``/user/name/``.
    """
    here: list[tuple[Any, ...]] = [
        *(
            (f"{API}/{name}", NowHandler, {"ask": name})
            for name in ("status", "devices", "holders", "reaper")
        ),
        (f"{API}/runs", RunsHandler),
        (f"{API}/runs/{_ID}", RunHandler),
        (f"{API}/ledger", LedgerHandler),
        (f"{API}/audit", AuditHandler),
        (f"{API}/holders/{_ID}/keep", KeepHandler),
        (f"{API}/holders/{_ID}/release", ReleaseHandler),
        (f"{API}/orphans/{_ID}/end", EndOrphanHandler),
        (METRICS, MetricsHandler),
    ]
    return [(url_path_join(re.escape(base_url), path), *rest) for path, *rest in here]


def register(web_app: Application, monitor: Monitor) -> None:
    """Put the routes into a server's web application."""
    web_app.settings[MONITOR] = monitor
    web_app.add_handlers(".*$", routes(web_app.settings["base_url"]))
