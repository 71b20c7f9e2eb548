"""Readers of job files: each kind gives the same records, and what cannot be read is counted and named."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes.jobfiles import read_jobs
from jupyter_gpuprof.records.fleet import Job, JobRecords
from jupyter_gpuprof.records.reading import Missing

DATA = Path(__file__).parents[1] / "data" / "fleet"
HEADER = (
    "JobID|JobIDRaw|User|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES|ReqTRES|Timelimit|QOS|JobName\n"
)
GPU = "cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1"


def read(folder: Path, text: str | bytes, name: str = "jobs.txt", **options: object) -> JobRecords:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_jobs([path], **options)  # type: ignore[arg-type]


def row(job: str, state: str, *, tres: str = GPU, req: str = "", start: str = "2025-01-01T01:00:00",
        end: str = "2025-01-01T02:00:00", elapsed: str = "3600", name: str = "train") -> str:  # fmt: skip
    about = f"{job}|{job}|ann|vision|{state}|2025-01-01T00:00:00|{start}|{end}|{elapsed}"
    return f"{about}|{tres}|{req}|1-00:00:00|high|{name}\n"


def only(records: JobRecords) -> Job:
    (job,) = records.jobs
    return job


def test_a_real_site_without_a_header() -> None:
    records = read_jobs([DATA / "sacct_output.txt"])
    hours = {
        state: round(sum(job.gpu_s for job in records.jobs if job.state == state) / 3600, 2)
        for state in ("running", "completed")
    }
    assert hours == {"running": 902.69, "completed": 1.70}
    assert sum(job.gpu_s for job in records.jobs) / 3600 == pytest.approx(933.34, abs=0.005)
    assert (len(records.jobs), records.rows, records.refused) == (122, 122, ())
    assert records.until_s == 1758878351  # 2025-09-26 09:19:11


def test_one_job_of_sacct(tmp_path: Path) -> None:
    records = read(tmp_path, HEADER + row("1", "COMPLETED", name="a|b") + row("1.batch", "COMPLETED"))
    job = only(records)
    assert (job.team, job.user, job.gpus, job.state, job.priority_class) == (
        "vision",
        "ann",
        2,
        "completed",
        "high",
    )
    assert (job.start_s - job.submit_s, job.ran_s, job.limit_s) == (3600, 3600, 86400)  # type: ignore[operator]
    assert only(read(tmp_path, HEADER + row("1", "COMPLETED"), team="QOS")).team == "high"


def test_arrays_parts_and_attempts(tmp_path: Path) -> None:
    text = (
        HEADER
        + row("7_[1-3,9%2]", "PENDING", tres="", req=GPU, start="Unknown", end="Unknown", elapsed="0")
        + row("7_0", "COMPLETED")
        + row("8+0", "COMPLETED")
        + row("8+1", "COMPLETED", tres="gres/gpu:v100=4,node=2")
        + row("8+0.0", "COMPLETED")
        + row("9", "PREEMPTED")
        + row("9", "COMPLETED", start="2025-01-01T05:00:00", end="2025-01-01T06:00:00")
    )
    jobs = read(tmp_path, text).jobs
    assert [job.job_id for job in jobs] == ["7_1", "7_2", "7_3", "7_9", "7_0", "9", "9", "8"]
    assert {job.state for job in jobs[:4]} == {"pending"}
    assert jobs[0].gpus == 2
    assert (jobs[-1].gpus, jobs[-1].nodes) == (6, 3)
    assert [job.state for job in jobs if job.job_id == "9"] == ["failed", "completed"]


def test_zones(tmp_path: Path) -> None:
    utc = only(read(tmp_path, HEADER + row("1", "COMPLETED")))
    oslo = only(read(tmp_path, HEADER + row("1", "COMPLETED"), zone="Europe/Oslo"))
    assert utc.start_s - oslo.start_s == 3600  # type: ignore[operator]
    told = HEADER + row("1", "COMPLETED", start="2025-01-01T02:00:00+01:00", end="2025-01-01T02:00:00Z")
    assert only(read(tmp_path, told)).start_s == utc.start_s
    with pytest.raises(UsageError, match="no time zone 'Mars/Base'"):
        read(tmp_path, told, zone="Mars/Base")


def test_what_makes_no_sense_is_named_by_its_line(tmp_path: Path) -> None:
    text = (
        HEADER
        + row("1", "COMPLETED")
        + row("2", "COMPLETED", end="2025-01-01T00:30:00")
        + row("3", "COMPLETED", start="2024-12-31T23:00:00")
        + row("4", "COMPLETED", start="soon")
        + row("1", "COMPLETED")
        + "5|5|ann|vision|COMPL"
    )
    records = read(tmp_path, text)
    assert len(records.jobs) == 1
    assert {refused.reason: refused.first for refused in records.refused} == {
        "it ends before it starts": "jobs.txt, line 3",
        "it starts before it was submitted": "jobs.txt, line 4",
        "a time cannot be read": "jobs.txt, line 5",
        "it is there twice": "jobs.txt, line 6",
        "it has 5 of 14 columns": "jobs.txt, line 7",
    }


def test_a_file_without_a_header_wants_its_columns(tmp_path: Path) -> None:
    text = "1|COMPLETED|2025-01-01T00:00:00|2025-01-01T01:00:00|2025-01-01T02:00:00|gres/gpu=1\n"
    assert "columns" in read(tmp_path, text).notes[0]
    columns = ["JobID", "State", "Submit", "Start", "End", "AllocTRES"]
    assert only(read(tmp_path, text, columns=columns)).gpu_s == 3600


def test_jobstats_in_the_comment(tmp_path: Path) -> None:
    told = {"nodes": {"n1": {"gpu_utilization": {"0": 40.0, "1": 60.0}}}}
    comment = "JS1:" + base64.b64encode(gzip.compress(json.dumps(told).encode())).decode()
    text = HEADER.replace("|JobName", "|AdminComment") + row("1", "COMPLETED", name=comment)
    assert only(read(tmp_path, text)).busy_ratio == pytest.approx(0.5)
    text = HEADER.replace("|JobName", "|AdminComment") + row("1", "COMPLETED", name="JS1:" + "x" * 40)
    assert isinstance(only(read(tmp_path, text)).busy_ratio, Missing)


def test_completion_file(tmp_path: Path) -> None:
    line = (
        "JobId=12 UserId=ann(1000) GroupId=ann(1000) Name=my job State JobState=TIMEOUT Partition=gpu"
        " TimeLimit=60 StartTime=2025-01-01T01:00:00 EndTime=2025-01-01T02:00:00 NodeList=n1 NodeCnt=1"
        " ProcCnt=8 WorkDir=/home/ann ReservationName= Tres=cpu=8,mem=8G,node=1,billing=8,gres/gpu=2"
        " Account=vision QOS=high WcKey= Cluster=c SubmitTime=2025-01-01T00:30:00"
        " EligibleTime=2025-01-01T00:30:00 DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
    records = read(tmp_path, line + "JobId=13 UserId=bo\n")
    job = only(records)
    assert (job.team, job.user, job.gpus, job.state, job.limit_s) == ("vision", "ann", 2, "failed", 3600)
    assert (job.start_s - job.submit_s, job.gpu_s) == (1800, 7200)  # type: ignore[operator]
    assert records.refused[0].first == "jobs.txt, line 2"


PHILLY = [
    {
        "status": "Pass", "vc": "v", "jobid": "j1", "user": "u", "submitted_time": "2017-10-09 07:00:00",
        "attempts": [
            {"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 07:12:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
            {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 09:00:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu3"]}]},
        ],
    },
    {"status": "Killed", "vc": "v", "jobid": "j2", "submitted_time": "2017-10-09 07:00:00", "attempts": []},
]  # fmt: skip


def test_philly_counts_attempts_without_the_gap(tmp_path: Path) -> None:
    first, second = read(tmp_path, json.dumps(PHILLY)).jobs
    assert (first.gpus, first.nodes, first.ran_s, first.gpu_s) == (2, 2, 4200, 8400)
    assert first.start_s - first.submit_s == 120  # type: ignore[operator]
    assert (second.state, isinstance(second.gpus, Missing)) == ("cancelled", True)


def test_json_that_breaks_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = json.dumps([*PHILLY, {"status": "Pass", "attempts": 5}])
    records = read(tmp_path, text[:-20])
    assert len(records.jobs) == 2
    assert "breaks off at character" in records.notes[0]
    assert read(tmp_path, text).refused[0].first == "jobs.txt, item 2"


def test_workloads_and_pods(tmp_path: Path) -> None:
    pod = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "2"}}}]}
    conditions = [
        {"type": "Admitted", "status": "True", "lastTransitionTime": "2025-01-01T00:10:00Z"},
        {"type": "Finished", "status": "True", "lastTransitionTime": "2025-01-01T01:10:00Z"},
    ]
    workload = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns", "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {"queueName": "local", "priorityClassName": "high",
                 "podSets": [{"count": 2, "template": {"spec": pod}}]},
        "status": {"admission": {"clusterQueue": "vision"}, "conditions": conditions},
    }  # fmt: skip
    waiting = {**workload, "metadata": {**workload["metadata"], "name": "x"}, "status": {}}  # type: ignore[dict-item]
    done, pending = read(tmp_path, json.dumps({"kind": "List", "items": [workload, waiting]})).jobs
    assert (done.team, done.gpus, done.nodes, done.ran_s, done.priority_class) == (
        "vision",
        8,
        2,
        3600,
        "high",
    )
    assert done.start_s - done.submit_s == 600  # type: ignore[operator]
    assert (pending.state, pending.team, pending.gpus) == ("pending", "local", 8)
    running = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": pod,
        "status": {"phase": "Running", "startTime": "2025-01-01T00:01:00Z"},
    }
    job = only(read(tmp_path, json.dumps({"items": [running]})))
    assert (job.team, job.gpus, job.state) == ("ns", 4, "running")


@pytest.mark.parametrize(
    ("text", "gpus", "wait", "ran"),
    [
        ("job_id,user,vc,gpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
         "1,u,vcA,8,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60\n",
         8, 60, 3600),
        ("name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
         "p,4000,1,500,,LS,Succeeded,100,1000,130\n", 0.5, 30, 870),
        ("job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
         "j,worker,4,Terminated,100,1000,600,30,50,T4\n", 2, None, 900),
    ],
)  # fmt: skip
def test_known_tables(tmp_path: Path, text: str, gpus: float, wait: float | None, ran: float) -> None:
    job = only(read(tmp_path, text))
    assert (job.gpus, job.ran_s, job.state) == (gpus, ran, "completed")
    if wait is not None:
        assert job.start_s - job.submit_s == wait  # type: ignore[operator]


def test_another_table_with_a_mapping(tmp_path: Path) -> None:
    text = "who;cards;asked;waited;took;load\nann;2;0;30;100;45\nbo;two;0;1;1;1\n"
    mapping = {
        "user": "who",
        "gpus": "cards",
        "submit": "asked",
        "wait": "waited",
        "run": "took",
        "busy": "load",
    }
    records = read(tmp_path, text, mapping=mapping)
    job = only(records)
    assert (job.user, job.gpus, job.start_s, job.ran_s, job.busy_ratio) == ("ann", 2, 30, 100, 0.45)
    assert (records.refused[0].reason, records.refused[0].first) == (
        "a number cannot be read",
        "jobs.txt, line 3",
    )
    with pytest.raises(UsageError, match="no 'gpu'"):
        read(tmp_path, text, mapping={"gpu": "cards"})
    with pytest.raises(UsageError, match="no column 'card'"):
        read(tmp_path, text, mapping={"gpus": "card"})


def test_a_file_of_another_kind_does_not_spoil_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(HEADER + row("1", "COMPLETED"))
    (tmp_path / "b.png").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / "c.csv").write_text("x,y\n1,2\n")
    records = read_jobs([tmp_path])
    assert len(records.jobs) == 1
    assert {(refused.first, refused.count) for refused in records.refused} == {("b.png", 2)}
    with pytest.raises(UsageError, match=r"No jobs were found in c\.csv"):
        read_jobs([tmp_path / "c.csv"])
    with pytest.raises(UsageError, match="cannot be read"):
        read_jobs([tmp_path / "none.txt"])


def test_a_packed_file_that_breaks_off(tmp_path: Path) -> None:
    text = HEADER + "".join(row(str(i), "COMPLETED", name=str(i * 7919)) for i in range(3000))
    records = read(tmp_path, gzip.compress(text.encode())[:-4000], "jobs.gz")
    assert 0 < len(records.jobs) < 3000
    assert "breaks off" in records.notes[0]


def test_what_no_job_can_be_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    table = (
        "num_gpu,submit_time,duration,job_id\n1,1e18,5,a\n1,-1e12,5,b\n1e300,0,5,c\n"
        f'1,0,"{"x" * 200_000},d\n1,0,5,e\n'
    )
    records = read(tmp_path, table)
    # A quote that is never closed takes letters with it up to the reader's limit, not the rows behind.
    assert [job.job_id for job in records.jobs] == ["e"]
    assert [(refused.reason, refused.count) for refused in records.refused] == [
        ("a time is before the year 1 or after 9999", 2),
        ("it has more than 1,000,000 GPUs", 1),
        ("it has 1 of 4 columns", 1),
    ]
    with pytest.raises(UsageError, match="No jobs were found"):
        read(tmp_path, "[" * 100_000)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_windows_text(tmp_path: Path, encoding: str) -> None:
    mark = "" if encoding != "utf-16-be" else "\ufeff"
    text = mark + HEADER + row("1", "COMPLETED")
    assert only(read(tmp_path, text.replace("\n", "\r\n").encode(encoding))).gpus == 2
