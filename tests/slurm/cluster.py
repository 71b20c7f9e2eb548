"""A real Slurm of four nodes on this host, with ports, keys and folders of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
NODES = 4
#: Seconds in which all nodes are idle, or there is no cluster.
START_S = 20.0

#: What Slurm needs to take one host for four nodes with two GPUs each, and to forget nothing too soon.
CONF = """\
ClusterName=gpuprof
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerParameters=sched_interval=1,bf_interval=2
KillWait=5
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 Gres=gpu:2
PartitionName=tests Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=small Nodes=n1 MaxTime=60 State=UP
"""


class NoCluster(Exception):
    """It cannot be had on this machine; the message says why."""


class Cluster:
    """Starts the daemons; `stop` ends them by their pid files.

    Args:
        folder: for everything of theirs; short, since it holds a socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.conf = folder, folder / "slurm.conf"
        self.user = getpass.getuser()
        missing = [name for name in PROGRAMS if program(name) is None]
        if missing:
            raise NoCluster(f"{missing[0]} is not installed (Debian: slurm-wlm, munge)")

    def start(self) -> None:
        """Returns when all nodes are idle."""
        self._write()
        munge = [f"--{what}-file={self.folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        try:
            self._daemon("munged", "--force", f"--socket={self.folder}/munge.socket", *munge)
            self._before_controller()
            self._daemon("slurmctld", "-c", "-f", str(self.conf))
            for node in range(1, NODES + 1):
                self._daemon("slurmd", "-c", "-f", str(self.conf), "-N", f"n{node}")
            self.await_idle(START_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all jobs, then the daemons."""
        try:
            self.end_jobs()
        except NoCluster:  # the daemons are not up
            pass
        pids = [int(path.read_text()) for path in self._pid_files()]
        for pid in pids:
            _signal(pid, signal.SIGTERM)
        until = time.monotonic() + 10.0
        while any(_lives(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in pids:
            _signal(pid, signal.SIGKILL)

    def call(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
        if done.returncode:
            raise NoCluster(f"{command[0]} said {done.stderr.strip()!r}")
        return done.stdout

    def jobs(self) -> list[str]:
        """The jobs that are queued or run, one a line of squeue."""
        return self.call("squeue", "--noheader").splitlines()

    def end_jobs(self) -> None:
        """Cancel all jobs and wait until they are gone."""
        self.call("scancel", f"--user={self.user}")
        until = time.monotonic() + START_S
        while self.jobs() and time.monotonic() < until:
            time.sleep(0.1)

    def await_idle(self, patience_s: float = START_S) -> None:
        """Wait until every node is idle."""
        until, states = time.monotonic() + patience_s, ""
        while time.monotonic() < until:
            try:
                states = self.call("sinfo", "--noheader", "--Node", "--partition=tests", "--format=%T")
            except NoCluster as error:
                states = str(error)
            if states.split() == ["idle"] * NODES:
                return
            time.sleep(0.1)
        raise NoCluster(f"the nodes are not idle after {patience_s:.0f} s: {states.split()}")

    def _before_controller(self) -> None:
        """What the controller needs besides munge."""

    def _write(self) -> None:
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for number in range(2):
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(
            f"NodeName=n[1-{NODES}] Name=gpu File={self.folder}/gpu[0-1]\n"
        )
        first = free_ports(NODES + 1)
        text = CONF.format(
            host=socket.gethostname().partition(".")[0],
            user=self.user,
            folder=self.folder,
            nodes=NODES,
            controller=first + NODES,
            first=first,
            last=first + NODES - 1,
        )
        self.conf.write_text(text)

    def _daemon(self, name: str, *arguments: str) -> None:
        """A program that goes to the background by itself."""
        path = program(name)
        assert path is not None
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
            start_new_session=True,
            env={**os.environ, "SLURM_CONF": str(self.conf)},
        )
        if done.returncode:
            logs = sorted(self.folder.glob(f"{name[:5]}*.log"))
            words = [path.read_text().strip().splitlines()[-1:] for path in logs]
            raise NoCluster(f"{name} does not start here: {words}")

    def _pid_files(self) -> list[Path]:
        """Nodes first, the controller and munge last."""
        names = [*(f"slurmd-n{node}.pid" for node in range(1, NODES + 1)), "slurmctld.pid", "munge.pid"]
        return [self.folder / name for name in names if (self.folder / name).exists()]


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_ports(number: int, lowest: int = 17000) -> int:
    """The first of so many free ports in a row, below those that the system gives away."""
    start = lowest + os.getpid() % 5000
    for first in range(start, start + 2000, number):
        sockets = [socket.socket() for _ in range(number)]
        try:
            for offset, held in enumerate(sockets):
                held.bind(("127.0.0.1", first + offset))
        except OSError:
            continue
        finally:
            for held in sockets:
                held.close()
        return first
    raise NoCluster("no free ports")


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
