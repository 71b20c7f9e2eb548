"""The cluster with slurmdbd and a database of its own, and an emitted policy in force."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from jupyter_gpuprof.planning.slurmpolicy import CONF, PARTITIONS, SCRIPT
from jupyter_gpuprof.records.emission import Emission
from tests.slurm.cluster import Cluster, NoCluster, free_ports, program

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr")
#: Lines of the cluster's own configuration that the emission replaces.
_REPLACED = (
    "AccountingStorageType",
    "SchedulerParameters",
    "KillWait",
    "SelectType=",
    "GresTypes",
    "AuthInfo",
)
#: In which a job that was stopped may not start again; Slurm's default of two minutes is long for a test, and
#: one below 6 is not taken.
CRED_EXPIRE_S = 6

_SLURMDBD = """\
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
AuthInfo=socket={folder}/munge.socket
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""


class AccountedCluster(Cluster):
    """Runs under an emission: its script has been run, and its fragment is included.

    Args:
        folder: for everything of theirs.
        emission: for Slurm.
        accounts: to which the user of the tests belongs.
    """

    def __init__(self, folder: Path, emission: Emission, accounts: tuple[str, ...]) -> None:
        super().__init__(folder)
        missing = [name for name in PROGRAMS if program(name) is None]
        if missing:
            raise NoCluster(f"{missing[0]} is not installed (Debian: slurmdbd, mariadb-server)")
        self.emission, self.accounts = emission, accounts

    def start(self) -> None:
        """As a person would do it: the settings, then the script, then the partitions."""
        super().start()
        try:
            self.run_script()
            self.call("sacctmgr", "-i", "add", "user", self.user, f"account={','.join(self.accounts)}")
            with self.conf.open("a") as file:
                file.write(f"include {self.folder}/{PARTITIONS}\n")
            self._restart()
            self.await_idle()
        except BaseException:
            self.stop()
            raise

    def use(self, emission: Emission) -> None:
        """Another emission for the same teams: a new start of the controller."""
        self._write_files(emission)
        self._restart()

    def _restart(self) -> None:
        pid = int((self.folder / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 20.0
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < until, "slurmctld does not end"
            time.sleep(0.05)
        self._daemon("slurmctld", "-f", str(self.conf))
        self._await("scontrol", "ping")

    def run_script(self) -> str:
        """Run the emitted script; what it prints."""
        return self.call("sh", str(self.folder / SCRIPT))

    def _write(self) -> None:
        super()._write()
        kept = [line for line in self.conf.read_text().splitlines() if not line.startswith(_REPLACED)]
        self._port = free_ports(2, lowest=24100)
        kept += [
            f"AuthInfo=socket={self.folder}/munge.socket,cred_expire={CRED_EXPIRE_S}",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self._port}",
            f"AccountingStoragePass={self.folder}/munge.socket",
        ]
        self._write_files(self.emission)
        self.conf.write_text("\n".join([*kept, f"include {self.folder}/{CONF}"]) + "\n")

    def _write_files(self, emission: Emission) -> None:
        for file in emission.files:
            (self.folder / file.name).write_text(file.text)

    def _before_controller(self) -> None:
        data, socket = self.folder / "database", self.folder / "mariadb.socket"
        install, server = program("mariadb-install-db"), program("mariadbd")
        assert install is not None
        assert server is not None
        user = f"--user={self.user}"
        made = subprocess.run(
            [install, "--no-defaults", f"--datadir={data}", user, "--auth-root-authentication-method=normal"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if made.returncode:
            raise NoCluster(f"no database can be made: {made.stderr.strip()[-200:]}")
        # By a shell: the database does not go to the background by itself.
        self._daemon(
            *("sh", "-c", '"$0" "$@" &', server, "--no-defaults", user, f"--datadir={data}"),
            *(f"--socket={socket}", f"--port={self._port + 1}", "--bind-address=127.0.0.1"),
            *(f"--pid-file={self.folder}/mariadb.pid", f"--log-error={self.folder}/mariadb.log"),
            *("--skip-log-bin", "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"),
            *("--innodb-flush-method=nosync", "--skip-innodb-doublewrite"),
        )
        until = time.monotonic() + 20.0
        while not socket.exists():
            if time.monotonic() > until:
                raise NoCluster("the database does not start here")
            time.sleep(0.05)
        conf = self.folder / "slurmdbd.conf"  # found beside slurm.conf
        host = self.conf.read_text().partition("SlurmctldHost=")[2].partition("(")[0]
        conf.write_text(
            _SLURMDBD.format(
                host=host, port=self._port, user=self.user, folder=self.folder, database=self._port + 1
            )
        )
        conf.chmod(0o600)
        self._daemon("slurmdbd")
        self._await("sacctmgr", "-n", "show", "cluster")

    def _await(self, *command: str) -> None:
        """Wait until a command is answered."""
        until = time.monotonic() + 20.0
        while True:
            try:
                self.call(*command)
                return
            except NoCluster:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _pid_files(self) -> list[Path]:
        mine = (self.folder / f"{name}.pid" for name in ("slurmdbd", "mariadb"))
        return [*super()._pid_files(), *(path for path in mine if path.exists())]
