"""A policy in Slurm's words: two fragments for slurm.conf, and a script for sacctmgr.

Each team with a guarantee has a partition of a higher tier, whose own QOS caps it at the guarantee, and all
share one partition for loans. A job names both (``--partition=vision,borrow``): Slurm tries the higher tier
first, takes loans back for it after their grace time, and lends where the guarantee is used up. With
``preempt/qos`` instead, a person would have to say at submission whether the job claims or borrows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.claimtime import claim_parts
from jupyter_gpuprof.planning.slurmnotes import BORROW, KEEP, LOOK_S, slurm_notes
from jupyter_gpuprof.planning.slurmpriority import RESERVE, Weights, weights_of
from jupyter_gpuprof.records.emission import Emission, EmittedFile
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, Line, Team

CONF, SCRIPT, PARTITIONS = "gpuprof-slurm.conf", "gpuprof-sacctmgr.sh", "gpuprof-partitions.conf"
#: Names that Slurm or this emission gives another meaning.
_TAKEN = frozenset({"all", "default", "root", "normal", BORROW, KEEP})

#: For each line: the scheduler, what makes it keep that order, and why.
_LINES: dict[Line, tuple[str, str, str]] = {
    "fifo": ("sched/builtin", "assoc_limit_stop", "Who comes next blocks those behind it."),
    "skip": (
        "sched/backfill",
        f"bf_min_prio_reserve={RESERVE}",
        "Whoever fits goes; only claims keep free GPUs for themselves.",
    ),
    "backfill": (
        "sched/backfill",
        "bf_job_part_count_reserve=1",
        "Whoever does not delay the first of its partition goes, by the time limits.",
    ),
}


def slurm_emission(policy: FleetPolicy) -> Emission:
    """The policy for a Slurm with slurmdbd, in three files, in the order in which they are to be used.

    Raises:
        OptionError: two teams or classes would have the same name in Slurm.
    """
    teams = _named((name for name, _ in policy.teams), "teams")
    classes = _named((name for name, _ in policy.classes), "classes")
    weights = weights_of(policy)
    files = (
        EmittedFile(CONF, _conf(policy, weights)),
        EmittedFile(SCRIPT, _script(policy, teams, classes, weights)),
        EmittedFile(PARTITIONS, _partitions(policy, teams, classes)),
    )
    renamed = [f"{old or '(no team)'} is {new}" for old, new in {**teams, **classes}.items() if old != new]
    return Emission("slurm", files, slurm_notes(policy, renamed))


def _named(names: Iterable[str], what: str) -> dict[str, str]:
    """Names as Slurm takes them: lower case, without blanks and commas."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9_.]+", "-", name.lower()).strip("-.") or "no-team"
        if plain in _TAKEN and not (what == "classes" and plain == "normal"):
            plain = f"{plain}-{what}"
        if plain in found.values():
            raise OptionError(f"Two {what} would both be called {plain} in Slurm.", "Rename one of them.")
        found[name] = plain
    return found


def _conf(policy: FleetPolicy, weights: Weights) -> str:
    reclaim = policy.reclaim
    cycle_s = max(1, math.floor(reclaim.cycle_s))
    scheduler, order, why = _LINES[policy.line]
    aging = "which decides among equals alone (no aging)."
    if math.isfinite(policy.aging_s):
        aging = f"{policy.aging_s:g} s of which are worth one priority."
    lines = [
        f"# How {policy.name} is shared, 1 of 3: settings. In slurm.conf: include {CONF}",
        "# Take out of slurm.conf what is set here; join lists such as SchedulerParameters by hand. Restart",
        f"# slurmctld, which makes gres/gpu known to slurmdbd, run {SCRIPT}, then include",
        f"# {PARTITIONS}.",
        f"# T_claim = {reclaim.bound_s:g} s = {claim_parts(policy)}",
        "",
        "# GPUs are counted and limited; this needs slurmdbd, which keeps the limits.",
        "GresTypes=gpu",
        "SelectType=select/cons_tres",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=associations,limits,qos",
        "",
        f"# line: {policy.line}. {why}",
        f"SchedulerType={scheduler}",
        f"# The queue is looked at every {cycle_s} s at the latest (cycle). The newest loan gives way first.",
        f"SchedulerParameters=sched_interval={cycle_s},bf_interval={cycle_s},preempt_youngest_first,{order}",
        "",
        "# Claims take loans back; what gives way comes into the line again.",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "JobRequeue=1",
        "# A time here would add to T_claim.",
        "PreemptExemptTime=-1",
        "# A job's own signal (sbatch --signal=B:USR2@60) comes at the beginning of the grace time.",
        "SlurmctldParameters=preempt_send_user_signal",
        f"# The teardown in T_claim: Slurm ends a grace time up to {LOOK_S} s late; then SIGTERM is followed",
        "# by SIGKILL after this, also at a time limit.",
        f"KillWait={max(1, min(30, math.floor(reclaim.teardown_s) - LOOK_S))}",
        "",
        f"# The line is by a job's class (QOS) and by its waiting, {aging}",
        "PriorityType=priority/multifactor",
        "PriorityCalcPeriod=1",
        f"PriorityMaxAge={weights.max_age_days}-0",
        f"PriorityWeightAge={weights.age}",
        f"PriorityWeightQOS={weights.qos}",
        "# Claims are above every loan, whatever its class and age.",
        f"PriorityWeightPartition={weights.partition}",
        "# The policy knows no history and no size.",
        "PriorityWeightFairshare=0",
        "PriorityWeightJobSize=0",
    ]
    return "\n".join(lines) + "\n"


def _partitions(policy: FleetPolicy, teams: dict[str, str], classes: dict[str, str]) -> str:
    grace_s = math.floor(policy.reclaim.grace_s)
    keep = [classes[name] for name, kind in policy.classes if not kind.preemptible]
    loans = [BORROW, *([KEEP] if keep else [])]
    lines = [
        f"# How {policy.name} is shared, 3 of 3: partitions. In slurm.conf, after its nodes:",
        f"# include {PARTITIONS}",
        "# Then restart slurmctld; a mere reconfigure does not weigh the new partitions.",
        f"# The pool is {_shape(policy)}; name its machines in place of ALL if there are others.",
    ]
    for name, team in policy.teams:
        if team.guarantee:
            account = teams[name]
            names = ",".join([account, *(loans if team.borrow != 0 else ())])
            lines += [
                "",
                f"# {account}: {team.guarantee} GPUs at any time, {_loan_words(team)}: --partition={names}",
                f"PartitionName={account} Nodes=ALL AllowAccounts={account} QOS={account}-guarantee"
                " PriorityTier=2 PriorityJobFactor=1 PreemptMode=OFF",
            ]
    fixed = [teams[name] for name, team in policy.teams if team.borrow == 0]
    deny = f" DenyAccounts={','.join(fixed)}" if fixed else ""
    common = "PriorityTier=1 PriorityJobFactor=0"
    lines += [
        "",
        f"# Loans: they have {grace_s} s from SIGTERM on to save when their GPUs are claimed.",
        f"PartitionName={BORROW} Nodes=ALL{deny}{f' DenyQos={_list(keep)}' if keep else ''} {common}"
        f" PreemptMode=REQUEUE GraceTime={grace_s}",
    ]
    if keep:
        lines += [
            "",
            f"# Loans of {_list(keep)}, which never give way.",
            f"PartitionName={KEEP} Nodes=ALL{deny} AllowQos={_list(keep)} {common} PreemptMode=OFF",
        ]
    return "\n".join(lines) + "\n"


def _script(policy: FleetPolicy, teams: dict[str, str], classes: dict[str, str], weights: Weights) -> str:
    lines = [
        "#!/bin/sh",
        f"# How {policy.name} is shared, 2 of 3: what slurmdbd keeps. It may be run again.",
        "set -eu",
        "# On one cluster alone: the one that is named, or this one.",
        "cluster=${1:-$(scontrol show config | sed -n 's/^ClusterName *= //p')}",
        "qos=$(sacctmgr -nP show qos format=name)",
        'accounts=$(sacctmgr -nP show assoc cluster="$cluster" user= format=account)',
        """among() { printf '%s\\n' "$1" | grep -qxF "$2"; }""",
        "",
        "# Classes are QOS; the highest priority among all QOS of the site must be the one of these.",
    ]
    priorities = {name: kind.priority for name, kind in policy.classes}
    if "normal" not in classes.values():
        lines += _qos("normal", f"Priority={weights.priority_of(0)}")
    for name, plain in classes.items():
        lines += _qos(plain, f"Priority={weights.priority_of(priorities[name])}")
    qos = ",".join(dict.fromkeys(["normal", *classes.values()]))
    for name, team in policy.teams:
        account = teams[name]
        cap = -1 if team.borrow is None else team.guarantee + team.borrow
        lines += ["", f"# {account}: {team.guarantee} GPUs guaranteed, {_loan_words(team)}."]
        if team.guarantee:
            lines += _qos(f"{account}-guarantee", f"GrpTRES=gres/gpu={team.guarantee}")
        lines += [
            f'among "$accounts" {account} || sacctmgr -i add account {account} cluster="$cluster"',
            "# Claims and loans together"
            + (" (no limit)." if cap < 0 else ".")
            + " Fairshare tells the shares to a site that weighs history.",
            f'sacctmgr -i modify account where name={account} cluster="$cluster"'
            f" set GrpTRES=gres/gpu={cap} Fairshare={max(team.guarantee, 1)} QOS+={qos}",
            f"# Its people: sacctmgr -i add user NAME account={account}",
        ]
    return "\n".join(lines) + "\n"


def _qos(name: str, values: str) -> list[str]:
    return [
        f'among "$qos" {name} || sacctmgr -i add qos {name}',
        f"sacctmgr -i modify qos where name={name} set {values}",
    ]


def _loan_words(team: Team) -> str:
    if team.borrow is None:
        return "more while others do not use theirs"
    return f"up to {team.borrow} more while others do not use theirs" if team.borrow else "none borrowed"


def _list(names: Iterable[str]) -> str:
    return ",".join(names)


def _shape(policy: FleetPolicy) -> str:
    if not policy.nodes:
        return f"{policy.gpus} GPUs"
    sizes = sorted(set(policy.nodes), reverse=True)
    return ", ".join(f"{policy.nodes.count(size)} machines with Gres=gpu:{size}" for size in sizes)
