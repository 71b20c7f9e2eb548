"""The simulated device: what real processes hold and do, under a name that says what it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jupyter_gpuprof.probes.nvml import NvmlReader
from jupyter_gpuprof.probes.simulated import FLOOR_BYTES, SIMULATED, SimulatedReader, device_reader
from jupyter_gpuprof.records.devices import DeviceProcess, ProcessWork
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.processes import ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.session.devices.servermonitor import server_monitor
from jupyter_gpuprof.testing import FakeClock

MIB = 2**20


class Table:
    """Processes as told."""

    def __init__(self, **cpu_s: float) -> None:
        self.cpu_s = cpu_s

    def look(self, roots: object) -> tuple[ProcessFacts, ...]:
        return tuple(ProcessFacts(ProcessId(int(n[1:]), 5.0), 1, 0, s) for n, s in self.cpu_s.items())


def test_it_is_on_only_when_asked_for() -> None:
    assert isinstance(device_reader({SIMULATED: "1"}), SimulatedReader)
    for environment in ({}, {SIMULATED: ""}, {SIMULATED: "0"}):
        assert isinstance(device_reader(environment), NvmlReader)


def test_processes_hold_what_is_theirs_and_work_as_their_processors_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_gpuprof.probes.machine.usable_cores", lambda: 4)
    monkeypatch.setattr("jupyter_gpuprof.probes.simulated.free_bytes", lambda: 1000 * MIB)
    clock, sizes = FakeClock(), {1: 300 * MIB, 2: 200 * MIB, 3: FLOOR_BYTES - 1}
    table = Table(p1=10.0, p2=7.0, p3=1.0, p4=1.0)
    reader = SimulatedReader(table, clock=clock, held=sizes.get)
    (first,) = reader.read().devices
    assert "SIMULATED" in first.name
    assert first.processes == (DeviceProcess(1, 300 * MIB), DeviceProcess(2, 200 * MIB))
    assert (first.used_bytes, first.total_bytes) == (500 * MIB, 1500 * MIB)
    assert isinstance(first.utilisation_ratio, Missing)
    clock.advance(2.0)
    table.cpu_s = {"p1": 14.0, "p2": 7.0, "p3": 3.0}
    sizes[1] = 100 * MIB + FLOOR_BYTES
    snapshot = reader.read()
    (then,) = snapshot.devices
    assert snapshot.driver == "simulated"
    assert then.work == (
        ProcessWork(1, 0.5),
    )  # 4 s of processors in 2 s on 4 of them; nobody below the floor
    assert then.utilisation_ratio == 0.5
    assert then.total_bytes == first.total_bytes
    assert then.used_bytes == 300 * MIB + FLOOR_BYTES


def test_a_real_process_of_a_kernel_holds_its_memory() -> None:
    script = f"held = bytearray(b'x' * {300 * MIB}); print('ready', flush=True); input()"
    env = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout.readline()
            (device,) = SimulatedReader().read().devices
            (size,) = [p.used_bytes for p in device.processes if p.pid == child.pid]
            assert 300 * MIB <= size < 350 * MIB
        finally:
            child.kill()


def test_nothing_simulated_is_written_to_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIMULATED, "1")
    monitor = server_monitor(policy=Policy(), interval_s=1.0, allocation="visible", keep_days=1.0)
    try:
        assert monitor.simulated
        assert monitor.writer is None
        monitor.tick([])
        monitor.tick([])
    finally:
        monitor.close()
