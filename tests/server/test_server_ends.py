"""A server that ends while it acts leaves word of what it had begun."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.server.actions import Actions
from jupyter_gpuprof.server.journal import Journal
from jupyter_gpuprof.store.audit import recent_audit


@pytest.fixture
def orphan() -> Any:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_an_orphan_that_was_ended_has_its_row(orphan: Any) -> None:
    process = process_id(orphan.pid)
    decision = SimpleNamespace(
        dry_run=False, action="end orphan", sentence="Its kernel is gone.", evidence=("gone for 9 min",)
    )
    facts = SimpleNamespace(process=process, notebook="train.ipynb")
    sight: Any = SimpleNamespace(orphan_id="o-1", decision=decision, facts=facts, held=(("GPU-1", 1),))

    async def run() -> None:
        looked = asyncio.Event()

        async def in_thread(call: Any, *args: Any) -> Any:
            return call(*args)

        async def next_look() -> Any:
            if not looked.is_set():
                looked.set()
                return SimpleNamespace(snapshot=SimpleNamespace(devices=()))
            await asyncio.Event().wait()  # the driver never answers again
            return None

        log = logging.getLogger("test")
        monitor: Any = SimpleNamespace(acted=lambda *_: None)
        actions = Actions(
            None, SimpleNamespace(), monitor, Journal(None, in_thread, log),  # type: ignore[arg-type]
            next_look=next_look, in_thread=in_thread, log=log,
        )  # fmt: skip
        task = asyncio.ensure_future(actions.on_orphan(sight, "reaper"))
        actions._tasks.add(task)
        await asyncio.get_running_loop().run_in_executor(None, orphan.wait, 30)
        await asyncio.sleep(0)
        await actions.close()

    asyncio.run(run())
    assert orphan.returncode is not None
    (row,) = recent_audit()
    assert (row.holder_id, row.path, row.action) == ("o-1", "train.ipynb", "end orphan")
    assert row.outcome == "failed"
    assert row.sentence == "Its kernel is gone. The server ended before it saw what came of it."
