"""Jobs from JSON: Microsoft's Philly, and lists of Kueue Workloads or pods from ``kubectl get -o json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpuprof.probes.jobtally import BadRow, Tally
from jupyter_gpuprof.records.fleet import NOT_TOLD, Job, JobState
from jupyter_gpuprof.records.reading import Missing, Number

_PHILLY_STATES: dict[str, JobState] = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
#: Resources of Kubernetes that are devices, by their ending.
_DEVICES = ("/gpu", "/gpu.shared", "/gaudi", "/xpu")


def read_json(text: str, tally: Tally, where: str) -> str:
    """The items of a list; from a file that ends in the middle, those before.

    Returns:
        What kind of list it is, "" if that is not known.
    """
    items = _items(text, tally, where)
    first = next((item for item in items if isinstance(item, dict)), None)
    if first is None:
        return ""
    if "attempts" in first:
        kind, read = "Philly", _philly
    elif first.get("kind") == "Workload" or "podSets" in first.get("spec", {}):
        kind, read = "Kueue workloads", _workload
    elif first.get("kind") == "Pod" or "containers" in first.get("spec", {}):
        kind, read = "pods", _pod
    else:
        return ""
    for i, item in enumerate(items):
        tally.rows += 1
        try:
            tally.add(read(item, tally), f"{where}, item {i}")
        except BadRow as error:
            tally.refuse(str(error), f"{where}, item {i}")
        except (KeyError, TypeError, ValueError, AttributeError):
            tally.refuse("it has not the fields that it should have", f"{where}, item {i}")
    return kind


def _items(text: str, tally: Tally, where: str) -> list[Any]:
    try:
        whole = json.loads(text)
        if isinstance(whole, dict):
            items = whole.get("items", [whole])
            return items if isinstance(items, list) else []
        return whole if isinstance(whole, list) else []
    except RecursionError:  # nothing that tells of jobs is nested like that
        return []
    except ValueError:
        pass
    start = text.find("[", max(text.find('"items"'), 0))
    items, decoder = [], json.JSONDecoder()
    while start >= 0:
        start += 1
        while start < len(text) and text[start] in " \t\r\n,":
            start += 1
        try:
            item, end = decoder.raw_decode(text, start)
        except ValueError:
            break
        items.append(item)
        start = end - 1
    tally.notes.append(
        f"{where} breaks off at character {max(start, 0)}; {len(items)} items before it were read"
    )
    return items


def _philly(item: Mapping[str, Any], tally: Tally) -> Job:
    spans: list[tuple[float, Number, int]] = []
    nodes = 1
    for attempt in item["attempts"]:
        start, end = tally.time(attempt.get("start_time")), tally.time(attempt.get("end_time"))
        gpus = sum(len(machine["gpus"]) for machine in attempt["detail"])
        if not isinstance(start, Missing):
            spans.append((float(start), end, gpus))
            nodes = max(nodes, len(attempt["detail"]))
    most = max((gpus for _, _, gpus in spans), default=0)
    held_s = sum((end - start) * gpus for start, end, gpus in spans if not isinstance(end, Missing))
    ended = [float(end) for _, end, _ in spans if not isinstance(end, Missing)]
    is_running = bool(spans) and len(ended) < len(spans)
    state = "running" if is_running else _PHILLY_STATES.get(item.get("status", ""), "failed")
    return Job(
        job_id=str(item["jobid"]),
        team=str(item.get("vc", "")),
        user=str(item.get("user", "")),
        gpus=most if spans else Missing("it never ran"),
        submit_s=tally.time(item.get("submitted_time")),
        start_s=min((start for start, _, _ in spans), default=Missing("it never ran")),
        end_s=max(ended) if ended and not is_running else Missing("not told"),
        ran_s=held_s / most if most else 0.0,
        state=state if spans or state != "completed" else "cancelled",
        nodes=nodes,
    )


def _workload(item: Mapping[str, Any], tally: Tally) -> Job:
    spec, status, about = item["spec"], item.get("status", {}), item["metadata"]
    gpus, nodes = 0.0, 0
    for pods in spec["podSets"]:
        count = int(pods.get("count", 1))
        gpus += count * _devices(pods["template"]["spec"])
        nodes += count
    start, done = _since(status, "Admitted", tally), _since(status, "Finished", tally)
    kind = spec.get("priorityClassName") or (spec.get("priorityClassRef") or {}).get("name", "")
    queue = (status.get("admission") or {}).get("clusterQueue") or spec.get("queueName", "")
    return _kubernetes_job(
        about, str(queue or about.get("namespace", "")), gpus, nodes, start, done, kind, tally
    )


def _pod(item: Mapping[str, Any], tally: Tally) -> Job:
    spec, status, about = item["spec"], item.get("status", {}), item["metadata"]
    ends = [
        tally.time(state["terminated"].get("finishedAt"))
        for one in status.get("containerStatuses", [])
        for state in [one.get("state", {})]
        if "terminated" in state
    ]
    known = [float(end) for end in ends if not isinstance(end, Missing)]
    is_over = status.get("phase") in ("Succeeded", "Failed")
    done: Number = max(known) if known and is_over else Missing("it is not over")
    start = tally.time(status.get("startTime"))
    team = str(about.get("namespace", ""))
    kind = str(spec.get("priorityClassName", ""))
    return _kubernetes_job(about, team, _devices(spec), 1, start, done, kind, tally)


def _kubernetes_job(
    about: Mapping[str, Any],
    team: str,
    gpus: float,
    nodes: int,
    start: Number,
    done: Number,
    kind: str,
    tally: Tally,
) -> Job:
    state: JobState = "pending" if isinstance(start, Missing) else "running"
    ran: Number = 0.0 if isinstance(start, Missing) else NOT_TOLD
    if not isinstance(done, Missing):
        state = "cancelled" if isinstance(start, Missing) else "completed"
        ran = 0.0 if isinstance(start, Missing) else done - start
    labels = about.get("labels") or {}
    return Job(
        job_id=f"{about.get('namespace', '')}/{about['name']}",
        team=team,
        user=str(labels.get("user", "")),
        gpus=gpus,
        submit_s=tally.time(about.get("creationTimestamp")),
        start_s=start,
        end_s=done,
        ran_s=ran,
        state=state,
        priority_class=kind,
        nodes=max(nodes, 1),
    )


def _devices(pod: Mapping[str, Any]) -> float:
    """The devices of a pod's containers, requested or limited."""
    total = 0.0
    for container in pod.get("containers", []):
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        total += sum(float(count) for name, count in asked.items() if name.endswith(_DEVICES))
    return total


def _since(status: Mapping[str, Any], kind: str, tally: Tally) -> Number:
    """Since when a condition is true."""
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or []
    for condition in conditions:
        if condition.get("type") == kind and condition.get("status") == "True":
            return tally.time(condition.get("lastTransitionTime"))
    return Missing(f"it is not {kind.lower()}")
