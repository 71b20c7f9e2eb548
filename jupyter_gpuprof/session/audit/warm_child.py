"""The warm parent itself: imports, then forks for each request; see `jupyter_gpuprof.session.audit.warm`."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from jupyter_gpuprof.probes import machine, trail  # noqa: F401  (what a fork needs is imported here)
from jupyter_gpuprof.session.audit import child
from jupyter_gpuprof.session.audit.warm import IMPORTS


def main(folder: str) -> None:
    """Answer requests until the other end is closed: the pid of a fork, and how it ended."""
    _import(json.loads(Path(folder, IMPORTS).read_text(encoding="utf-8")))
    end = socket.socket(fileno=os.dup(0))
    if threading.active_count() > 1 or machine.awake_accelerator() is not None:
        return  # a fork would be without its threads, or could not use the device
    end.send(b"ready")
    while message := end.recv(1 << 16):
        request = json.loads(message)
        pid = os.fork()
        if not pid:
            _become(request["folder"], request["env"], end)
        with suppress(OSError):  # it has done so itself, or is gone
            os.setpgid(pid, pid)
        end.send(b"forked %d" % pid)
        end.send(b"ended %d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _import(names: list[str]) -> None:
    """Import modules; whether there is a CUDA device is asked of NVML meanwhile, which makes no context."""
    key = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(key)
    os.environ[key] = "1"
    machine.import_torch()
    for name in names:
        with suppress(Exception):  # the cell will say so, if it needs it
            importlib.import_module(name)
    if before is None:
        del os.environ[key]
    else:
        os.environ[key] = before


def _become(folder: str, env: dict[str, str], end: socket.socket) -> None:
    """Be the process of that job, as if it had been started."""
    os.setpgid(0, 0)
    end.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(os.path.join(folder, "output.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ.update(env)
    tempfile.tempdir = None
    status = 1
    try:
        child.main(folder)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
