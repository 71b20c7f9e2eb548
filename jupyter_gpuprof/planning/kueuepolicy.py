"""A policy in Kueue's words: one file of v1beta2 objects, and one job to copy from.

Each team is a ClusterQueue of one Cohort, with its guarantee as nominal quota and its limit of loans as
borrowing limit. What is guaranteed to nobody, and spot capacity, belong to the Cohort: everyone may borrow
it. A claim takes back whatever others borrow; a loan takes nothing from anybody.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.claimtime import claim_parts
from jupyter_gpuprof.planning.kueuenotes import OTHERS, kueue_notes
from jupyter_gpuprof.planning.yamltext import yaml_text
from jupyter_gpuprof.records.emission import Emission, EmittedFile
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, Team

QUEUES, JOB = "gpuprof-kueue.yaml", "gpuprof-job.yaml"

_API = "kueue.x-k8s.io/v1beta2"
_GPU = "nvidia.com/gpu"
#: The label that tells stable machines from spot ones, and the taint that keeps others off spot.
_LABEL = "gpuprof/capacity"
_STABLE, _SPOT = "gpu-stable", "gpu-spot"
#: A queue must cover all that its jobs ask for; of these there is always enough. They stand with the GPUs in
#: one flavor, since topology-aware scheduling takes no job that is divided over two.
_PLENTY = {"cpu": "1000000", "memory": "1Pi", "ephemeral-storage": "1Pi"}
_NAMESPACE = "kubernetes.io/metadata.name"
_MOST_LETTERS = 63

_Object = dict[str, Any]


def kueue_emission(policy: FleetPolicy) -> Emission:
    """The policy for Kueue 0.15 or newer.

    Raises:
        OptionError: two teams or classes would have the same name in Kubernetes.
    """
    teams = _named((name for name, _ in policy.teams), "teams")
    classes = _named((name for name, _ in policy.classes), "classes")
    objects = [*_flavors(policy), _cohort(policy)]
    for name, team in policy.teams:
        own = {"matchLabels": {_NAMESPACE: teams[name]}}
        objects += [_cluster_queue(policy, teams[name], team, own), _local_queue(teams[name])]
    objects.append(_cluster_queue(policy, OTHERS, Team(), _outside(list(teams.values()))))
    for name, kind in policy.classes:
        objects.append(_object("WorkloadPriorityClass", classes[name]) | {"value": kind.priority})
    labels = f"{_LABEL}=stable{' or spot' if policy.spot.gpus else ''}"
    head = (
        f"# How {policy.name} is shared, for Kueue 0.15 or newer: kubectl apply -f {QUEUES}\n"
        f"# T_claim = {policy.reclaim.bound_s:g} s = {claim_parts(policy)}\n"
        f"# Label the machines {labels}, and give each team a namespace of its name.\n"
        f"# {JOB} shows what a job says.\n"
    )
    text = head + "\n---\n".join(yaml_text(one) for one in objects) + "\n"
    files = (EmittedFile(QUEUES, text), EmittedFile(JOB, _job(policy, teams, classes)))
    renamed = [f"{old or '(no team)'} is {new}" for old, new in {**teams, **classes}.items() if old != new]
    return Emission("kueue", files, kueue_notes(policy, renamed))


def _named(names: Iterable[str], what: str) -> dict[str, str]:
    """Names as Kubernetes takes them: lower case, letters, digits and hyphens."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_MOST_LETTERS].strip("-") or "no-team"
        if plain == OTHERS:
            plain = f"{plain}-{what}"
        if plain in found.values():
            raise OptionError(
                f"Two {what} would both be called {plain} in Kubernetes.", "Rename one of them."
            )
        found[name] = plain
    return found


def _object(kind: str, name: str, spec: _Object | None = None, namespace: str = "") -> _Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": _API, "kind": kind, "metadata": metadata} | ({"spec": spec} if spec else {})


def _flavors(policy: FleetPolicy) -> list[_Object]:
    """The machines; with `nodes`, Kueue looks whether each pod finds one."""
    found, topology = [], {}
    if policy.nodes:
        # Of all flavors or of none: a queue with both gives machines by topology to nobody who does not ask.
        topology = {"topologyName": _STABLE}
        found.append(_object("Topology", _STABLE, {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}))
    found.append(_object("ResourceFlavor", _STABLE, {"nodeLabels": {_LABEL: "stable"}, **topology}))
    if policy.spot.gpus:
        spot = {"nodeLabels": {_LABEL: "spot"}, "nodeTaints": [_taint()], **topology}
        found.append(_object("ResourceFlavor", _SPOT, spot))
    return found


def _taint() -> _Object:
    return {"key": _LABEL, "value": "spot", "effect": "NoSchedule"}


def _cohort(policy: FleetPolicy) -> _Object:
    """What nobody is guaranteed, for everyone to borrow."""
    rest = policy.gpus - sum(team.guarantee for _, team in policy.teams)
    flavors = [_quotas(_STABLE, {_GPU: rest})]
    if policy.spot.gpus:
        flavors.append(_quotas(_SPOT, {_GPU: policy.spot.gpus}))
    group = {"coveredResources": [_GPU], "flavors": flavors}
    return _object("Cohort", _cohort_name(policy), {"resourceGroups": [group]})


def _cohort_name(policy: FleetPolicy) -> str:
    return _named([policy.name], "policies")[policy.name]


def _cluster_queue(policy: FleetPolicy, name: str, team: Team, namespaces: _Object) -> _Object:
    priorities = {0, *(kind.priority for _, kind in policy.classes)}
    flavors = [_quotas(_STABLE, {_GPU: team.guarantee, **_PLENTY}, team.borrow)]
    spec: _Object = {
        "cohortName": _cohort_name(policy),
        "namespaceSelector": namespaces,
        "queueingStrategy": "StrictFIFO" if policy.line == "fifo" else "BestEffortFIFO",
        "preemption": {
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "Never"},
            "withinClusterQueue": "LowerPriority" if len(priorities) > 1 else "Never",
        },
    }
    if policy.spot.gpus:
        # Who can claim, claims; only who can neither claim nor borrow stable GPUs goes on to spot.
        spec["flavorFungibility"] = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
        flavors.append(_quotas(_SPOT, {_GPU: 0, **_PLENTY}))
    spec["resourceGroups"] = [{"coveredResources": [_GPU, *_PLENTY], "flavors": flavors}]
    return _object("ClusterQueue", name, spec)


def _quotas(flavor: str, quotas: _Object, borrow: int | None = None) -> _Object:
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    if borrow is not None:
        resources[0]["borrowingLimit"] = borrow
    return {"name": flavor, "resources": resources}


def _local_queue(name: str) -> _Object:
    return _object("LocalQueue", name, {"clusterQueue": name}, name)


def _outside(teams: Sequence[str]) -> _Object:
    """All namespaces but those of the teams."""
    if not teams:
        return {}
    return {"matchExpressions": [{"key": _NAMESPACE, "operator": "NotIn", "values": list(teams)}]}


def _job(policy: FleetPolicy, teams: dict[str, str], classes: dict[str, str]) -> str:
    """A job of the first team, with what makes the policy hold for it."""
    team = next(iter(teams.values()), OTHERS)
    pod: _Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.floor(policy.reclaim.grace_s),
        "containers": [
            {
                "name": "train",
                "image": "IMAGE",
                "resources": {"requests": {"cpu": "8", "memory": "32Gi"}, "limits": {_GPU: 1}},
            }
        ],
    }
    head = "# What a job says. Without terminationGracePeriodSeconds, Kubernetes gives it 30 s to save.\n"
    for name in classes.values():
        head += f"# Of class {name}: one more label, kueue.x-k8s.io/priority-class: {name}\n"
    if policy.spot.gpus:
        pod["tolerations"] = [_taint()]
        head += "# Without the toleration it never runs on spot capacity.\n"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": team, "labels": {"kueue.x-k8s.io/queue-name": team}},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    return head + yaml_text(job) + "\n"
