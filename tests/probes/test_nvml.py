"""Devices through the real pynvml and a pretend driver of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpuprof.probes.nvml import LAST_RETRY_S, NvmlReader
from jupyter_gpuprof.probes.timelimit import NotAnswered, PatientThread
from jupyter_gpuprof.records.devices import DeviceProcess, DeviceReading, ProcessWork, Snapshot
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.testing import FakeClock
from tests.fakenvml import GARBAGE, GIB, MIB, FakeNvml, Gpu, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

COUNTERS = {1: 90.0, 2: 40.0, 3: 12.5, 5: 30.0, 10: 55.0}


class Machine:
    """A pretend driver in this process, a clock, and a reader of both."""

    def __init__(
        self, folder: Path, *devices: Gpu, without: tuple[str, ...] = (), limit_s: float = 5.0
    ) -> None:
        self.fake = FakeNvml(folder, devices, without=without)
        self.clock = FakeClock()
        self.reader = NvmlReader(clock=self.clock, limit_s=limit_s)
        self.library: Any = None

    def read(self, after_s: float = 1.0) -> Snapshot:
        self.clock.advance(after_s)
        self.fake.now_ms = self.clock.ns // 1_000_000
        self.fake.write()
        return self.reader.read()

    def device(self, index: int = 0, after_s: float = 1.0) -> DeviceReading:
        return self.read(after_s).devices[index]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes a `Machine`, and takes it down."""
    with ExitStack() as stack:
        made: list[Machine] = []

        def make(*devices: Gpu, **options: Any) -> Machine:
            one = Machine(tmp_path, *devices, **options)
            one.library = stack.enter_context(one.fake.in_process())
            made.append(one)
            return one

        yield make
        for one in made:
            one.fake.heal()
            one.reader.close()
            assert one.library.fakenvml_users() == 0, "an init was not undone"


def test_a_device_is_read(machine) -> None:
    gpu = Gpu(used_bytes=3 * GIB, reserved_bytes=600 * MIB, utilisation=37, processes={71: GIB, 72: None})
    m = machine(gpu, Gpu(name="Other"))
    snapshot = m.read()
    assert (snapshot.state, snapshot.reason, snapshot.driver, snapshot.at_s) == ("ok", "", "580.65.06", 1.0)
    first, second = snapshot.devices
    assert (first.index, first.uuid, first.name, first.state) == (0, gpu.uuid, "Fake H200", "ok")
    assert (first.total_bytes, first.used_bytes, first.reserved_bytes) == (140 * GIB, 3 * GIB, 600 * MIB)
    assert not first.used_includes_reserved
    assert first.utilisation_ratio == 0.37
    assert isinstance(first.processes, tuple)
    assert first.processes[0] == DeviceProcess(71, GIB)
    assert isinstance(first.processes[1].used_bytes, Missing)
    assert (second.name, second.processes, second.work) == ("Other", (), ())
    assert second.uuid != first.uuid


def test_changes_are_seen_by_the_next_reading(machine) -> None:
    m = machine(Gpu())
    assert m.device().utilisation_ratio == 0.0
    m.fake.set(0, utilisation=100, processes={5: GIB})
    device = m.device()
    assert device.utilisation_ratio == 1.0
    assert device.processes == (DeviceProcess(5, GIB),)


# gpustat 141, nvml-wrapper 57: what the driver keeps is not what is used.
def test_old_driver_counts_what_it_keeps_as_used_and_that_is_flagged(machine) -> None:
    m = machine(Gpu(used_bytes=8 * MIB, reserved_bytes=904 * MIB), without=("nvmlDeviceGetMemoryInfo_v2",))
    device = m.device()
    assert device.used_bytes == 912 * MIB
    assert isinstance(device.reserved_bytes, Missing)
    assert device.used_includes_reserved


def test_a_driver_of_another_version_of_the_struct_falls_back_too(machine) -> None:
    m = machine(Gpu(used_bytes=8 * MIB, reserved_bytes=904 * MIB))
    m.fake.fail(25, "nvmlDeviceGetMemoryInfo_v2")
    assert m.device().used_bytes == 912 * MIB


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (1, "unknown"),
        (3, "unknown"),
        (4, "unknown"),
        (6, "unknown"),
        (9, "no device"),
        (12, "no device"),
        (13, "unknown"),
        (15, "unknown"),
        (18, "unknown"),
        (25, "unknown"),
        (999, "unknown"),
        (4711, "unknown"),
    ],
)
def test_init_fails_with_every_code(machine, code: int, state: str) -> None:
    m = machine(Gpu())
    m.fake.fail(code, "nvmlInitWithFlags")
    snapshot = m.read()
    assert (snapshot.state, snapshot.devices) == (state, ())
    assert snapshot.reason


def test_no_library_and_no_package_are_a_state_not_an_error(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    m = machine(without=("nvmlInitWithFlags",))
    assert m.read().state == "unknown"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    snapshot = m.read(10.0)
    assert (snapshot.state, snapshot.devices) == ("no device", ())
    assert "nvidia-ml-py" in snapshot.reason


def test_a_driver_without_devices(machine) -> None:
    snapshot = machine().read()
    assert (snapshot.state, snapshot.reason) == ("no device", "the driver lists no device")


@pytest.mark.parametrize("code", [0, 3, 4, 6, 13, 21, 25, 1, 999])
@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilisation_ratio"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetProcessUtilization", "work"),
        ("nvmlGpmSampleGet", "gpm"),
    ],
)
def test_one_call_that_fails_leaves_the_rest(machine, code: int, function: str, field: str) -> None:
    m = machine(Gpu(utilisation=10, processes={5: GIB}, samples=[(5, 100, 10)], metrics=COUNTERS))
    m.read()
    m.fake.set(0, samples=[(5, 200, 10)])
    whole = m.device()
    assert not isinstance(getattr(whole, field), Missing)
    if code == 0:  # pynvml raises "Success" only for an answer of no items
        return
    m.fake.fail(code, function)
    device = m.device()
    assert device.state == "ok"
    if (code, field) == (6, "work"):
        assert device.work == ()
    else:
        assert isinstance(getattr(device, field), Missing)
    assert device.used_bytes == whole.used_bytes


# nvidia-docker 1730: a container loses its devices while a program runs.
@pytest.mark.parametrize(("code", "state"), [(1, "unknown"), (999, "unknown"), (15, "lost"), (16, "lost")])
def test_a_device_lost_while_running_is_known_again_after_a_new_init(machine, code: int, state: str) -> None:
    m = machine(Gpu(utilisation=50), Gpu(utilisation=60))
    m.read()
    m.fake.fail(code, index=1)
    first, second = m.read().devices
    assert (first.state, first.utilisation_ratio) == ("ok", 0.5)
    assert second.state == state
    assert second.reason
    assert second.uuid == m.fake.devices[1].uuid
    assert isinstance(second.utilisation_ratio, Missing), "absent is not zero"
    m.read(2.0)  # an init that does not help: the handle is refused, the device keeps its name
    assert [d.uuid for d in m.read().devices] == [gpu.uuid for gpu in m.fake.devices]
    m.fake.heal()
    assert m.device(1, after_s=LAST_RETRY_S).utilisation_ratio == 0.6


def test_handles_gone_bad_need_a_new_init(machine) -> None:
    m = machine(Gpu(utilisation=50), Gpu())
    m.read()
    m.fake.forget_handles()
    snapshot = m.read()
    assert snapshot.state == "unknown"
    assert "999" in snapshot.reason
    assert {d.state for d in snapshot.devices} == {"unknown"}
    assert m.device().utilisation_ratio == 0.5
    assert m.library.fakenvml_inits() >= 2


def test_the_driver_gone_after_devices_were_seen_is_unknown(machine) -> None:
    m = machine(Gpu())
    m.read()
    m.fake.fail(9)
    m.read()
    snapshot = m.read(2.0)
    assert snapshot.state == "unknown"
    assert [(d.state, d.uuid) for d in snapshot.devices] == [("unknown", m.fake.devices[0].uuid)]


def test_inits_back_off(machine) -> None:
    m = machine(Gpu())
    m.fake.fail(999, "nvmlInitWithFlags")
    tries = []
    calls = m.library.fakenvml_calls()
    for second in range(1, 1000):
        m.reader.read()
        if m.library.fakenvml_calls() > calls:
            tries.append(second)
            calls = m.library.fakenvml_calls()
        m.clock.advance(1.0)
    gaps = [b - a for a, b in pairwise(tries)]
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    m.fake.heal()
    assert m.read(300.0).state == "ok"


def test_a_device_that_vanishes_or_moves_is_known_by_uuid(machine) -> None:
    m = machine(Gpu(utilisation=10), Gpu(utilisation=20), Gpu(utilisation=30))
    uuids = [device.uuid for device in m.read().devices]
    del m.fake.devices[0]
    m.fake.forget_handles()
    m.read()
    by_uuid = {device.uuid: device for device in m.read(2.0).devices}
    assert set(by_uuid) == set(uuids)
    assert by_uuid[uuids[0]].state == "lost"
    assert [by_uuid[uuid].utilisation_ratio for uuid in uuids[1:]] == [0.2, 0.3]


def test_a_device_lost_before_the_first_reading_and_one_not_ours(machine) -> None:
    m = machine(Gpu(), Gpu(), Gpu())
    m.fake.fail(15, "nvmlDeviceGetHandleByIndex_v2", 1)
    m.fake.fail(4, "nvmlDeviceGetHandleByIndex_v2", 2)
    states = [(d.index, d.state, d.uuid != "") for d in m.read().devices]
    assert states == [(0, "ok", True), (1, "lost", False), (2, "unknown", False)]


# nvtop 110 and pynvml's error "Success".
def test_garbage_samples_and_then_none(machine) -> None:
    m = machine(Gpu(processes={5: GIB}))
    m.read()
    m.fake.set(0, samples=[(5, 2**63, GARBAGE)] * 100)
    device = m.device()
    assert isinstance(device.work, tuple)
    assert [type(w.sm_ratio) for w in device.work] == [Missing]
    m.fake.set(0, samples=[])  # answers success with nothing
    assert m.device().work == ()
    m.fake.set(0, samples=[(5, 300, 40)])
    assert m.device().work == (ProcessWork(5, 0.4),), "the time of garbage is not believed"
    m.fake.set(0, utilisation=GARBAGE)
    assert isinstance(m.device().utilisation_ratio, Missing)


def test_work_is_what_is_new_since_the_last_reading(machine) -> None:
    m = machine(Gpu(processes={5: GIB, 6: GIB}, samples=[(5, 100, 90)]))
    assert isinstance(m.device().work, Missing), "of unknown age"
    m.fake.set(0, samples=[(5, 100, 90), (6, 150, 20), (6, 160, 30)])
    assert m.device().work == (ProcessWork(6, 0.3),)
    assert m.device().work == ()


def test_a_process_with_several_contexts_is_one(machine) -> None:
    m = machine(Gpu(processes={5: GIB}))
    m.fake._rules.append("")  # a blank line is no line
    state = m.fake.state
    m.fake.write()
    state.write_text(state.read_text() + f"process 5 {GIB}\nprocess 6 none\nprocess 6 {GIB}\n")
    first, second = m.reader.read().devices[0].processes
    assert first == DeviceProcess(5, 2 * GIB)
    assert isinstance(second.used_bytes, Missing)


# nvitop 5: utilisation of a device in instances.
def test_mig_is_not_available_and_never_zero(machine) -> None:
    m = machine(Gpu(used_bytes=GIB, mig=True, metrics=COUNTERS, processes={5: GIB}))
    m.read()
    device = m.device()
    assert device.mig
    assert (device.state, device.used_bytes) == ("ok", GIB)
    for value in (device.utilisation_ratio, device.work, device.gpm):
        assert isinstance(value, Missing)
        assert value.reason.startswith("n/a: MIG")
    m.fake.fail(4, "nvmlDeviceGetComputeRunningProcesses_v3")
    assert isinstance(m.device().processes, Missing)


def test_counters_need_two_samples_far_enough_apart(machine) -> None:
    m = machine(Gpu(metrics=COUNTERS))
    assert isinstance(m.device().gpm, Missing)
    gpm = m.device(after_s=0.5).gpm
    assert not isinstance(gpm, Missing)
    assert gpm.interval_s == pytest.approx(0.5)
    ratios = (gpm.active_ratio, gpm.sm_ratio, gpm.occupancy_ratio, gpm.tensor_ratio, gpm.dram_ratio)
    assert ratios == (0.9, 0.4, 0.125, 0.3, 0.55)
    m.fake.set(0, metrics={**COUNTERS, 2: 80.0})
    assert m.device(after_s=0.05).gpm == gpm, "too soon: what was read last"
    later = m.device(after_s=0.06).gpm
    assert not isinstance(later, Missing)
    assert later.sm_ratio == 0.8
    assert later.interval_s == pytest.approx(0.11)
    assert m.library.fakenvml_gpm_samples() == 2
    assert m.library.fakenvml_gpm_too_close() == 0
    m.reader.close()
    assert m.library.fakenvml_gpm_samples() == 0


def test_counters_that_are_not_there(machine) -> None:
    m = machine(Gpu(), Gpu(metrics=COUNTERS), Gpu(metrics={2: float("nan"), 3: 250.0, 5: 50.0}))
    m.fake.fail(4, "nvmlGpmSampleGet", 1)
    m.read()
    older, forbidden, odd = (device.gpm for device in m.read().devices)
    assert isinstance(older, Missing)
    assert "Hopper" in older.reason
    assert isinstance(forbidden, Missing)
    assert "administrator" in forbidden.reason
    assert odd.tensor_ratio == 0.5
    for value in (odd.active_ratio, odd.sm_ratio, odd.occupancy_ratio):
        assert isinstance(value, Missing)


def test_an_old_driver_without_newer_calls(machine) -> None:
    m = machine(
        Gpu(used_bytes=GIB, metrics=COUNTERS),
        without=("nvmlDeviceGetMigMode", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetProcessUtilization"),
    )
    device = m.device()
    assert (device.state, device.used_bytes, device.mig) == ("ok", GIB, False)
    assert isinstance(device.gpm, Missing)
    assert isinstance(device.work, Missing)


def test_a_hung_driver_never_blocks_and_threads_do_not_pile_up(machine) -> None:
    m = machine(Gpu(utilisation=10), Gpu(utilisation=20), Gpu(utilisation=30), limit_s=0.05)
    m.reader._limit_s = 5.0
    m.read()
    m.reader._limit_s = 0.05
    threads = threading.active_count()
    m.fake.hang(60, "nvmlDeviceGetUtilizationRates", 1)
    begun = time.perf_counter()
    first, *others = m.read().devices
    for _ in range(20):
        snapshot = m.read()
    assert time.perf_counter() - begun < 3.0
    assert threading.active_count() == threads
    assert first.state == "ok", "what was read before it hung is kept"
    assert {device.state for device in (*others, *snapshot.devices)} == {"unknown"}
    assert snapshot.state == "unknown"
    assert snapshot.reason == "the driver has not answered for 20 s"
    assert len(snapshot.devices) == 3
    m.fake.heal()
    m.reader._limit_s = 5.0
    deadline = time.perf_counter() + 5
    while m.reader._thread.busy and time.perf_counter() < deadline:
        time.sleep(0.002)
    assert [device.utilisation_ratio for device in m.read().devices] == [0.1, 0.2, 0.3]


def test_an_init_slower_than_the_limit_is_used_once_it_is_done(machine) -> None:
    m = machine(Gpu(utilisation=10), limit_s=0.02)
    import pynvml  # noqa: F401  not part of the wait

    m.fake.hang(60, "nvmlInitWithFlags")
    snapshot = m.read()
    assert (snapshot.state, snapshot.devices) == ("unknown", ())
    assert "not answered" in snapshot.reason
    m.fake.heal()
    m.reader._limit_s = 5.0
    deadline = time.perf_counter() + 5
    while m.reader._thread.busy and time.perf_counter() < deadline:
        time.sleep(0.002)
    assert m.device(after_s=0.1).utilisation_ratio == 0.1, "without another init"
    assert m.library.fakenvml_users() == 1


def test_closing_while_the_driver_hangs_returns(machine) -> None:
    m = machine(Gpu(), limit_s=0.05)
    m.reader._limit_s = 5.0
    m.read()
    m.reader._limit_s = 0.05
    m.fake.hang(60, "nvmlDeviceGetMemoryInfo_v2")
    m.read()
    thread = m.reader._thread._thread
    begun = time.perf_counter()
    m.reader.close()
    assert time.perf_counter() - begun < 2.0
    m.fake.heal()
    thread.join(5)
    assert not thread.is_alive()
    m.library.nvmlShutdown()  # what the reader could not do any more


def test_the_patient_thread_passes_values_and_errors_on() -> None:
    thread = PatientThread("gpuprof-test")
    assert thread.call(lambda: 5, 5) == 5
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0, 5)
    let_go = threading.Event()
    with pytest.raises(NotAnswered):
        thread.call(let_go.wait, 0.01)
    begun = time.perf_counter()
    with pytest.raises(NotAnswered):
        thread.call(lambda: 5, 60)
    assert time.perf_counter() - begun < 5, "refused at once"
    let_go.set()
    thread.close(5)


def test_closing_twice_and_reading_nothing() -> None:
    reader = NvmlReader()
    reader.close()
    reader.close()


@pytest.mark.slow
def test_a_fresh_process_finds_the_library_by_its_path(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, [Gpu(used_bytes=GIB), Gpu()])
    program = (
        "import json, sys\n"
        "import jupyter_gpuprof.probes.nvml as nvml\n"
        "assert 'pynvml' not in sys.modules\n"
        "reader = nvml.NvmlReader(limit_s=30)\n"
        "snapshot = reader.read()\n"
        "reader.close()\n"
        "print(json.dumps([snapshot.state, snapshot.reason, [d.used_bytes for d in snapshot.devices]]))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **fake.env}, capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == ["ok", "", [GIB, 0]]


def test_a_process_without_the_library_has_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes.util

    import pynvml

    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("there is a real driver here")
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    reader = NvmlReader(limit_s=30)
    snapshot = reader.read()
    reader.close()
    assert (snapshot.state, snapshot.devices) == ("no device", ())
    assert snapshot.reason == "there is no NVIDIA driver on this machine (NVML error 12)"
