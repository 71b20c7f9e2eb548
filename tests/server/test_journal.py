"""What is told, and what becomes of it while the file cannot be written."""

from __future__ import annotations

import asyncio
import logging
import sqlite3

import pytest

from jupyter_gpuprof.records.audit import AuditRow
from jupyter_gpuprof.server import journal
from jupyter_gpuprof.server.journal import MOST_WAITING, Journal


def row(number: int) -> AuditRow:
    return AuditRow("2026-12-01T00:00:00+00:00", f"k{number}", "", "warn", "reaper", "done", "It is idle.")


def test_rows_that_cannot_be_written_wait_and_are_written_once(caplog, monkeypatch: pytest.MonkeyPatch):
    written: list[str] = []
    full = True

    def add(row: AuditRow) -> None:
        if full:
            raise sqlite3.OperationalError("database or disk is full")
        written.append(row.holder_id)

    async def in_thread(call, *args):
        await asyncio.sleep(0)
        return call(*args)

    async def scenario() -> None:
        nonlocal full
        told = Journal(None, in_thread, logging.getLogger("test"))
        for number in range(MOST_WAITING + 5):
            await told.write(row(number))
        assert not written
        full = False
        await asyncio.gather(told.flush(), told.flush(), told.write(row(1000)))
        await told.flush()

    monkeypatch.setattr(journal, "add_audit", add)
    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    # k5 was just being written when the last one pushed it out.
    assert written == [f"k{number}" for number in (*range(5, MOST_WAITING + 5), 1000)]
    assert len(caplog.records) == 1
