"""Jobs from tables: the columns of known traces, or those that a mapping names.

A shape says which column tells what. Known are SenseTime's Helios and Shanghai's Acme (``gpu_num``),
Alibaba's PAI tasks of 2020 and pods of 2023, and Tiresias's; Helios's counts by the minute are a series.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes.jobtally import BadRow, Tally, number
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, JobState, TeamSeries
from jupyter_gpuprof.records.reading import Missing, Number

#: What a mapping may name.
FIELDS = (
    "id", "team", "user", "gpus", "submit", "start", "end", "run", "wait", "state", "class", "nodes", "limit",
    "busy",
)  # fmt: skip

_BY_GPU_NUM = {
    "id": "job_id", "team": "vc", "user": "user", "gpus": "gpu_num", "submit": "submit_time",
    "start": "start_time", "end": "end_time", "run": "duration", "state": "state", "nodes": "node_num",
}  # fmt: skip
#: By name: the columns that tell the shape, and the mapping.
SHAPES: dict[str, tuple[set[str], dict[str, str]]] = {
    "Alibaba pods": (
        {"num_gpu", "gpu_milli", "creation_time", "deletion_time"},
        {"id": "name", "team": "qos", "gpus": "num_gpu", "submit": "creation_time",
         "start": "scheduled_time", "end": "deletion_time", "state": "pod_phase", "class": "qos"},
    ),
    "Alibaba PAI tasks": (
        {"job_name", "task_name", "inst_num", "plan_gpu"},
        {"id": "job_name", "gpus": "plan_gpu", "start": "start_time", "end": "end_time", "state": "status"},
    ),
    "Helios or Acme jobs": ({"gpu_num", "submit_time", "duration"}, _BY_GPU_NUM),
    "Tiresias jobs": (
        {"num_gpu", "submit_time", "duration"},
        {"id": "job_id", "gpus": "num_gpu", "submit": "submit_time", "run": "duration"},
    ),
}  # fmt: skip
_SERIES = {"time", "total_gpu_num", "running_gpu_num", "pending_gpu_num"}
_STATES: dict[str, JobState] = {
    "completed": "completed", "pass": "completed", "succeeded": "completed", "terminated": "completed",
    "failed": "failed", "timeout": "failed", "node_fail": "failed", "out_of_memory": "failed",
    "interrupted": "failed", "cancelled": "cancelled", "canceled": "cancelled", "killed": "cancelled",
    "running": "running", "pending": "pending", "waiting": "pending",
}  # fmt: skip


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Refuse a mapping that names what there is not.

    Raises:
        UsageError: a key is unknown, or GPUs are not among them.
    """
    for key in mapping:
        if key not in FIELDS:
            raise UsageError(f"A mapping has no {key!r}.", f"It may name {', '.join(FIELDS)}.")
    if mapping and "gpus" not in mapping:
        raise UsageError("A mapping must name the column of the GPUs.", "For example --map gpus=num_gpus.")


def read_table(
    lines: Iterable[str],
    tally: Tally,
    where: str,
    mapping: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
    stem: str = "",
) -> str:
    """Rows of a table with commas, semicolons or tabs.

    Args:
        lines: of the file.
        tally: what they are added to.
        where: the file's name; stem: without its ending, the team of a series.
        mapping: the columns by what they tell, where the shape is not known.
        columns: their names if there is no header.

    Returns:
        What kind of table it is, "" if that is not known.
    """
    rows = iter(lines)
    first = next(rows, "")
    mark = max(",;\t", key=first.count)
    names = list(columns) or [name.strip() for name in next(csv.reader([first], delimiter=mark), [])]
    if columns:
        rows = iter([first, *rows])
    if not mapping and set(names) >= _SERIES:
        _series(rows, names, mark, tally, where, stem)
        return "Helios counts"
    kind, shape = "a table", dict(mapping or {})
    if not shape:
        kind, shape = next(
            ((kind, shape) for kind, (needed, shape) in SHAPES.items() if needed <= set(names)), ("", {})
        )
    if not shape:
        return ""
    lacking = [column for column in (mapping or {}).values() if column not in names]
    if lacking:
        raise UsageError(f"{where} has no column {lacking[0]!r}.", f"It has {', '.join(names)}.")
    for i, cells in enumerate(_rows(rows, mark), 1 if columns else 2):
        if not cells:
            continue
        tally.rows += 1
        if len(cells) != len(names):
            tally.refuse(f"it has {len(cells)} of {len(names)} columns", f"{where}, line {i}")
            continue
        try:
            job = _job(dict(zip(names, cells, strict=True)), shape, kind, tally, i)
        except BadRow as error:
            tally.refuse(str(error), f"{where}, line {i}")
            continue
        tally.add(job, f"{where}, line {i}")
    return kind


def _rows(lines: Iterable[str], mark: str) -> Iterator[list[str]]:
    """The cells of each row; a quote that is never closed takes only so many letters with it."""
    reader = csv.reader(lines, delimiter=mark)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield ["(too long)"]


def _job(row: Mapping[str, str], shape: Mapping[str, str], kind: str, tally: Tally, line: int) -> Job:
    def cell(field: str) -> str:
        return row.get(shape.get(field, ""), "").strip()

    gpus = number(cell("gpus"))
    if not isinstance(gpus, Missing) and kind == "Alibaba pods" and gpus == 1:
        gpus = float(row["gpu_milli"] or 1000) / 1000
    if not isinstance(gpus, Missing) and kind == "Alibaba PAI tasks":
        gpus = gpus / 100 * float(row["inst_num"] or 1)  # percent of a GPU for each instance
    submit, start, end = (tally.time(cell(field)) for field in ("submit", "start", "end"))
    run, wait = number(cell("run")), number(cell("wait"))
    if isinstance(start, Missing) and not isinstance(submit, Missing) and not isinstance(wait, Missing):
        start = submit + wait
    if isinstance(run, Missing) and not isinstance(start, Missing) and not isinstance(end, Missing):
        run = end - start
    if isinstance(end, Missing) and not isinstance(start, Missing) and not isinstance(run, Missing):
        end = start + run
    word = cell("state").lower()
    state = _STATES.get(word) or ("failed" if word else _guess(run, start))
    nodes = number(cell("nodes"))
    busy = number(cell("busy"))
    return Job(
        job_id=cell("id") or f"line {line}",
        team=cell("team"),
        user=cell("user"),
        gpus=gpus,
        submit_s=submit,
        start_s=start,
        end_s=end,
        ran_s=0.0 if state == "pending" else run,
        state=state,
        priority_class=cell("class"),
        nodes=1 if isinstance(nodes, Missing) else max(int(nodes), 1),
        limit_s=number(cell("limit")) if "limit" in shape else NOT_TOLD,
        busy_ratio=busy if isinstance(busy, Missing) or busy <= 1 else busy / 100,
    )


def _guess(run: Number, start: Number) -> JobState:
    if not isinstance(run, Missing):
        return "completed"
    return "pending" if isinstance(start, Missing) else "running"


def _series(
    rows: Iterable[str], names: Sequence[str], mark: str, tally: Tally, where: str, stem: str
) -> None:
    at = [names.index(name) for name in ("time", "total_gpu_num", "running_gpu_num", "pending_gpu_num")]
    columns: list[list[float]] = [[], [], [], []]
    last = -float("inf")
    for i, cells in enumerate(_rows(rows, mark), 2):
        tally.rows += 1
        try:
            moment = tally.time(cells[at[0]])
            values = [float(cells[j]) for j in at[1:]]
        except (BadRow, ValueError, IndexError):
            tally.refuse("a count cannot be read", f"{where}, line {i}")
            continue
        if isinstance(moment, Missing) or moment <= last:
            tally.refuse("its time does not come after the one before", f"{where}, line {i}")
            continue
        last = float(moment)
        for column, value in zip(columns, (last, *values), strict=True):
            column.append(value)
    if columns[0]:
        tally.series.append(TeamSeries(stem or where, *(np.array(column) for column in columns)))
