"""A policy in Slurm's words: what each part of it becomes, and what is said about the rest."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.claimtime import claim_bound_s, claim_parts, grace_note
from jupyter_gpuprof.planning.slurmpolicy import CONF, PARTITIONS, SCRIPT, slurm_emission
from jupyter_gpuprof.records.fleetpolicy import Checkpoint, FleetPolicy, PriorityClass, Reclaim, Spot, Team
from jupyter_gpuprof.records.reading import Missing

POLICY = FleetPolicy(
    "shared",
    64,
    teams=(("Vision Lab", Team(32, 16)), ("speech", Team(16)), ("fixed", Team(8, 0)), ("guests", Team(0, 4))),
    classes=(("low", PriorityClass(-2)), ("release", PriorityClass(10, preemptible=False))),
    line="skip",
    aging_s=4 * 3600.0,
    reclaim=Reclaim(30.0, 0.0, 120.0, 45.0, 20.0),
)


def texts(policy: FleetPolicy) -> dict[str, str]:
    emission = slurm_emission(policy)
    assert emission.queue == "slurm"
    return {file.name: file.text for file in emission.files}


def settings(policy: FleetPolicy) -> dict[str, str]:
    lines = [line for line in texts(policy)[CONF].splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)  # nothing is set twice
    return found


def partitions(policy: FleetPolicy) -> dict[str, dict[str, str]]:
    lines = [line for line in texts(policy)[PARTITIONS].splitlines() if line.startswith("PartitionName=")]
    rows = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return {row["PartitionName"]: row for row in rows}


def priority(policy: FleetPolicy, name: str, waited_s: float, *, claims: bool = False) -> float:
    """As Slurm computes it: the age as a share of the maximum, a QOS's priority as a share of the highest."""
    conf, script = settings(policy), texts(policy)[SCRIPT]
    of = {qos: int(number) for qos, number in re.findall(r"name=(\S+) set Priority=(\d+)", script)}
    max_age_s = 86400 * int(conf["PriorityMaxAge"].partition("-")[0])
    return (
        int(conf["PriorityWeightAge"]) * min(waited_s / max_age_s, 1.0)
        + int(conf["PriorityWeightQOS"]) * of[name] / (max(of.values()) or 1)
        + int(conf["PriorityWeightPartition"]) * claims
    )


def test_guarantees_and_limits_become_partitions_qos_and_accounts() -> None:
    found, script = partitions(POLICY), texts(POLICY)[SCRIPT]
    assert set(found) == {"vision-lab", "speech", "fixed", "borrow", "borrow-keep"}
    assert found["vision-lab"]["QOS"] == "vision-lab-guarantee"
    assert found["vision-lab"]["AllowAccounts"] == "vision-lab"
    assert (found["speech"]["PriorityTier"], found["borrow"]["PriorityTier"]) == ("2", "1")
    assert (found["borrow"]["PreemptMode"], found["borrow"]["GraceTime"]) == ("REQUEUE", "120")
    assert {name for name, row in found.items() if row["PreemptMode"] != "OFF"} == {"borrow"}
    assert (found["borrow"]["DenyQos"], found["borrow-keep"]["AllowQos"]) == ("release", "release")
    assert found["borrow"]["DenyAccounts"] == found["borrow-keep"]["DenyAccounts"] == "fixed"
    guarantees = dict(re.findall(r"name=(\S+)-guarantee set GrpTRES=gres/gpu=(\S+)", script))
    assert guarantees == {"vision-lab": "32", "speech": "16", "fixed": "8"}
    limits = dict(re.findall(r'name=(\S+) cluster="\$cluster" set GrpTRES=gres/gpu=(\S+)', script))
    assert limits == {"vision-lab": "48", "speech": "-1", "fixed": "8", "guests": "4"}  # -1: no limit
    assert "--partition=vision-lab,borrow,borrow-keep" in texts(POLICY)[PARTITIONS]
    assert re.search(
        "# fixed: 8 GPUs at any time, none borrowed: --partition=fixed$", texts(POLICY)[PARTITIONS], re.M
    )


def test_one_priority_is_worth_the_aging_time_and_a_claim_more_than_all() -> None:
    def rises(waited_s: float) -> float:
        return priority(POLICY, "low", waited_s + 4 * 3600.0) - priority(POLICY, "low", waited_s)

    one = (priority(POLICY, "release", 0.0) - priority(POLICY, "low", 0.0)) / 12
    assert priority(POLICY, "normal", 0.0) - priority(POLICY, "low", 0.0) == pytest.approx(2 * one)
    assert rises(0.0) == pytest.approx(one, rel=1e-6)
    assert rises(30 * 86400.0) == pytest.approx(one, rel=1e-6)
    best, worst = priority(POLICY, "release", 1e12), priority(POLICY, "low", 0.0, claims=True)
    reserve = int(re.findall(r"bf_min_prio_reserve=(\d+)", settings(POLICY)["SchedulerParameters"])[0])
    assert best < reserve <= worst
    assert priority(POLICY, "release", 1e12, claims=True) < 2**32


def test_without_aging_waiting_decides_among_equals_alone() -> None:
    policy = dataclasses.replace(POLICY, aging_s=math.inf)
    assert (
        priority(policy, "low", 365 * 86400.0)
        > priority(policy, "low", 3600.0)
        > priority(policy, "low", 0.0)
    )
    assert priority(policy, "low", 1e12) < priority(policy, "normal", 0.0) - priority(policy, "low", 0.0)
    plain = dataclasses.replace(policy, classes=())
    assert priority(plain, "normal", 60.0) > priority(plain, "normal", 0.0)


@pytest.mark.parametrize(
    ("line", "scheduler", "parameter"),
    [
        ("fifo", "sched/builtin", "assoc_limit_stop"),
        ("skip", "sched/backfill", "bf_min_prio_reserve=2000000000"),
        ("backfill", "sched/backfill", "bf_job_part_count_reserve=1"),
    ],
)
def test_each_line_has_its_scheduler(line: str, scheduler: str, parameter: str) -> None:
    conf = settings(dataclasses.replace(POLICY, line=line))
    assert conf["SchedulerType"] == scheduler
    given = conf["SchedulerParameters"].split(",")
    assert parameter in given
    assert {"sched_interval=30", "bf_interval=30"} < set(given)


def test_the_bound_is_the_replays_and_its_parts_add_up() -> None:
    assert claim_bound_s(POLICY) == 215.0
    assert sum(float(number) for number in re.findall(r"([\d.]+) s", claim_parts(POLICY))) == 215.0
    assert f"T_claim = 215 s = {claim_parts(POLICY)}" in texts(POLICY)[CONF]
    # What Slurm takes is within the parts: 30 s until it sees that the grace time is over, and then this.
    assert settings(POLICY)["KillWait"] == "15"
    assert isinstance(claim_bound_s(dataclasses.replace(POLICY, gang=False)), Missing)


def test_a_grace_time_too_short_for_a_save_is_told() -> None:
    short = dataclasses.replace(POLICY, reclaim=Reclaim(grace_s=60.0), checkpoint=Checkpoint(None))
    assert grace_note(short, 95.0) == (
        "the grace time of 60 s is shorter than the p99 of a save, 95 s: a preempted job loses its work"
    )
    saving = dataclasses.replace(short, checkpoint=Checkpoint(1800.0))
    assert "what it did since its last checkpoint, up to 1800 s" in grace_note(saving, 95.0)
    assert grace_note(short, 60.0) == grace_note(short, Missing("not measured")) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gang": False}, "gang: false has no counterpart"),
        ({"spot": Spot(16)}, "16 spot GPUs are not written"),
        ({"teams": (("a", Team(4, p90_s=60.0)),)}, "no limit on waits"),
        ({"reclaim": Reclaim(30.0, teardown_s=5.0)}, "for 26 s longer than T_claim says"),
        ({"reclaim": Reclaim(0.5, teardown_s=31.0)}, "shortest cycle is 1 s"),
        ({"line": "fifo"}, "blocks the loans of all teams"),
        ({"line": "backfill"}, "jobs without a time limit"),
        ({"classes": (("release", PriorityClass(1, preemptible=False)),)}, "jobs of release never give way"),
        ({"classes": (("urgent", PriorityClass(1)),)}, "stops no lower one of its own team"),
        ({"aging_s": 60.0}, "ages once a minute"),
        (
            {"teams": (("Vision Lab", Team(4)), ("", Team(4)))},
            "Vision Lab is vision-lab, (no team) is no-team",
        ),
    ],
)
def test_what_slurm_does_otherwise_is_told_and_only_then(change: dict[str, object], words: str) -> None:
    plain = FleetPolicy("plain", 64, teams=(("vision", Team(4)),), reclaim=Reclaim(30.0, teardown_s=31.0))
    assert words not in " ".join(slurm_emission(plain).notes)
    assert words in " ".join(slurm_emission(dataclasses.replace(plain, **change)).notes)


def test_names_that_slurm_cannot_tell_apart_are_refused() -> None:
    two = dataclasses.replace(POLICY, teams=(("Vision", Team(4)), ("vision", Team(4))))
    with pytest.raises(OptionError, match="Two teams would both be called vision in Slurm"):
        slurm_emission(two)
    taken = dataclasses.replace(POLICY, teams=(("default", Team(4)), ("borrow", Team(4))))
    assert set(partitions(taken)) == {"default-teams", "borrow-teams", "borrow", "borrow-keep"}
