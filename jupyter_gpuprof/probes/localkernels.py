"""This user's kernels on this machine, found without their servers."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from jupyter_gpuprof.records.processes import ProcessFacts, ProcessId

_CONNECTION_FILE = re.compile(r"kernel-([^/\\]+)\.json$")


class LocalKernel(NamedTuple):
    """A kernel by its process; `session_name` is the notebook, "" where its server named none."""

    kernel_id: str
    id: ProcessId
    session_name: str


def local_kernels(processes: tuple[ProcessFacts, ...]) -> tuple[LocalKernel, ...]:
    """The kernels among the processes: those with a server's tag that were started with a connection file.

    Children made by a fork have the command line of their kernel: the one that began first is it.

    Args:
        processes: from a `ProcessTable`, which finds those with a tag.
    """
    own_uid = os.getuid() if hasattr(os, "getuid") else None
    found: dict[str, LocalKernel] = {}
    for process in sorted(processes, key=lambda process: process.id.started_s):
        if process.tag is None or process.uid != own_uid:
            continue
        kernel_id = _kernel_id(process.id.pid)
        if kernel_id and kernel_id not in found:
            found[kernel_id] = LocalKernel(kernel_id, process.id, process.tag.session_name)
    return tuple(found.values())


def _kernel_id(pid: int) -> str:
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ""
    matches = (_CONNECTION_FILE.search(word) for word in words)
    return next((match.group(1) for match in matches if match), "")
