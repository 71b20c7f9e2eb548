"""A policy written for Slurm, in a real Slurm: it is accepted, and jobs start in the order of our replay."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpuprof.planning.claimtime import claim_bound_s
from jupyter_gpuprof.planning.replay import replay
from jupyter_gpuprof.planning.slurmpolicy import slurm_emission
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, PriorityClass, Reclaim, Team
from jupyter_gpuprof.records.reading import Missing
from tests.slurm.accounted import AccountedCluster
from tests.slurm.cluster import NoCluster

pytestmark = pytest.mark.slow

POLICY = FleetPolicy(
    "shared",
    8,
    (2, 2, 2, 2),
    teams=(("vision", Team(4, 2)), ("speech", Team(4, 1)), ("guests", Team(0, 4))),
    classes=(("urgent", PriorityClass(5)), ("release", PriorityClass(10, preemptible=False))),
    aging_s=3600.0,
    reclaim=Reclaim(cycle_s=1.0, grace_s=3.0, teardown_s=1.0, start_s=1.0),
)
#: Each takes whole nodes of two GPUs: name, team, class, submitted, GPUs, works for so long.
TRACE = (
    ("v1", "vision", "", 0, 4, 12),
    ("g1", "guests", "", 1, 2, 24),  # a loan
    ("g2", "guests", "", 2, 2, 9),  # a newer one, which is to give way
    ("s1", "speech", "", 4, 2, 12),  # a claim
    ("s2", "speech", "", 5, 4, 4),  # not within the guarantee, and more than may be borrowed, until s1 ends
    ("g4", "guests", "urgent", 7, 2, 5),  # waits for GPUs, and goes before other loans
    ("v2", "vision", "", 8, 2, 4),  # waits until v1 ends, and then claims
    ("g3", "guests", "", 10, 2, 1),  # waits for the limit of its team
)
#: Tells when it starts and where; when its GPUs are claimed, it saves for as long as it may, and makes way.
SCRIPT = """\
#!/bin/sh
trap 'sleep {grace}; scontrol requeue $SLURM_JOB_ID; exit' USR2
echo {name} $(date +%s.%N) $SLURM_JOB_PARTITION >> {log}
sleep {run} &
wait
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[AccountedCluster]:
    folder = Path(tempfile.mkdtemp(prefix="gpuprof-slurm-"))  # the path of munge's socket must be short
    try:
        cluster = AccountedCluster(folder, slurm_emission(POLICY), tuple(name for name, _ in POLICY.teams))
        try:
            cluster.start()
        except NoCluster as error:
            pytest.skip(f"no Slurm with accounting here: {error}")
        yield cluster
        cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_trace(cluster: AccountedCluster, log: Path) -> list[tuple[str, float, str]]:
    """Submit the jobs at their moments; each start, its time since the first moment, and its partition."""
    folder, began = cluster.folder, time.time()
    for name, team, kind, submit_s, gpus, run_s in TRACE:
        script = folder / f"{name}.sh"
        script.write_text(SCRIPT.format(name=name, log=log, run=run_s, grace=POLICY.reclaim.grace_s))
        time.sleep(max(0.0, began + submit_s - time.time()))
        partitions = "borrow" if team == "guests" else f"{team},borrow"
        cluster.call(
            *("sbatch", f"--job-name={name}", f"--account={team}", f"--partition={partitions}"),
            *(f"--nodes={gpus // 2}", "--gres=gpu:2", f"--qos={kind or 'normal'}", "--signal=B:USR2@1"),
            *("--time=10", "--output=/dev/null", str(script)),
        )
    until = time.time() + 60.0
    while cluster.jobs() and time.time() < until:
        time.sleep(0.2)
    assert not cluster.jobs(), cluster.jobs()
    lines = [line.split() for line in log.read_text().splitlines()]
    return sorted(((name, float(at) - began, where) for name, at, where in lines), key=lambda start: start[1])


def test_a_real_slurm_starts_the_jobs_in_the_order_of_the_replay(
    cluster: AccountedCluster, tmp_path: Path
) -> None:
    works = [
        Work(name, team, kind, float(submit), gpus, gpus // 2, float(run))
        for name, team, kind, submit, gpus, run in TRACE
    ]
    played = replay(works, POLICY)
    # Each start; a job that was stopped once keeps nothing, so its last start is known from its end.
    foreseen = []
    for work, start_s, end_s, stopped in zip(
        works, played.start_s, played.end_s, played.preempted, strict=True
    ):
        foreseen += [(work.job_id, start_s), *([(work.job_id, end_s - work.run_s)] if stopped else [])]
    foreseen.sort(key=lambda start: start[1])
    assert [name for name, _ in foreseen if name == "g2"] == ["g2", "g2"]  # the trace has what it is to test
    seen = run_trace(cluster, tmp_path / "starts")
    assert sorted(name for name, _ in foreseen) == sorted(name for name, _, _ in seen), seen
    # In groups, since those that start at one moment have no order.
    moments = sorted({at for _, at in foreseen})
    groups = [{name for name, at in foreseen if at == moment} for moment in moments]
    names, found = [name for name, _, _ in seen], []
    for group in groups:
        found.append(set(names[: len(group)]))
        names = names[len(group) :]
    assert found == groups, (foreseen, seen)
    assert {name: where for name, _, where in seen} == {
        **dict.fromkeys(("v1", "v2"), "vision"),
        **dict.fromkeys(("s1", "s2"), "speech"),
        **dict.fromkeys(("g1", "g2", "g3", "g4"), "borrow"),
    }
    bound_s = claim_bound_s(POLICY)
    assert not isinstance(bound_s, Missing)
    claim_s = next(at for name, at, _ in seen if name == "s1") - 4.0
    assert POLICY.reclaim.grace_s <= claim_s <= bound_s + 3.0, (claim_s, bound_s)


def test_the_script_can_be_run_again_and_says_what_the_policy_says(cluster: AccountedCluster) -> None:
    def shown() -> str:
        return cluster.call("sacctmgr", "-nP", "show", "qos", "format=name,priority,grptres") + cluster.call(
            "sacctmgr", "-nP", "show", "assoc", "user=", "format=account,grptres,fairshare,qos"
        )

    before = shown()
    cluster.run_script()
    assert shown() == before
    lines = before.splitlines()
    assert {"normal|0|", "urgent|5|", "release|10|"} < set(lines)
    assert {"vision-guarantee|0|gres/gpu=4", "speech-guarantee|0|gres/gpu=4"} < set(lines)
    assert "guests-guarantee" not in before
    assert "vision|gres/gpu=6|4|normal,release,urgent" in lines
    assert "guests|gres/gpu=4|1|normal,release,urgent" in lines


def test_another_line_and_other_times_are_in_force(cluster: AccountedCluster) -> None:
    policy = dataclasses.replace(POLICY, line="fifo", reclaim=Reclaim(7.0, 0.0, 90.0, 41.0, 20.0))
    cluster.use(slurm_emission(policy))
    config = dict(
        [word.strip() for word in row.split("=", 1)]
        for row in cluster.call("scontrol", "show", "config").splitlines()
        if "=" in row
    )
    assert config["SchedulerType"] == "sched/builtin"
    parameters = config["SchedulerParameters"].split(",")
    assert {"assoc_limit_stop", "sched_interval=7", "bf_interval=7", "preempt_youngest_first"} == set(
        parameters
    )
    assert (config["PreemptType"], config["PreemptMode"]) == ("preempt/partition_prio", "REQUEUE")
    assert config["KillWait"] == "11 sec"
    assert "gres/gpu" in config["AccountingStorageTRES"]
    partitions = cluster.call("scontrol", "--oneliner", "show", "partition").splitlines()
    borrow = next(row.split() for row in partitions if row.startswith("PartitionName=borrow "))
    assert {"GraceTime=90", "PriorityTier=1", "PreemptMode=REQUEUE", "DenyQos=release"} < set(borrow)
    log = (cluster.folder / "slurmctld.log").read_text()
    assert "error: Invalid" not in log
    assert "error: Unable to parse" not in log
