"""Jobs from Slurm: the output of ``sacct -P``, and the file of the completion plugin ``jobcomp/filetxt``.

One row a job: steps are skipped (they share their job's GPUs), parts of a heterogeneous job are put together,
a row for the rest of a pending array counts as many jobs, and each attempt of a requeued job (``sacct -D``)
counts by itself. ``gres/gpu`` is the number of GPUs; ``gres/gpu:type`` tells the same ones once more.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from jupyter_gpuprof.probes.jobtally import BadRow, Tally, number
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, JobState
from jupyter_gpuprof.records.reading import Missing, Number

_RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
_PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT"})
#: What NordicHPC's sonar asks sacct for, without a header.
SONAR = (
    "JobID", "JobIDRaw", "User", "Account", "State", "Start", "End", "AveCPU", "AveDiskRead",
    "AveDiskWrite", "AveRSS", "AveVMSize", "ElapsedRaw", "ExitCode", "Layout", "MaxRSS", "MaxVMSize",
    "MinCPU", "ReqCPUS", "ReqMem", "ReqNodes", "Reservation", "Submit", "Suspended", "SystemCPU",
    "TimelimitRaw", "UserCPU", "NodeList", "Partition", "AllocTRES", "Priority", "JobName",
)  # fmt: skip
_COMPLETION_KEYS = (
    "JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime",
    "NodeList", "NodeCnt", "ProcCnt", "WorkDir", "ReservationName", "Gres", "Tres", "Account", "QOS",
    "WcKey", "Cluster", "SubmitTime", "EligibleTime", "ArrayJobId", "ArrayTaskId", "HetJobId",
    "HetJobOffset", "DerivedExitCode", "ExitCode",
)  # fmt: skip
_COMPLETION = re.compile(rf"(?:^|\s)({'|'.join(_COMPLETION_KEYS)})=")
#: A pending array may stand for so many jobs.
_MOST_TASKS = 1_000_000


def read_sacct(
    lines: Iterable[str], tally: Tally, where: str, columns: Sequence[str] = (), team: str = ""
) -> None:
    """Rows of ``sacct -P`` (or ``-p``), with or without the header.

    Args:
        lines: of the file.
        tally: what they are added to.
        where: the file's name.
        columns: their names if there is no header; sonar's 32 are known.
        team: the column that is the team; the account by default.
    """
    names: Sequence[str] = columns
    parts: dict[str, list[Job]] = {}
    clusters: set[str] = set()
    for i, line in enumerate(lines, 1):
        cells = line.rstrip("\r\n").split("|")
        if cells == [""]:
            continue
        if "JobID" in cells and "State" in cells:
            names = cells
            continue
        names = names or (SONAR if len(cells) == len(SONAR) else ())
        if not names:
            tally.notes.append(f"{where} has no header; name its {len(cells)} columns with --columns")
            tally.refuse("its columns are not named", f"{where}, line {i}")
            return
        if len(cells) > len(names) and names[-1] in ("JobName", ""):  # a name may hold the separator
            cells = [*cells[: len(names) - 1], "|".join(cells[len(names) - 1 :])]
        if len(cells) != len(names):
            tally.rows += 1
            tally.refuse(f"it has {len(cells)} of {len(names)} columns", f"{where}, line {i}")
            continue
        row = dict(zip(names, cells, strict=True))
        if "." in row["JobID"]:
            continue
        tally.rows += 1
        clusters.add(row.get("Cluster", ""))
        try:
            job = _job(row, tally, team)
        except BadRow as error:
            tally.refuse(str(error), f"{where}, line {i}")
            continue
        base, plus, _ = job.job_id.partition("+")
        if plus:
            parts.setdefault(base, []).append(job)
            continue
        for one in _tasks(job):
            tally.add(one, f"{where}, line {i}")
    for base, some in parts.items():
        tally.add(_together(base, some), f"{where}, job {base}")
    if len(clusters) > 1:
        named = ", ".join(sorted(clusters))
        tally.notes.append(f"{where} holds several clusters ({named}), which are put together")


def read_completions(lines: Iterable[str], tally: Tally, where: str, team: str = "") -> None:
    """Lines of ``jobcomp/filetxt``: ``JobId=1 UserId=ann(1000) ... Tres=cpu=2,gres/gpu=1 ...``."""
    renamed = {"JobId": "JobID", "JobState": "State", "StartTime": "Start", "EndTime": "End"}
    renamed |= {"SubmitTime": "Submit", "Tres": "AllocTRES", "TimeLimit": "TimelimitRaw", "UserId": "User"}
    for i, line in enumerate(lines, 1):
        if not line.strip():
            continue
        tally.rows += 1
        found = list(_COMPLETION.finditer(line))
        ends = [match.start() for match in found[1:]] + [len(line)]
        row = {m[1]: line[m.end() : end].strip() for m, end in zip(found, ends, strict=False)}
        row = {renamed.get(key, key): value for key, value in row.items()}
        if not {"JobID", "State", "End"} <= set(row):
            tally.refuse("it lacks JobId, JobState or EndTime", f"{where}, line {i}")
            continue
        row["User"] = row.get("User", "").partition("(")[0]
        try:
            tally.add(_job(row, tally, team), f"{where}, line {i}")
        except BadRow as error:
            tally.refuse(str(error), f"{where}, line {i}")


def _job(row: Mapping[str, str], tally: Tally, team: str) -> Job:
    if team and team not in row:
        raise BadRow(f"there is no column {team}")
    submit, start, end = (tally.time(row.get(name)) for name in ("Submit", "Start", "End"))
    state = _state(row["State"])
    if state == "pending":
        start = end = Missing("it still waits")
    if state == "running":
        end = Missing("it still runs")
    tres = row.get("AllocTRES") or row.get("ReqTRES") or ""
    ran: Number = 0.0 if isinstance(start, Missing) else NOT_TOLD
    if row.get("ElapsedRaw") or row.get("Elapsed"):
        ran = number(row["ElapsedRaw"]) if row.get("ElapsedRaw") else _clock_s(row["Elapsed"])
    elif not isinstance(start, Missing) and not isinstance(end, Missing):
        ran = end - start
    return Job(
        job_id=row["JobID"],
        team=row[team] if team else row.get("Account") or row.get("Partition", ""),
        user=row.get("User", ""),
        gpus=gpus_of(tres),
        submit_s=submit,
        start_s=start,
        end_s=end,
        ran_s=ran,
        state=state,
        priority_class=row.get("QOS", ""),
        nodes=_nodes(tres),
        limit_s=_limit_s(row),
        busy_ratio=_jobstats(row.get("AdminComment", "")),
    )


def gpus_of(tres: str) -> Number:
    """The GPUs of ``cpu=32,gres/gpu:a100=1,gres/gpu=1``: 1; the typed ones count where there is no sum."""
    if not tres:
        return Missing("no resources are told")
    counts = dict(re.findall(r"(?:^|,)(gres/gpu(?::[^=,]+)?)=(\d+)", tres))
    if "gres/gpu" in counts:
        return int(counts["gres/gpu"])
    return sum(map(int, counts.values()))


def _nodes(tres: str) -> int:
    found = re.search(r"(?:^|,)node=(\d+)", tres)
    return max(int(found[1]), 1) if found else 1


def _state(words: str) -> JobState:
    word = words.split()[0].rstrip("+").upper() if words.split() else ""
    if word in _RUNNING:
        return "running"
    if word in _PENDING:
        return "pending"
    if word == "COMPLETED":
        return "completed"
    if word.startswith("CANCELLED"):
        return "cancelled"
    if not re.fullmatch(r"[A-Z_]+", word):
        raise BadRow("its state cannot be read")
    return "failed"


def _limit_s(row: Mapping[str, str]) -> Number:
    if row.get("TimelimitRaw", "").isdigit():
        return 60.0 * int(row["TimelimitRaw"])
    words = row.get("Timelimit", "")
    return _clock_s(words) if re.match(r"[\d-]+:", words) else NOT_TOLD


def _clock_s(words: str) -> Number:
    """Seconds of ``[days-][hours:]minutes:seconds``."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", words.strip())
    if not found:
        raise BadRow("a duration cannot be read")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 86400.0 * days + 3600 * hours + 60 * minutes + seconds


def _tasks(job: Job) -> Iterable[Job]:
    """A job, or those that ``7_[1-3,9%2]`` stands for."""
    found = re.fullmatch(r"(\d+)_\[([^\]%]*)(?:%\d+)?\]", job.job_id)
    if not found:
        return [job]
    numbers: list[int] = []
    for part in found[2].split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if span:  # sacct shortens long lists with "..."
            first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
            numbers += range(first, min(last, first + _MOST_TASKS) + 1, max(step, 1))
    return [dataclasses.replace(job, job_id=f"{found[1]}_{n}") for n in numbers] or [job]


def _together(base: str, parts: Sequence[Job]) -> Job:
    """A heterogeneous job: its parts start and end together."""
    known = [part.gpus for part in parts if not isinstance(part.gpus, Missing)]
    first = parts[0]
    return dataclasses.replace(
        first,
        job_id=base,
        gpus=sum(known) if len(known) == len(parts) else first.gpus,
        nodes=sum(part.nodes for part in parts),
    )


def _jobstats(comment: str) -> Number:
    """The mean GPU utilisation that Princeton's jobstats leaves in the comment: ``JS1:`` and packed JSON."""
    if not comment.startswith("JS1:") or len(comment) < 20:
        return NOT_TOLD
    try:
        nodes = json.loads(gzip.decompress(base64.b64decode(comment[4:])))["nodes"]
        used = [float(value) for node in nodes.values() for value in node["gpu_utilization"].values()]
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError):
        return NOT_TOLD
    return sum(used) / len(used) / 100 if used else NOT_TOLD
