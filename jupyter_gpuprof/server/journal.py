"""Writes down what is done: a row in the audit log, an event on the server's bus, a line in its log."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_gpuprof.records.audit import AuditRow
from jupyter_gpuprof.records.idleness import Action
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.store.audit import add_audit

SCHEMA_ID = "https://schema.jupyter.org/jupyter_gpuprof/reaper/v1"
SCHEMA_PATH = Path(__file__).with_name("events") / "reaper.yaml"

#: How many rows wait in memory at most while the file cannot be written; then the oldest is lost.
MOST_WAITING = 100

#: Runs a blocking call in a thread.
InThread = Callable[..., Awaitable[Any]]


class Journal:
    """Where all that is done is told.

    Args:
        events: the server's event logger; None without one.
        in_thread: for the file, which may be locked for a while.
    """

    def __init__(self, events: Any, in_thread: InThread, log: logging.Logger) -> None:
        self._events = events
        self._in_thread = in_thread
        self._log = log
        self._waiting: deque[AuditRow] = deque(maxlen=MOST_WAITING)
        self._writing: asyncio.Lock | None = None
        self._trouble = ""
        if events is not None:
            events.register_event_schema(SCHEMA_PATH)

    async def write(
        self, row: AuditRow, next_action: Action = "none", due_s: Number = Missing("nothing follows")
    ) -> None:
        """Tell it to everybody; a file that cannot be written stops nothing.

        Args:
            row: what was done.
            next_action: what follows if nothing changes.
            due_s: seconds until then.
        """
        self._log.info("gpuprof: %s (%s): %s", row.action, row.outcome, row.sentence)
        self._emit(row, next_action, due_s)
        self._waiting.append(row)
        await self.flush()

    async def flush(self) -> None:
        """Write what waits; what cannot be written waits on."""
        if not self._waiting:
            return
        if self._writing is None:
            self._writing = asyncio.Lock()  # not before there is a loop
        async with self._writing:
            while self._waiting:
                row = self._waiting[0]
                try:
                    await self._in_thread(add_audit, row)
                except (sqlite3.Error, OSError) as error:
                    if str(error) != self._trouble:  # once, not every second
                        self._log.warning("gpuprof: the audit log cannot be written, it waits: %s", error)
                    self._trouble = str(error)
                    return
                self._trouble = ""
                if self._waiting and self._waiting[0] is row:  # else it was pushed out meanwhile
                    self._waiting.popleft()

    def _emit(self, row: AuditRow, next_action: Action, due_s: Number) -> None:
        if self._events is None:
            return
        data = {
            "holder_id": row.holder_id,
            "path": row.path,
            "action": row.action,
            "by": row.by,
            "outcome": row.outcome,
            "sentence": row.sentence,
            "evidence": list(row.evidence),
            "next_action": next_action,
            "due_in_s": None if isinstance(due_s, Missing) else due_s,
            "freed_bytes": None if isinstance(row.freed_bytes, Missing) else row.freed_bytes,
        }
        try:
            self._events.emit(schema_id=SCHEMA_ID, data=data)
        except Exception as error:  # a listener's or a handler's
            self._log.warning("gpuprof: the event cannot be sent: %s", error)
