"""The monitor of a server without kernels: when it looks, and what it says before it has."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import HolderNotFound
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.server import service
from jupyter_gpuprof.server.service import ServerMonitor
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.testing import FakeClock, FakeDeviceReader

LOG = logging.getLogger("test")


class NoKernels:
    cull_idle_timeout = 0

    def list_kernel_ids(self) -> list[str]:
        return []

    async def list_sessions(self) -> list[dict]:
        return []


class Reader(FakeDeviceReader):
    """Says in which thread it was read, and fails or hangs when told to."""

    broken = False

    def read(self):
        self.thread = threading.current_thread().name
        if self.broken:
            raise RuntimeError("a bug of ours")
        return super().read()


def monitor(enabled: bool, reader: FakeDeviceReader) -> ServerMonitor:
    devices = DeviceMonitor(reader, policy=Policy(enabled=enabled), interval_s=0.02)
    return ServerMonitor(devices, NoKernels(), NoKernels(), log=LOG)


def play(enabled: bool, scenario) -> None:
    async def all_of_it() -> None:
        reader = Reader(FakeClock())
        made = monitor(enabled, reader)
        made.begin()
        try:
            await asyncio.wait_for(scenario(made, reader), 20)
        finally:
            await made.end()
        assert reader.closed

    asyncio.run(all_of_it())


async def looks(reader: Reader, count: int) -> None:
    while reader.reads < count:
        await asyncio.sleep(0.005)


def test_it_sleeps_when_nobody_reads_and_the_reaper_is_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "AWAKE_S", 0.1)

    async def scenario(made: ServerMonitor, reader: Reader) -> None:
        await asyncio.sleep(0.1)
        assert reader.reads == 0
        assert made.devices()["state"] == "unknown"  # and that wakes it
        await looks(reader, 1)  # on a busy machine there is no second one within AWAKE_S
        await asyncio.sleep(0.3)
        asleep = reader.reads
        await asyncio.sleep(0.2)
        assert reader.reads == asleep
        await asyncio.to_thread(made.status)  # as the routes do
        await looks(reader, asleep + 1)

    play(False, scenario)


def test_with_the_reaper_on_it_stays_awake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "AWAKE_S", 0.0)

    async def scenario(made: ServerMonitor, reader: Reader) -> None:
        await looks(reader, 5)
        assert reader.thread.startswith("gpuprof")
        status = made.status()
        assert status["sampling"]["awake"] is True
        assert status["devices"]["state"] == "no device"
        holders = made.holders()
        assert (holders["holders"], holders["orphans"], holders["unattributed"]) == ([], [], [])
        assert made.reaper()["policy"]["action"] == "warn"

    play(True, scenario)


def test_a_look_that_fails_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture):
    async def scenario(made: ServerMonitor, reader: Reader) -> None:
        await looks(reader, 1)
        reader.broken = True
        await asyncio.sleep(0.2)
        reader.broken = False
        await looks(reader, reader.reads + 2)

    with caplog.at_level(logging.ERROR):
        play(True, scenario)
    assert [r.getMessage() for r in caplog.records] == [
        "gpuprof: the devices cannot be looked at: RuntimeError: a bug of ours"
    ]


def test_who_is_not_there_cannot_be_asked_for():
    async def scenario(made: ServerMonitor, reader: Reader) -> None:
        for ask in (made.keep("x", 1.0), made.release("x"), made.end_orphan("x")):
            with pytest.raises(HolderNotFound):
                await ask

    play(True, scenario)


def test_runs_ledger_and_audit_of_an_empty_file(tmp_path: Path):
    made = monitor(False, Reader(FakeClock()))
    assert made.runs() == {"runs": []}
    assert made.audit() == {"rows": []}
    assert made.ledger("day", 3600.0, 2.5)["groups"] == []


class Writer:
    """A ledger in trouble."""

    def __init__(self) -> None:
        self.trouble = ""
        self.remarks: list[str] = []
        self.lost_s = 0.0

    def close(self) -> None:
        pass


def test_trouble_of_the_ledger_is_logged_once(caplog: pytest.LogCaptureFixture):
    made = monitor(False, Reader(FakeClock()))
    writer = made._monitor.writer = Writer()
    with caplog.at_level(logging.WARNING):
        for waiting in range(3):
            writer.trouble = f"The ledger cannot be written (disk full); {waiting} rows wait."
            made._say_trouble()
        writer.remarks.append("The ledger was damaged.")
        writer.trouble = "The ledger cannot be written (locked); 5 rows wait."
        made._say_trouble()
        made._say_trouble()
    said = [record.getMessage() for record in caplog.records]
    assert ["disk full" in said[0], "damaged" in said[1], "locked" in said[2]] == [True] * 3
    assert len(said) == 3
