"""Ends what a kernel left behind: only processes that were recorded as its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpuprof.probes.ending import end_processes
from jupyter_gpuprof.records.processes import ProcessId


@dataclass(frozen=True)
class Endings:
    """What became of them.

    Args:
        ended: those that ended by our signal.
        stuck: killed, and still there: they wait in the operating system and cannot be ended.
        refused: another user's.
    """

    ended: tuple[ProcessId, ...]
    stuck: tuple[ProcessId, ...]
    refused: tuple[ProcessId, ...]


def end_recorded(ids: Iterable[ProcessId], *, term_s: float = 5.0, kill_s: float = 5.0) -> Endings:
    """End those of the processes that still run; blocks for up to ``term_s + kill_s``.

    Args:
        ids: as they were recorded: a process of the same number that began at another time is left alone.
        term_s: how long they have to end by themselves.
        kill_s: how long to wait for the killed ones.
    """
    result = end_processes(ids, term_s=term_s, kill_s=kill_s)
    by = {
        what: tuple(id for id, became in result.items() if became == what)
        for what in ("ended", "stuck", "not ours")
    }
    return Endings(by["ended"], by["stuck"], by["not ours"])
