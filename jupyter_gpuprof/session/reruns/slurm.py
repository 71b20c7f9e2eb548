"""The ranks of a job on a Slurm cluster: sbatch starts them, files in a shared folder bring them back.

submitit writes the batch script, calls sbatch and reads the job's number. Its own wrapper around a
task is not used: it ignores SIGTERM (a cancelled job would stay for Slurm's KillWait), puts a job back into
the queue when its time is nearly over, and imports numpy before a rank has chosen its device. Its watcher
is not used either: it asks sacct, and many clusters keep no accounting.
"""

from __future__ import annotations

import io
import os
import secrets
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError, RerunError, UsageError
from jupyter_gpuprof.probes import slurmqueue
from jupyter_gpuprof.session.reruns.launch import RANK_PROGRAM, Status
from jupyter_gpuprof.session.reruns.layout import spread

MINUTES = 10
MOMENT_S = 0.2
#: squeue is asked after so long, and more seldom the older a job is: all users share the controller.
FIRST_ASK_S, LAST_ASK_S, ASK_GROWTH = 1.0, 15.0, 0.1
#: How long files of ranks that ended well, and of others, may be late on a network file system.
LATE_S, LATE_AFTER_FAILURE_S = 10.0, 2.0
#: How long a cancelled job may take to be gone: Slurm's KillWait is 30 s unless the cluster says otherwise.
GONE_S = 60.0

#: Started by srun once for each rank. The environment is what torch's own launcher would set. A rank that has
#: left its round is done, however its process ends: torch at times aborts while it is unloaded.
TASK_SCRIPT = """\
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID GROUP_RANK=$SLURM_NODEID
export LOCAL_WORLD_SIZE=${{SLURM_STEP_TASKS_PER_NODE%%[(,]*}}
export TORCHELASTIC_RUN_ID=gpuprof-$SLURM_JOB_ID
export OMP_NUM_THREADS=${{SLURM_CPUS_PER_TASK:-1}} PYTHONUNBUFFERED=1
export JUPYTER_GPUPROF_DATABASE={ledger}
{python} {program} {folder}
status=$?
[ -e {folder}/round-$RANK.json ] && exit 0
exit $status
"""

#: The first free port of this node from one that jobs seldom share, below those that the system gives away.
PORT_PROGRAM = """\
import socket, sys
first = 20000 + int(sys.argv[1]) % 10000
for port in range(first, first + 1000):
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            continue
    print(port)
    break
"""

_WORDS = {
    "BOOT_FAIL": "a node did not start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "not all ranks left their files",
    "FAILED": "a rank's process failed",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "a node's memory was used up",
    "PREEMPTED": "a job of higher priority took its place",
    "TIMEOUT": "its time limit in Slurm was over",
}


@dataclass(frozen=True)
class SlurmOptions:
    """What a person may choose.

    Args:
        partition: where to run; "" leaves it to the cluster.
        account: who pays; "" leaves it to the cluster.
        gpus_per_node: ranks on each node, each with a GPU; None runs one rank a node, without GPUs.
        minutes: that each job may run; None takes ten.
        shared_folder: a folder that the nodes see under the same name; None takes the current one.
        extra: further options of sbatch, as ``--mem=16G``.
    """

    partition: str = ""
    account: str = ""
    gpus_per_node: int | None = None
    minutes: int | None = None
    shared_folder: Path | None = None
    extra: tuple[str, ...] = ()


@dataclass
class _Submitted:
    """A job that Slurm has taken.

    Args:
        job_id: Slurm's number of it.
        folder: of the job's files.
        count: of ranks.
        submitted_s: when it was given to Slurm, by our clock.
        asked_s: when Slurm was last asked.
        entry: its last answer.
        waited_s: seconds in the queue, as far as we saw.
        ended_s: when we heard of its end.
        silent: why Slurm last gave no answer; "" if it gave one.
    """

    job_id: str
    folder: Path
    count: int
    submitted_s: float
    asked_s: float
    entry: slurmqueue.QueueEntry = field(default_factory=lambda: slurmqueue.QueueEntry("PENDING"))
    waited_s: float = 0.0
    ended_s: float | None = None
    silent: str = ""

    def rounds(self) -> int:
        """The ranks that have left their files; listing the folder makes NFS look again."""
        try:
            return sum(name.startswith("round-") for name in os.listdir(self.folder))
        except OSError:
            return 0


class Slurm:
    """A partition of a Slurm cluster.

    Args:
        options: what to ask of it.

    Raises:
        UsageError: submitit or Slurm's commands are not here.
        OptionError: an option makes no sense.
    """

    name = "slurm"

    def __init__(self, options: SlurmOptions) -> None:
        _check(options)
        self.options = options
        #: Where the folder of a measurement belongs; whoever makes one there removes it.
        self.shared_folder = (options.shared_folder or Path.cwd()).absolute()

    def most(self) -> int | None:
        """The ranks for which the partition has nodes that take jobs."""
        try:
            nodes = slurmqueue.nodes_with_gpus(self.options.partition)
        except slurmqueue.SlurmSilent:
            return None
        wanted = self.options.gpus_per_node
        return sum(gpus >= wanted for gpus in nodes) * wanted if wanted else len(nodes)

    def submit(self, folder: Path, count: int) -> Any:
        """Put a job of `count` ranks into the queue.

        Raises:
            RerunError: Slurm refused it.
        """
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        name = f"gpuprof-{secrets.token_hex(4)}"
        task = _write_programs(folder)
        executor = SlurmExecutor(folder, python=f"/bin/sh {shlex.quote(str(task))}")
        executor.update_parameters(**self._parameters(folder, count, name))
        try:
            with _outside_of_a_job(), redirect_stderr(io.StringIO()):  # submitit prints what it raises
                job = executor.submit(int)  # a function is asked for; nobody runs it
        except (FailedJobError, FailedSubmissionError) as error:
            raise RerunError(
                f"Slurm refused the job: {slurmqueue.complaint(str(error))}.",
                "Look at the partition, the account, the GPUs per node and the time.",
            ) from None
        except BaseException:  # interrupted: it may be in the queue, and we do not know its number
            slurmqueue.cancel_named(name)
            raise
        now_s = clock.now_s()
        return _Submitted(job.job_id, folder, count, now_s, now_s)

    def status(self, handle: Any) -> Status:
        """Where it is; Slurm is asked less often than we are."""
        time.sleep(MOMENT_S)
        submitted: _Submitted = handle
        now_s = clock.now_s()
        all_there = submitted.rounds() >= submitted.count
        if submitted.ended_s is None:
            age_s = now_s - submitted.submitted_s
            pause_s = FIRST_ASK_S if all_there else min(LAST_ASK_S, FIRST_ASK_S + ASK_GROWTH * age_s)
            if now_s - submitted.asked_s >= pause_s:
                _ask(submitted, now_s)
        if submitted.ended_s is None:
            return _alive(submitted, now_s)
        late_s = LATE_S if submitted.entry.state == "COMPLETED" else LATE_AFTER_FAILURE_S
        if not all_there and now_s - submitted.ended_s < late_s:
            return Status("running", "waiting for the files of the ranks")
        return Status("ended", _why(submitted))

    def cancel(self, handle: Any) -> None:
        """End what is left of it; returns when Slurm has nothing of it any more."""
        submitted: _Submitted = handle
        why, until_s = "", clock.now_s() + GONE_S
        asked = False
        while submitted.ended_s is None and clock.now_s() < until_s:
            try:
                if not asked:
                    slurmqueue.cancel(submitted.job_id)
                    asked = True
                    time.sleep(MOMENT_S)
                _ask(submitted, clock.now_s())
                why = submitted.silent or submitted.entry.state
            except slurmqueue.SlurmSilent as error:
                why = str(error)
            if submitted.ended_s is None:
                time.sleep(FIRST_ASK_S)
        if submitted.ended_s is None:
            warnings.warn(
                f"Slurm job {submitted.job_id} is not gone yet ({why}); "
                f"if squeue still shows it, end it with: scancel {submitted.job_id}",
                stacklevel=2,
            )

    def _parameters(self, folder: Path, count: int, name: str) -> dict[str, Any]:
        """Of submitit; each is an option of sbatch, unless said otherwise."""
        options = self.options
        nodes, each = spread(count, options.gpus_per_node or 1)
        output = str(folder / "output.txt")
        more: dict[str, Any] = {
            "ntasks": count,
            "output": output,
            "no-requeue": True,
            # submitit would send SIGUSR2 before the end, and a rank would die of it; SIGCONT does nothing.
            "signal": "CONT@1",
        }
        if options.gpus_per_node:
            more["gres"] = f"gpu:{each}"
        for text in options.extra:
            key, given, value = text.removeprefix("--").partition("=")
            more[key] = value if given else True
        port = shlex.join([sys.executable, str(folder / "port.py")])
        return {
            "job_name": name,
            "time": MINUTES if options.minutes is None else options.minutes,
            "nodes": nodes,
            "ntasks_per_node": each,
            "partition": options.partition or None,
            "account": options.account or None,
            "wckey": None,
            "stderr_to_stdout": True,
            "additional_parameters": more,
            # Of srun. One rank's death ends the others, and no MPI is needed.
            "srun_args": ["--output", output, "--export=ALL", "--kill-on-bad-exit=1", "--mpi=none"]
            + (["--gpu-bind=none"] if options.gpus_per_node else []),
            # The batch script runs on the first node, and so does rank 0.
            "setup": [
                "export MASTER_ADDR=$(hostname)",
                f"export MASTER_PORT=$({port} $SLURM_JOB_ID)",
                # srun does not take this from sbatch by itself since Slurm 22.05.
                "[ -z $SLURM_CPUS_PER_TASK ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
            ],
        }


def _check(options: SlurmOptions) -> None:
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise UsageError(
            "--on slurm needs submitit.", 'Install it with: pip install "jupyter-gpuprof[slurm]"'
        ) from None
    for command in ("sbatch", "srun", "squeue", "scancel"):
        if shutil.which(command) is None:
            raise UsageError(
                f"Slurm's {command} is not on this machine.", "Start the kernel on a node of the cluster."
            )
    if any(number is not None and number < 1 for number in (options.minutes, options.gpus_per_node)):
        raise OptionError("Minutes and GPUs per node are whole numbers from 1 on.")
    strange = [text for text in options.extra if not text.startswith("--") or len(text) < 3]
    if strange:
        raise OptionError(f"{strange[0]!r} is no option of sbatch.", "Write it as in --mem=16G.")
    if options.shared_folder is not None and not options.shared_folder.is_dir():
        raise OptionError(
            f"{options.shared_folder} is no folder.", "Name one that the nodes see under the same name."
        )


def _write_programs(folder: Path) -> Path:
    """What the nodes run; the path of the first of it."""
    program, task = folder / "rank.py", folder / "task.sh"
    program.write_text(RANK_PROGRAM, encoding="utf-8")
    (folder / "port.py").write_text(PORT_PROGRAM, encoding="utf-8")
    quoted = {
        "python": sys.executable,
        "program": program,
        "folder": folder,
        "ledger": folder / "ledger.db",  # where the ranks meet
    }
    task.write_text(
        TASK_SCRIPT.format(**{key: shlex.quote(str(value)) for key, value in quoted.items()}),
        encoding="utf-8",
    )
    return task


@contextmanager
def _outside_of_a_job() -> Iterator[None]:
    """A kernel that is itself a Slurm job must not hand its own job's settings on to the new one."""
    from submitit.helpers import clean_env

    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    conf = os.environ.get("SLURM_CONF")
    with clean_env():
        if conf is not None:
            os.environ["SLURM_CONF"] = conf
        yield


def _ask(submitted: _Submitted, now_s: float) -> None:
    """Ask Slurm, and keep what it says; a controller that is silent for a while changes nothing."""
    submitted.asked_s = now_s
    try:
        entry = slurmqueue.look_up(submitted.job_id)
    except slurmqueue.SlurmSilent as error:
        submitted.silent = str(error)
        return
    submitted.silent = ""
    if entry is None:  # forgotten: it has ended, some time ago
        entry = slurmqueue.QueueEntry("COMPLETED" if submitted.rounds() >= submitted.count else "gone")
    if entry.state in slurmqueue.RUNNING and submitted.entry.state not in slurmqueue.RUNNING:
        submitted.waited_s = now_s - submitted.submitted_s
    submitted.entry = entry
    if entry.state in slurmqueue.ENDED or entry.state == "gone":
        submitted.ended_s = now_s


def _alive(submitted: _Submitted, now_s: float) -> Status:
    entry = submitted.entry
    silent = f", and Slurm does not answer: {submitted.silent}" if submitted.silent else ""
    if entry.state in slurmqueue.RUNNING:
        return Status("running", f"running after {submitted.waited_s:.0f} s in the queue{silent}")
    reason = f" ({entry.reason})" if entry.reason else ""
    return Status("queued", f"queued {now_s - submitted.submitted_s:.0f} s{reason}{silent}")


def _why(submitted: _Submitted) -> str:
    """Why ranks are missing, "" if none is."""
    state = submitted.entry.state
    if submitted.rounds() >= submitted.count:
        return ""
    words = _WORDS.get(state, "it is not in Slurm's list any more" if state == "gone" else "it ended")
    words += f" ({state})" if state != "gone" else ""
    try:
        lines = (submitted.folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        if state == "FAILED":
            words += f", and nothing came back: do the nodes see {submitted.folder.parent}?"
        return words
    if state == "FAILED":
        own = [
            line.strip() for line in lines if line.strip() and not line.startswith(("srun:", "slurmstepd"))
        ]
        words += f": {own[-1]}" if own else ""
    return words
