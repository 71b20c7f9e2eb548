"""What Slurm's own commands say about a job and a partition; needs no accounting database."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

#: Seconds within which a busy controller answers, or does not.
PATIENCE_S = 30.0

#: A job in one of these will do nothing any more (squeue's manual, "JOB STATE CODES").
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
#: A job in one of these holds nodes, and its processes run or are being ended.
RUNNING = frozenset({"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT"})
#: States of a node on which no job starts, as the short words of sinfo begin.
_AWAY = ("down", "drain", "drng", "fail", "inval", "maint", "unk")


@dataclass(frozen=True)
class QueueEntry:
    """A job as Slurm sees it: the state, and the reason for it in Slurm's words ("" if there is none)."""

    state: str
    reason: str = ""


class SlurmSilent(Exception):
    """Slurm did not answer; the message is its own."""


def look_up(job_id: str) -> QueueEntry | None:
    """Where a job is; None if Slurm has forgotten it, which it does some time after the job's end.

    Raises:
        SlurmSilent: the controller could not be asked.
    """
    try:
        out = _call("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T|%r")
    except SlurmSilent as error:
        if "Invalid job id" in str(error):
            return None
        raise
    return read_entry(out)


def read_entry(text: str) -> QueueEntry | None:
    """A line of ``squeue --format=%T|%r``."""
    line = text.strip().partition("\n")[0]
    state, _, reason = line.partition("|")
    return QueueEntry(state, "" if reason == "None" else reason) if state else None


def cancel(job_id: str) -> None:
    """Ask Slurm to end a job; does no harm to one that has ended.

    Raises:
        SlurmSilent: the controller could not be asked.
    """
    _call("scancel", job_id)


def cancel_named(name: str) -> None:
    """The same for a job whose number is not known.

    Raises:
        SlurmSilent: the controller could not be asked.
    """
    _call("scancel", f"--name={name}")


def nodes_with_gpus(partition: str) -> list[int]:
    """The GPUs of each node that takes jobs, of a partition, or of all if it is "".

    Raises:
        SlurmSilent: the controller could not be asked.
    """
    chosen = [f"--partition={partition}"] if partition else []
    return read_nodes(_call("sinfo", "--noheader", "--Node", "--format=%N|%t|%G", *chosen))


def read_nodes(text: str) -> list[int]:
    """Lines of ``sinfo --Node --format=%N|%t|%G``; a node has one in each of its partitions."""
    nodes: dict[str, int] = {}
    for line in text.splitlines():
        name, state, gres = (*line.strip().split("|"), "", "")[:3]
        if name and not state.startswith(_AWAY):
            # "gpu:2", "gpu:a100:4(S:0-1)", "gpu:a100:2,gpu:v100:2": the number stands last.
            found = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
            nodes[name] = sum(map(int, found))
    return list(nodes.values())


def complaint(text: str) -> str:
    """What one of Slurm's commands complains about, in one line and without the command's name."""
    lines = [re.sub(r"^(\w+: )?(\w+ )?(error: )", "", line.strip()) for line in text.splitlines()]
    return "; ".join(line for line in lines if line)


def _call(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            start_new_session=True,  # Ctrl-C in a terminal must not end the scancel that answers it
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmSilent(str(error)) from None
    if done.returncode:
        raise SlurmSilent(complaint(done.stderr) or f"{command[0]} ended with {done.returncode}")
    return done.stdout
