"""Ends processes for certain: never one that only has the number of another.

On Linux a file descriptor of the process is opened first and its start time read after that, so that the
signal goes to the very process that was looked at, even if its number is given again meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from typing import Literal

from jupyter_gpuprof import clock
from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.records.processes import ProcessId

#: "stuck": it was killed and is still there, waiting in the operating system. "not ours": another user's.
Ended = Literal["ended", "gone", "not ours", "stuck"]


def end_processes(
    ids: Iterable[ProcessId], *, term_s: float = 5.0, kill_s: float = 5.0
) -> dict[ProcessId, Ended]:
    """Ask the processes to end, and kill those that did not after a while.

    Args:
        ids: which; each is signalled alone, never its group.
        term_s: how long they have to end by themselves.
        kill_s: how long to wait for the killed ones.
    """
    result: dict[ProcessId, Ended] = {}
    left: dict[ProcessId, _Victim] = {}
    for id in ids:
        victim = _Victim.open(id)
        if isinstance(victim, str):
            result[id] = victim
        else:
            left[id] = victim
    for number, wait_s in ((signal.SIGTERM, term_s), (_KILL, kill_s)):
        for victim in left.values():
            victim.signal(number)
        until_s = clock.now_s() + wait_s
        for id, victim in list(left.items()):
            if victim.ended(max(until_s - clock.now_s(), 0.0)):
                result[id] = "ended"
                left.pop(id).close()
    for id, victim in left.items():
        result[id] = "stuck"
        victim.close()
    return result


_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_OWN_UID = os.getuid() if hasattr(os, "getuid") else None


class _Victim:
    """A process of ours that is to end."""

    def __init__(self, id: ProcessId, handle: int | None) -> None:
        self._id = id
        self._handle = handle

    @classmethod
    def open(cls, id: ProcessId) -> _Victim | Ended:
        if id.pid <= 1 or id.pid == os.getpid():
            return "not ours"
        handle = None
        if hasattr(os, "pidfd_open"):
            try:
                handle = os.pidfd_open(id.pid)
            except ProcessLookupError:
                return "gone"
            except OSError:  # an old kernel: without a descriptor
                handle = None
        victim = cls(id, handle)
        why_not: Ended | None = None
        if process_id(id.pid) != id:
            why_not = "gone"
        elif _owner(id.pid) != _OWN_UID:
            why_not = "not ours"
        if why_not is not None:
            victim.close()
            return why_not
        return victim

    def signal(self, number: int) -> None:
        try:
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)
            elif process_id(self._id.pid) == self._id:
                os.kill(self._id.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def ended(self, wait_s: float) -> bool:
        """Whether it has ended, as a zombie too, after waiting for at most so long."""
        if self._handle is not None:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            return bool(poll.poll(wait_s * 1000))
        import psutil

        try:
            process = psutil.Process(self._id.pid)
            if process_id(self._id.pid) != self._id or process.status() == psutil.STATUS_ZOMBIE:
                return True
            process.wait(wait_s)
        except psutil.TimeoutExpired:
            return False
        except psutil.Error:
            return True
        return True

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _owner(pid: int) -> int | None:
    """The user of the process; None where the system has no such numbers."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.uids().real if hasattr(process, "uids") else None
    except psutil.Error:
        return -1
