"""The routes: reads, which never change anything and are no activity of the server, and three writes.

Each method names its action and resource in ``@authorized``: without arguments the decorator keeps those
of the first call for all later ones.
"""

from __future__ import annotations

import math
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpuprof.server.apihandler import RESOURCE, GpuprofHandler, bad_value
from jupyter_gpuprof.server.prometheus import CONTENT_TYPE, exposition
from jupyter_gpuprof.server.protocol import Json

BYS = ("notebook", "device", "user", "day")
RELEASES = ("free", "offload", "suspend", "shutdown")
#: The longest reason for a keep that is taken, in characters.
MOST_WHY = 500
#: More hours than anybody means; the policy's own maximum is far below.
MOST_HOURS = 10_000


class ReadHandler(GpuprofHandler):
    """A read. Who polls it must not keep an idle server from being culled."""

    _track_activity = False


class NowHandler(ReadHandler):
    """``status``, ``devices``, ``holders`` and ``reaper``: what is known at this moment."""

    def initialize(self, ask: str) -> None:  # type: ignore[override]
        """For each request; `ask` is the method of the monitor."""
        super().initialize()
        self._ask = ask

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """The answer of the monitor."""
        self.answer(await self.ask(getattr(self.monitor, self._ask)))


class RunsHandler(ReadHandler):
    """``runs``: the saved runs."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """The last `limit` of them."""
        self.answer(await self.ask(self.monitor.runs, self.count("limit", 100)))


class RunHandler(ReadHandler):
    """``runs/{id}``: one run."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self, run_id: str) -> None:
        """As docs/run.md describes it."""
        self.answer(await self.ask(self.monitor.run, self.checked_id(run_id)))


class AuditHandler(ReadHandler):
    """``audit``: what was done."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """The last `limit` rows."""
        self.answer(await self.ask(self.monitor.audit, self.count("limit", 100)))


class LedgerHandler(ReadHandler):
    """``ledger``: where the GPU-hours went."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """As JSON, or one line for each group with ``format=csv``."""
        by, form = self.choice("by", BYS), self.choice("format", ("json", "csv"))
        since_s, price = self.number("since_s", above=0), self.number("price")
        report = await self.ask(self.monitor.ledger, by, since_s, price)
        if form == "json":
            self.answer(report)
            return
        from jupyter_gpuprof.server.ledgercsv import answer_csv  # it would take part in the server's start

        self.set_header("Content-Disposition", f'attachment; filename="gpuprof-ledger-by-{by}.csv"')
        self.finish(answer_csv(report), set_content_type="text/csv; charset=utf-8")


class MetricsHandler(ReadHandler):
    """``metrics``: for Prometheus."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """The text exposition."""
        text = (await self.ask(lambda: {"text": exposition(self.monitor)}))["text"]
        self.finish(text, set_content_type=CONTENT_TYPE)


class KeepHandler(GpuprofHandler):
    """``holders/{id}/keep``: leave a kernel alone for a while."""

    @web.authenticated
    @authorized(action="write", resource=RESOURCE)
    async def post(self, holder_id: str) -> None:
        """Body: ``hours`` (0 ends it), ``why``."""
        holder_id = self.checked_id(holder_id)
        body = self.json_body(frozenset({"hours", "why"}))
        hours, why = _hours(body), _why(body)
        self.answer(await self.ask(self.monitor.keep, holder_id, hours, why, self.user_name))


class ReleaseHandler(GpuprofHandler):
    """``holders/{id}/release``: free the device that an idle kernel holds."""

    @web.authenticated
    @authorized(action="write", resource=RESOURCE)
    async def post(self, holder_id: str) -> None:
        """Body: ``action``. Who may not end kernels elsewhere may not do it here either."""
        holder_id = self.checked_id(holder_id)
        action = self.json_body(frozenset({"action"})).get("action", RELEASES[0])
        if action not in RELEASES:
            raise bad_value("action", f"one of {', '.join(RELEASES)}")
        if action == "shutdown":
            await self.require("write", "kernels")
        self.answer(await self.ask(self.monitor.release, holder_id, action, self.user_name))


class EndOrphanHandler(GpuprofHandler):
    """``orphans/{id}/end``: end what is left of a dead kernel."""

    @web.authenticated
    @authorized(action="write", resource=RESOURCE)
    async def post(self, orphan_id: str) -> None:
        """It takes no body."""
        orphan_id = self.checked_id(orphan_id)
        self.json_body(frozenset())
        await self.require("write", "kernels")
        self.answer(await self.ask(self.monitor.end_orphan, orphan_id, self.user_name))


def _hours(body: Json) -> float:
    value: Any = body.get("hours")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise bad_value("hours", "a number")
    if not 0 <= value <= MOST_HOURS:
        raise bad_value("hours", f"a number of 0 to {MOST_HOURS}")
    return float(value)


def _why(body: Json) -> str:
    why: Any = body.get("why", "")
    if not isinstance(why, str) or len(why) > MOST_WHY:
        raise bad_value("why", f"words of at most {MOST_WHY} characters")
    return why
