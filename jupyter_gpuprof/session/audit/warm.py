"""One process per audit that has imported what all of its processes need, and is forked for each of them.

Importing torch takes longer than the few steps of a small loop. The warm parent runs nothing of the person's
and touches no device, so that each fork begins as a fresh process does. Forks share what Python draws when
it starts (the hashes of strings, by which sets are ordered): one of the two straight runs is therefore not
forked, and what hangs on such things is not taken for repeatable.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_gpuprof.probes import jobs
from jupyter_gpuprof.session.interrupts import held
from jupyter_gpuprof.session.reruns.job import Job, JobFolder
from jupyter_gpuprof.session.reruns.rerun import PATIENCE_S, boot_command, own_temporary

_CHILD = "jupyter_gpuprof.session.audit.warm_child"
#: In the folder: the names of modules to import.
IMPORTS = "imports.json"
#: What takes long to import, and starts no thread and touches no device when it is; if the kernel has it.
#: The first step of an optimizer imports torch._dynamo.
_SLOW = ("torch._dynamo", "lightning.pytorch", "pytorch_lightning", "transformers.trainer")


class Warm:
    """The warm parent; one process of it at a time.

    Args:
        folder: an empty one, for its files.
        job: any of the audit's, for where modules are found.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, folder: Path, job: Job) -> None:
        files = JobFolder(folder)
        files.write_job(job)
        imports = [name for name in _SLOW if name.partition(".")[0] in sys.modules]
        (folder / IMPORTS).write_text(json.dumps(imports), encoding="utf-8")
        self._tag = secrets.token_hex(8)
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # messages stay whole
        with held(), theirs:
            self._process = jobs.start(
                boot_command(_CHILD, folder),
                tag=self._tag,
                env={},
                output=files.output,
                stdin=theirs.fileno(),
            )
        self._imported = False

    @staticmethod
    def possible(job: Job) -> bool:
        """Whether forks can be relied on: on Linux, with no device whose module acts when imported."""
        return sys.platform == "linux" and not job.device_module

    def ready(self) -> bool:
        """Wait until it has imported all; False if it cannot be forked."""
        if not self._imported:
            with suppress(TimeoutError):
                self._imported = receive(self._ours, PATIENCE_S) == ["ready"]
        return self._imported and self._process.poll() is None

    def start(self, files: JobFolder) -> tuple[Any, str, int]:
        """Fork; see `jupyter_gpuprof.session.reruns.rerun.Start`.

        Raises:
            OSError: the parent is gone.
        """
        request = {"folder": str(files.path), "env": own_temporary(files.path)}
        self._ours.send(json.dumps(request).encode())
        while (words := receive(self._ours, PATIENCE_S)) and words[0] != "forked":
            pass  # the end of one that nobody waited for
        if not words:
            raise OSError("The process that an audit forks has ended.")
        return Fork(int(words[1]), self._ours), self._tag, self._process.pid

    def close(self) -> None:
        """End it, and what it was forked into."""
        with held():
            self._ours.close()
            jobs.end(self._process, self._tag)


def receive(end: socket.socket, timeout_s: float | None) -> list[str]:
    """The words of the next message; none once there are no more.

    Raises:
        TimeoutError: none came in that time.
    """
    if not select.select([end], [], [], timeout_s)[0]:
        raise TimeoutError
    try:
        return end.recv(4096).decode().split()
    except ConnectionError:
        return []


class Fork:
    """A process that the parent was forked into, as far as `subprocess.Popen` is used of it."""

    def __init__(self, pid: int, parent: socket.socket) -> None:
        self.pid, self._parent = pid, parent
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, the negative number of the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: it has not ended.
        """
        if self.returncode is None:
            try:
                words = receive(self._parent, timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired("fork", timeout or 0) from None
            self.returncode = int(words[-1]) if words else 1
        return self.returncode

    def poll(self) -> int | None:
        """Its exit status, None before its end."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None
