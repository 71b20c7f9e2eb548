"""Facts of processes: who started whom and when, whose they are, what they use.

On Linux they come from /proc, in a tenth of the time that psutil takes for them; elsewhere from psutil.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from typing import NamedTuple

from jupyter_gpuprof.records.processes import KernelTag, ProcessFacts, ProcessId
from jupyter_gpuprof.records.reading import Missing

#: How the files begin through which a device is used: NVIDIA, AMD and Intel, the Windows subsystem.
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD", "/dev/dxg")
#: Strangers are looked at again every so many looks; new processes at once.
_STRANGERS_EVERY = 16
_NOT_ASKED = Missing("not looked up")
_NO_FILES = Missing("this machine has no device files")
_NOT_ALLOWED = Missing("the open files of the process may not be read")
_ON_LINUX = sys.platform.startswith("linux")


class _Stat(NamedTuple):
    """What changes; the rest of a process's facts is read once."""

    id: ProcessId
    parent_pid: int
    cpu_s: float


class _Fixed(NamedTuple):
    uid: int | None
    namespace_pids: tuple[int, ...]
    tag: KernelTag | None


def process_id(pid: int | None = None) -> ProcessId | None:
    """A process for certain (this one by default); None where there is none of that pid."""
    stat = _stat(os.getpid() if pid is None else pid)
    return None if stat is None else stat.id


class ProcessTable:
    """Looks at processes again and again, and remembers what does not change.

    Args:
        device_files: how the names of files begin through which devices are used.
    """

    def __init__(self, device_files: tuple[str, ...] = DEVICE_FILES) -> None:
        self._device_files = device_files
        self._has_device_files = False
        self._fixed: dict[ProcessId, _Fixed] = {}
        self._with_device: set[ProcessId] = set()
        self._strangers: set[int] = set()
        self._roots: frozenset[int] = frozenset()
        self._looks = 0

    def look(self, roots: Iterable[int], asked: Iterable[int] = ()) -> tuple[ProcessFacts, ...]:
        """The processes that matter, by pid; what ends meanwhile is left out.

        Args:
            roots: the server and the kernels; all that descends from them is in the answer, and so are
                this user's processes with a kernel's tag.
            asked: pids that the driver lists; they come with their ancestors and their open device files.
        """
        here, asked = frozenset(roots), frozenset(asked)
        if here != self._roots or self._looks % _STRANGERS_EVERY == 0:
            self._strangers.clear()
            self._has_device_files = _exist(self._device_files)
        self._roots, self._looks = here, self._looks + 1
        pids = _pids()
        stats = {stat.id.pid: stat for pid in pids if pid not in self._strangers and (stat := _stat(pid))}
        fixed = {stat.id: self._fixed.get(stat.id) or _read_fixed(stat.id.pid) for stat in stats.values()}
        wanted = _descendants(here, stats.values())
        wanted |= {id.pid for id, known in fixed.items() if known.tag is not None}
        self._strangers = (self._strangers & set(pids)) | (stats.keys() - wanted)
        for pid in asked:
            while pid not in wanted and (stat := stats.get(pid) or _stat(pid)) is not None:
                wanted.add(pid)
                stats[pid] = stat
                fixed[stat.id] = self._fixed.get(stat.id) or _read_fixed(pid)
                pid = stat.parent_pid
        self._fixed = {stats[pid].id: fixed[stats[pid].id] for pid in wanted if pid in stats}
        self._with_device &= self._fixed.keys()
        return tuple(self._facts(stats[pid], pid in asked) for pid in sorted(wanted & stats.keys()))

    def _facts(self, stat: _Stat, asked: bool) -> ProcessFacts:
        fixed = self._fixed[stat.id]
        return ProcessFacts(
            stat.id,
            stat.parent_pid,
            fixed.uid,
            stat.cpu_s,
            fixed.namespace_pids,
            fixed.tag,
            self._has_device_open(stat.id) if asked else _NOT_ASKED,
        )

    def _has_device_open(self, id: ProcessId) -> bool | Missing:
        """Once it had one it keeps the name of it: what is asked is whether the pid can be the driver's."""
        if not self._has_device_files:
            return _NO_FILES
        if id not in self._with_device:
            answer = _opens(id.pid, self._device_files)
            if answer is not True:
                return answer
            self._with_device.add(id)
        return True


def _descendants(roots: Collection[int], stats: Collection[_Stat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent_pid, []).append(stat.id.pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, ())
    return found


def _pids() -> list[int]:
    if _ON_LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return list(psutil.pids())


def _stat(pid: int) -> _Stat | None:
    if not _ON_LINUX:
        return _stat_elsewhere(pid)
    raw = _file(pid, "stat")
    if not raw:
        return None
    fields = raw.rpartition(b")")[2].split()  # the name before may hold anything; fields from the third on
    ticks = os.sysconf("SC_CLK_TCK")
    parent, cpu, began = int(fields[1]), sum(map(int, fields[11:15])), int(fields[19])
    return _Stat(ProcessId(pid, began / ticks), parent, cpu / ticks)


def _stat_elsewhere(pid: int) -> _Stat | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return _Stat(
                ProcessId(pid, process.create_time()), process.ppid(), float(sum(process.cpu_times()[:4]))
            )
    except psutil.Error:
        return None


def _read_fixed(pid: int) -> _Fixed:
    if not _ON_LINUX:
        return _fixed_elsewhere(pid)
    uid: int | None = None
    namespace_pids: tuple[int, ...] = (pid,)
    for line in (_file(pid, "status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            uid = int(line.split()[1])
        elif line.startswith(b"NSpid:"):
            namespace_pids = tuple(map(int, line.split()[1:]))
    environment = _file(pid, "environ") if uid == os.getuid() else None
    return _Fixed(uid, namespace_pids, _tag(_variables(environment or b"")))


def _fixed_elsewhere(pid: int) -> _Fixed:
    import psutil

    try:
        process = psutil.Process(pid)
        uid = process.uids().real if hasattr(process, "uids") else None
        mine = uid is None or uid == os.getuid()
        return _Fixed(uid, (pid,), _tag(process.environ()) if mine else None)
    except (psutil.Error, OSError):
        return _Fixed(None, (pid,), None)


def _variables(environment: bytes) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0") if entry.startswith(b"JPY_"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _tag(environment: dict[str, str]) -> KernelTag | None:
    server = environment.get("JPY_PARENT_PID", "")
    return KernelTag(int(server), environment.get("JPY_SESSION_NAME", "")) if server.isdigit() else None


def _exist(prefixes: tuple[str, ...]) -> bool:
    """Whether any file begins with one of them."""
    for folder in {os.path.dirname(prefix) for prefix in prefixes}:
        try:
            if any(f"{folder}/{name}".startswith(prefixes) for name in os.listdir(folder)):
                return True
        except OSError:
            continue
    return False


def _opens(pid: int, prefixes: tuple[str, ...]) -> bool | Missing:
    """Whether a process has a file open whose name begins with one of them."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return _NOT_ALLOWED
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(prefixes):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def _file(pid: int, name: str) -> bytes | None:
    """A file of /proc as a whole; None when the process is gone or somebody else's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None
