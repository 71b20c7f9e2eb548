"""Processes that we start: each job in a process group of its own, ended with all that came of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: Set in the environment of a job; all its descendants inherit it, also those in sessions of their own.
TAG = "JUPYTER_GPUPROF_JOB"
#: Seconds between asking a job to end and ending it.
GRACE_S = 3.0


def start(
    command: Sequence[str], *, tag: str, env: Mapping[str, str], output: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a job without a terminal, its output going to a file.

    Args:
        command: what to run.
        tag: what the job's processes are known by.
        env: added to this process's environment.
        output: where stdout and stderr go.
        stdin: what it reads; by default nothing.

    Raises:
        OSError: it cannot be started.
    """
    with open(output, "ab") as file:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env, TAG: tag},
            start_new_session=True,
        )


def ended(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """Whether the job's first process has ended, waiting a moment for it."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def how_ended(process: subprocess.Popen[bytes]) -> str:
    """How a job's first process ended, in words; "" if it ended well."""
    status = process.returncode
    if status is not None and status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with exit status {status}" if status else ""


def end(process: subprocess.Popen[bytes], tag: str, grace_s: float = GRACE_S, keep: int = 0) -> None:
    """End a job and everything that came of it; returns when all of it is gone (or cannot be ended).

    Its process group is asked first. What is left of it, and what left the group but carries the tag,
    is then killed.

    Args:
        process: the job's first one.
        tag: the job's.
        grace_s: seconds between asking and killing.
        keep: the pid of a process that carries the tag and stays.
    """
    others = [found for found in tagged(tag) if found.pid not in (process.pid, keep)]
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            pass
    _signal_group(process.pid, signal.SIGKILL)
    known = {(found.pid, found.create_time()) for found in others if found.is_running()}
    for found in tagged(tag):
        if found.pid != keep:
            known.add((found.pid, found.create_time()))
    _kill(known)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:  # stuck in the kernel: nothing more can be done
        pass


def tagged(tag: str) -> list[Any]:
    """The living processes of a job, as `psutil.Process`, wherever they went."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TAG) == tag and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def _kill(known: set[tuple[int, float]]) -> None:
    """Kill those processes that are still the ones they were: a pid may have been given to another."""
    import psutil

    killed = []
    for pid, created in known:
        try:
            process = psutil.Process(pid)
            if process.create_time() == created:
                process.kill()
                killed.append(process)
        except (psutil.Error, OSError):
            continue
    psutil.wait_procs(killed, timeout=GRACE_S)
