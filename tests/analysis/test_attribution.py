"""Who holds which device: scripted machines, and any machine at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.attribution import attribute, is_free, work_of
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.records.devices import (
    Attribution,
    DeviceProcess,
    DeviceReading,
    Holder,
    ProcessWork,
    Snapshot,
)
from jupyter_gpuprof.records.processes import KernelProcess, KernelReport, KernelTag, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing

MIB, GIB = 1024**2, 1024**3
ME, OTHER_USER, SERVER = 1000, 2000, 10
UNKNOWN = Missing("not told")


def device(
    *processes: DeviceProcess, used: object = 100 * GIB, uuid: str = "GPU-a", **rest: object
) -> DeviceReading:
    return DeviceReading(
        rest.pop("index", 0), uuid, "Fake", "ok", "", 140 * GIB, used, 600 * MIB, processes=processes, **rest
    )


def facts(pid: int, parent: int = SERVER, started: float = 0.0, **rest: object) -> ProcessFacts:
    return ProcessFacts(
        ProcessId(pid, started or float(pid)),
        parent,
        rest.pop("uid", ME),
        0.0,
        rest.pop("ns", (pid,)),
        **rest,
    )


def kernel(pid: int, name: str = "", started: float = 0.0, **rest: object) -> KernelProcess:
    name = name or f"k{pid}"
    return KernelProcess(name, f"{name}.ipynb", ProcessId(pid, started or float(pid)), **rest)


def report(
    pid: int, reserved: object = 8 * GIB, uuid: str = "a", at_s: float = 0.0, **rest: object
) -> KernelReport:
    started = rest.pop("started", float(pid))
    return KernelReport(
        ProcessId(pid, started),
        uuid,
        rest.pop("index", None),
        rest.pop("allocated", reserved),
        reserved,
        False,
        at_s,
    )


def held_by(devices: object, *args: object, **rest: object) -> Attribution:
    rest = {"own_uid": ME, "server_pid": SERVER, **rest}
    devices = devices if isinstance(devices, tuple) else (devices,)
    return attribute(Snapshot(0.0, "ok", devices=devices), *args, **rest)


def only(found: Attribution) -> Holder:
    (holder,) = found.holders
    return holder


def why(found: Attribution) -> str:
    assert not found.holders
    (stranger,) = found.unattributed[0].processes
    return stranger.why


def test_a_kernel_and_its_descendants_are_one_holder() -> None:
    lists = device(DeviceProcess(20, 5 * GIB), DeviceProcess(22, GIB), DeviceProcess(99, GIB), used=8 * GIB)
    processes = [facts(SERVER, 1), facts(20), facts(21, 20), facts(22, 21), facts(99, 1)]
    found = held_by(lists, processes, [kernel(20)])
    holder = only(found)
    assert (holder.kernel_id, holder.path, holder.device_uuid) == ("k20", "k20.ipynb", "GPU-a")
    assert (holder.pids, holder.held_bytes, holder.kernel_alive) == ((20, 22), 6 * GIB, True)
    assert isinstance(holder.reserved_bytes, Missing), "the kernel does not report"
    rest = found.unattributed[0]
    assert rest.held_bytes == 2 * GIB
    assert [(p.pid, p.why) for p in rest.processes] == [(99, "no kernel is among its ancestors")]


def test_the_innermost_kernel_is_the_owner() -> None:
    processes = [facts(20), facts(21, 20), facts(22, 21)]
    found = held_by(device(DeviceProcess(22, GIB)), processes, [kernel(20), kernel(21)])
    assert only(found).kernel_id == "k21"


def test_a_pid_used_again_is_not_the_kernel() -> None:
    found = held_by(device(DeviceProcess(20, GIB)), [facts(20, started=500.0)], [kernel(20, started=20.0)])
    assert why(found) == "a kernel had this pid before; it now belongs to another process"


def test_a_parent_pid_used_again_is_not_the_parent() -> None:
    processes = [facts(20, started=500.0), facts(21, 20, started=100.0)]
    found = held_by(device(DeviceProcess(21, GIB)), processes, [kernel(20, started=500.0)])
    assert why(found) == "no kernel is among its ancestors"


def test_a_child_recorded_earlier_stays_its_kernels_after_that_is_gone() -> None:
    gone = kernel(20, descendants=frozenset({ProcessId(21, 21.0)}))
    lists = device(DeviceProcess(22, GIB))
    holder = only(held_by(lists, [facts(21, 1), facts(22, 21)], [gone]))
    assert (holder.kernel_id, holder.pids, holder.kernel_alive) == ("k20", (22,), False)
    used_again = [facts(21, 1, started=700.0), facts(22, 21, started=800.0)]
    assert not held_by(lists, used_again, [gone]).holders


TAG = KernelTag(SERVER, "/home/me/a.ipynb")


def test_a_tag_finds_the_kernel_of_a_child_that_left() -> None:
    lists = device(DeviceProcess(50, GIB))
    tagged = facts(50, 1, tag=TAG)
    assert only(held_by(lists, [facts(20), tagged], [kernel(20, tag=TAG)])).kernel_id == "k20"
    refused = {
        "of another user": [replace(tagged, uid=OTHER_USER)],
        "older than the kernel": [facts(50, 1, started=5.0, tag=TAG)],
        "without a notebook": [replace(tagged, tag=KernelTag(SERVER))],
        "of another notebook": [replace(tagged, tag=KernelTag(SERVER, "/home/me/b.ipynb"))],
    }
    for name, processes in refused.items():
        assert not held_by(lists, processes, [kernel(20, tag=TAG)]).holders, name
    same = [kernel(20, tag=TAG), kernel(30, tag=TAG)]
    assert not held_by(lists, [tagged], same).holders, "two kernels have the tag"
    bare = KernelTag(SERVER)
    assert not held_by(lists, [replace(tagged, tag=bare)], [kernel(20, tag=bare)]).holders


def test_a_restarted_kernel_leaves_what_came_before_to_its_earlier_self() -> None:
    starts = [kernel(20, "k", tag=TAG), kernel(40, "k", tag=TAG)]
    processes = [facts(40), facts(30, 1, tag=TAG), facts(50, 1, tag=TAG)]
    found = held_by(device(DeviceProcess(30, GIB), DeviceProcess(50, GIB)), processes, starts)
    alive = {holder.pids: holder.kernel_alive for holder in found.holders}
    assert alive == {(30,): False, (50,): True}


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (facts(50, 1, uid=OTHER_USER), "another user"),
        (facts(50, SERVER), "to this server and to no kernel"),
        (facts(50, 1, tag=KernelTag(77, "/x.ipynb")), "another Jupyter server"),
        (facts(50, 1), "no kernel is among"),
        (facts(50, SERVER, has_device_open=False), "uses no device"),
        (facts(51, 1), "no process here"),
    ],
)
def test_why_a_process_is_nobodys(process: ProcessFacts, words: str) -> None:
    found = held_by(device(DeviceProcess(50, GIB)), [facts(SERVER, 1), facts(20), process], [kernel(20)])
    assert words in why(found)


# HAMi-core 112 and nvidia-docker 1483: the driver lists a pid of another namespace.
def test_a_kernel_with_a_foreign_pid_is_a_holder_by_its_own_report() -> None:
    lists = device(DeviceProcess(645400, 9 * GIB), used=9 * GIB)
    found = held_by(lists, [facts(324)], [kernel(324)], [report(324, 8 * GIB, allocated=6 * GIB)])
    holder = only(found)
    assert (holder.kernel_id, holder.device_uuid, holder.pids) == ("k324", "GPU-a", ())
    assert (holder.held_bytes, holder.allocated_bytes, holder.reserved_bytes) == (8 * GIB, 6 * GIB, 8 * GIB)
    assert found.unattributed[0].held_bytes == GIB, "the context; not counted twice"
    (stranger,) = found.unattributed[0].processes
    assert stranger.pid == 645400


def test_a_foreign_pid_that_is_also_a_pid_here_is_not_mistaken() -> None:
    lists = device(DeviceProcess(324, GIB))
    found = held_by(lists, [facts(324, has_device_open=False)], [kernel(324)])
    assert "another namespace" in why(found)


def test_a_kernel_in_a_container_is_found_by_its_pid_inside() -> None:
    inside = facts(645400, started=7.0, ns=(645400, 324))
    here = [kernel(645400, started=7.0)]
    assert only(held_by(device(DeviceProcess(645400, GIB)), [inside], here)).held_bytes == GIB
    assert only(held_by(device(DeviceProcess(324, GIB)), [inside], here)).held_bytes == GIB
    by_report = held_by(device(), [inside], here, [report(324, GIB, started=7.0)])
    assert only(by_report).held_bytes == GIB
    assert not held_by(device(), [inside], here, [report(324, GIB, started=8.0)]).holders
    two = [inside, facts(700000, ns=(700000, 324))]
    assert "several containers" in why(held_by(device(DeviceProcess(324, GIB)), two, here))


def test_reports_that_do_not_count() -> None:
    processes, kernels = [facts(20)], [kernel(20), kernel(30)]
    old, new = report(20, 5 * GIB, at_s=1.0), report(20, 2 * GIB, at_s=2.0)
    assert only(held_by(device(), processes, kernels, [new, old])).held_bytes == 2 * GIB
    assert not held_by(device(), processes, kernels, [old, report(20, 0, at_s=3.0)]).holders
    assert not held_by(device(), processes, kernels, [report(30)]).holders, "that kernel is gone"
    assert not held_by(device(), processes, kernels, [report(20, started=3.0)]).holders, "another process"
    assert not held_by(device(), processes, kernels, [report(77)]).holders, "no kernel of ours"


def test_the_device_of_a_report() -> None:
    devices = (device(uuid="GPU-A1"), device(uuid="GPU-b2", index=1))
    at = [
        (report(20, uuid="gpu-a1"), "GPU-A1"),
        (report(20, uuid="B2"), "GPU-b2"),
        (report(20, uuid="", index=1), "GPU-b2"),
        (report(20, uuid="sim-0"), "sim-0"),
        (report(20, uuid="", index=7), ""),
    ]
    for said, uuid in at:
        assert only(held_by(devices, [facts(20)], [kernel(20)], [said])).device_uuid == uuid
    nothing = attribute(Snapshot(0.0, "no device"), [facts(20)], [kernel(20)], [report(20)])
    assert only(nothing).held_bytes == 8 * GIB


def test_the_driver_says_more_than_a_report_and_less_than_nothing() -> None:
    processes, kernels = [facts(20)], [kernel(20)]
    with_context = held_by(device(DeviceProcess(20, 9 * GIB)), processes, kernels, [report(20, 8 * GIB)])
    assert only(with_context).held_bytes == 9 * GIB
    silent = device(DeviceProcess(20, UNKNOWN))
    assert only(held_by(silent, processes, kernels, [report(20, 8 * GIB)])).held_bytes == 8 * GIB
    found = held_by(silent, processes, kernels)
    assert only(found).held_bytes == UNKNOWN
    assert isinstance(found.unattributed[0].held_bytes, Missing)


# nvidia-docker 1730: unknown, and nothing of it becomes a zero.
def test_a_device_that_cannot_be_read() -> None:
    lost = DeviceReading(0, "GPU-a", "Fake", "lost", "off the bus", processes=Missing("off the bus"))
    found = held_by(lost, [facts(20)], [kernel(20)], [report(20)])
    assert isinstance(only(found).work_ratio, Missing)
    rest = found.unattributed[0]
    assert (rest.why, rest.processes) == ("off the bus", ())
    assert isinstance(rest.held_bytes, Missing)


def test_a_remote_kernel_has_no_process() -> None:
    remote = KernelProcess("k", "k.ipynb", None)
    assert not held_by(device(DeviceProcess(20, GIB)), [facts(20)], [remote], [report(20)]).holders


# gpustat 141 and nvml-wrapper 57, after a reap.
def test_what_the_driver_keeps_does_not_make_a_device_taken() -> None:
    assert is_free(device(used=8 * MIB)) is True
    assert is_free(device(used=GIB)) is False
    assert is_free(device(DeviceProcess(20, 0), used=8 * MIB)) is False
    old = replace(device(used=912 * MIB), reserved_bytes=Missing("old driver"))
    assert isinstance(is_free(old), Missing)
    assert isinstance(is_free(replace(device(), used_bytes=UNKNOWN)), Missing)
    assert is_free(replace(device(used=8 * MIB), processes=UNKNOWN)) is True


def test_work_of_a_process() -> None:
    two = (DeviceProcess(20, GIB), DeviceProcess(21, GIB))

    def work(*samples: tuple[int, object], utilisation: object = 0.5) -> object:
        done = tuple(ProcessWork(pid, ratio) for pid, ratio in samples)
        found = work_of(20, device(*two, work=done, utilisation_ratio=utilisation))
        return None if isinstance(found, Missing) else found

    assert work((20, 0.3)) == 0.3
    assert work((21, 0.5)) == 0.0, "the other one did it"
    assert work((645401, 0.5)) is None, "it may be this one by another pid"
    assert work((645401, 0.5), utilisation=0.0) == 0.0
    assert work() is None, "somebody worked and no process is told"
    assert work(utilisation=0.0) == 0.0
    assert work((20, Missing("4294967295 %")), utilisation=0.0) == 0.0, "garbage leaves the idle clock alone"
    assert work((20, Missing("4294967295 %"))) is None
    assert work(utilisation=UNKNOWN) is None
    mig = device(*two, work=Missing("n/a: MIG"), utilisation_ratio=Missing("n/a: MIG"))
    assert isinstance(work_of(20, mig), Missing)


def test_work_of_a_holder_is_that_of_its_busiest_process() -> None:
    lists = device(
        DeviceProcess(20, GIB),
        DeviceProcess(21, GIB),
        work=(ProcessWork(20, 0.2), ProcessWork(21, 0.6)),
        utilisation_ratio=0.7,
    )
    assert only(held_by(lists, [facts(20), facts(21, 20)], [kernel(20)])).work_ratio == 0.6


pids = st.integers(20, 24)
times = st.integers(0, 4).map(float)
ids = st.builds(ProcessId, pids, times)
numbers = st.one_of(st.integers(0, 9), st.just(UNKNOWN))
tags = st.sampled_from([KernelTag(SERVER, "/a"), None, KernelTag(SERVER), KernelTag(SERVER, "/b")])
mostly_tagged = st.one_of(st.just(KernelTag(SERVER, "/a")), tags)
any_process = st.builds(
    ProcessFacts,
    ids,
    st.sampled_from([1, *range(20, 25)]),
    st.sampled_from([ME, OTHER_USER, None]),
    st.just(0.0),
    st.one_of(st.just(()), st.tuples(pids, pids)),
    mostly_tagged,
    st.sampled_from([True, False, UNKNOWN]),
)
any_processes = st.lists(any_process, min_size=1, max_size=5, unique_by=lambda p: p.id.pid)


@st.composite
def machines(
    draw: st.DrawFn,
) -> tuple[list[ProcessFacts], list[KernelProcess], list[KernelReport], DeviceReading]:
    """Few pids and times, so that they meet, and kernels that are mostly there."""
    processes = draw(any_processes)
    mostly = st.one_of(st.sampled_from([process.id for process in processes]), ids)
    any_kernel = st.builds(
        KernelProcess,
        st.sampled_from("KLM"),
        st.just("n.ipynb"),
        st.one_of(mostly, mostly, st.none()),
        mostly_tagged,
        st.one_of(st.just(frozenset()), st.frozensets(mostly, max_size=2)),
    )
    kernels = draw(st.lists(any_kernel, min_size=1, max_size=3, unique_by=lambda k: k.id))
    uuids, indices = st.sampled_from(["", "a", "GPU-b"]), st.sampled_from([None, 0, 5])
    any_report = st.builds(KernelReport, mostly, uuids, indices, numbers, numbers, st.booleans(), times)
    lists = st.lists(st.builds(DeviceProcess, pids, numbers), max_size=5, unique_by=lambda p: p.pid).map(
        tuple
    )
    listing = device(used=draw(st.one_of(st.integers(0, 20), st.just(UNKNOWN))))
    listing = replace(listing, processes=draw(st.one_of(lists, lists, st.just(UNKNOWN))))
    return processes, kernels, draw(st.lists(any_report, max_size=3)), listing


def may_own(kernel: KernelProcess, pid: int, processes: list[ProcessFacts]) -> bool:
    """The slow way: is there a process that the driver may mean, of which the kernel is an owner?"""
    by_pid = {process.id.pid: process for process in processes}
    meant = [p for p in processes if p.id.pid == pid or pid in p.namespace_pids[1:]]
    for process in meant:
        line, at = [process], process
        while at.parent_pid in by_pid and by_pid[at.parent_pid].id.started_s <= at.id.started_s:
            at = by_pid[at.parent_pid]
            if at in line:
                break
            line.append(at)
        if any(p.id == kernel.id or p.id in kernel.descendants for p in line):
            return True
        tagged = process.tag is not None and process.tag == kernel.tag and process.tag.session_name
        if tagged and process.uid == ME and kernel.id and kernel.id.started_s <= process.id.started_s:
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(machines())
def test_nothing_is_attributed_to_a_kernel_that_does_not_own_it(
    machine: tuple[list[ProcessFacts], list[KernelProcess], list[KernelReport], DeviceReading],
) -> None:
    processes, kernels, reports, lists = machine
    found = held_by(lists, processes, kernels, reports)
    owners = {(kernel.kernel_id, kernel.id): kernel for kernel in kernels}
    shown: list[int] = []
    for holder in found.holders:
        owner = owners[holder.kernel_id, holder.kernel]
        assert all(may_own(owner, pid, processes) for pid in holder.pids)
        shown += holder.pids
        if not holder.pids:
            assert holder.kernel in {process.id for process in processes}, "only a live kernel reports"
    (rest,) = found.unattributed
    shown += [stranger.pid for stranger in rest.processes]
    listed = [] if isinstance(lists.processes, Missing) else [process.pid for process in lists.processes]
    assert sorted(shown) == sorted(listed), "each process once"
    here = [holder.held_bytes for holder in found.holders if holder.device_uuid == "GPU-a"]
    parts = [part for part in (*here, rest.held_bytes) if not isinstance(part, Missing)]
    assert all(part >= 0 for part in parts)
    if not isinstance(lists.used_bytes, Missing):
        assert sum(parts) <= lists.used_bytes
        if len(parts) == len(here) + 1:
            assert sum(parts) == pytest.approx(lists.used_bytes, abs=len(here) + 1)


@given(any_processes)
def test_descendants_and_lineage_agree(processes: list[ProcessFacts]) -> None:
    tree = ProcessTree(processes)
    for root in processes:
        below = {p.id for p in processes if p is not root and root in list(tree.lineage(p))}
        assert tree.descendants(root.id) == below
        assert not tree.descendants(ProcessId(root.id.pid, 99.0))
