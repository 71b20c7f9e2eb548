"""Only the very process that was meant is ended, by asking first and by force after that."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from jupyter_gpuprof.probes import ending
from jupyter_gpuprof.probes.ending import end_processes
from jupyter_gpuprof.probes.processes import process_id
from jupyter_gpuprof.records.processes import ProcessId

NAP = "import sys, time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + NAP


@pytest.fixture
def start():
    started = []

    def begin(code: str) -> tuple[subprocess.Popen, ProcessId]:
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        started.append(child)
        child.stdout.readline()
        id = process_id(child.pid)
        assert id is not None
        return child, id

    yield begin
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_process_is_asked_to_end(start):
    child, id = start(NAP)
    assert end_processes([id]) == {id: "ended"}
    assert child.wait() == -signal.SIGTERM


def test_one_that_does_not_listen_is_killed(start):
    (stubborn, first), (_, second) = start(STUBBORN), start(NAP)
    begun = time.monotonic()
    assert end_processes([first, second], term_s=0.5) == {first: "ended", second: "ended"}
    assert time.monotonic() - begun < 3
    assert stubborn.wait() == -signal.SIGKILL


def test_another_process_of_the_same_number_is_left_alone(start):
    child, id = start(NAP)
    other = replace(id, started_s=id.started_s - 5)
    assert end_processes([other]) == {other: "gone"}
    assert child.poll() is None


def test_what_is_gone_is_gone(start):
    child, id = start("print()")
    child.wait()
    assert end_processes([id]) == {id: "gone"}


def test_neither_we_nor_the_first_process_are_ended():
    me = process_id()
    assert me is not None
    first = ProcessId(1, 0.0)
    assert end_processes([me, first]) == {me: "not ours", first: "not ours"}


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system has no such descriptors")
def test_without_descriptors_it_works_too(start, monkeypatch):
    child, id = start(NAP)

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    assert end_processes([id]) == {id: "ended"}
    child.wait()
    assert end_processes([id]) == {id: "gone"}


def test_another_users_process_is_left_alone(start, monkeypatch):
    child, id = start(NAP)
    monkeypatch.setattr(ending, "_OWN_UID", 4711)
    assert end_processes([id]) == {id: "not ours"}
    assert child.poll() is None
