"""What a policy asks for that Slurm cannot do, or does in another way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.reading import Missing

#: The partitions for loans: those that are taken back, and those that never are.
BORROW, KEEP = "borrow", "borrow-keep"
#: slurmctld looks so often whether a grace time is over (measured with 22.05: requeued on the half minute).
LOOK_S = 30


def slurm_notes(policy: FleetPolicy, renamed: Sequence[str]) -> tuple[str, ...]:
    """One sentence each, the most important first.

    Args:
        policy: how the pool is shared.
        renamed: names that Slurm does not take, with what they became.
    """
    reclaim = policy.reclaim
    priorities = {0, *(kind.priority for _, kind in policy.classes)}
    lent = any(team.borrow != 0 for _, team in policy.teams) or not policy.teams
    notes = [
        f"a job is submitted with --partition=TEAM,{BORROW} (a default: SBATCH_PARTITION in the team's"
        " environment); with TEAM alone it never borrows",
        "a job that began as a loan stays one until it ends, even when its team is back under its guarantee",
        "a job that was stopped goes to the end of the line of its class, and starts again after cred_expire"
        " (AuthInfo, 120 s unless set) at the earliest; in the replay it keeps its place",
    ]
    if reclaim.teardown_s < LOOK_S + 1:
        notes.append(
            f"slurmctld looks every {LOOK_S} s whether a grace time is over, so a job may hold its GPUs for"
            f" {LOOK_S + 1 - reclaim.teardown_s:g} s longer than T_claim says (teardown: {LOOK_S + 1}s would"
            " include that), unless it saves and requeues itself: sbatch --signal=B:USR2@1, and in the script"
            " trap 'save; scontrol requeue $SLURM_JOB_ID' USR2"
        )
    if renamed:
        notes.append(f"names were changed to what Slurm takes: {', '.join(renamed)}")
    if len(priorities) > 1:
        notes.append(
            "a higher class goes first, but stops no lower one of its own team; and of loans the newest is"
            " stopped, whatever its class"
        )
    loose = [name for name, kind in policy.classes if not kind.preemptible]
    if loose:
        notes.append(f"jobs of {', '.join(loose)} never give way: T_claim does not hold for what they borrow")
    notes += _lines(policy, lent)
    if reclaim.cycle_s < 1:
        notes.append("Slurm's shortest cycle is 1 s, so T_claim is up to 1 s longer than stated")
    if not policy.gang:
        notes.append("Slurm always gives a job all its GPUs at once; gang: false has no counterpart")
    if policy.spot.gpus:
        notes.append(
            f"the {policy.spot.gpus} spot GPUs are not written: give their machines a partition of tier 1"
            " without a QOS, and leave them out of Nodes= of the others"
        )
    if any(not isinstance(team.p90_s, Missing) for _, team in policy.teams):
        notes.append("Slurm keeps no limit on waits (p90); fleet report measures them")
    return tuple(notes)


def _lines(policy: FleetPolicy, lent: bool) -> list[str]:
    found = []
    if policy.line == "fifo":
        found.append(
            "with sched/builtin a loan that waits for its team's limit blocks the loans of all teams, not"
            " only those of its own"
        )
    if policy.line == "backfill":
        found.append(
            "jobs without a time limit take the partition's (DefaultTime, MaxTime); without one, nothing can"
            " be backfilled"
        )
        if lent:
            found.append(
                "a date is kept for the first of each partition, that is of each team and of all loans"
            )
    if math.isfinite(policy.aging_s):
        found.append("Slurm computes ages once a minute, and waiting counts for a year at most")
    return found
