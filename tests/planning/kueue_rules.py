"""What a Kubernetes API server would say to Kueue's objects: strict schemas of the CRDs, and their rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = json.loads((Path(__file__).parents[1] / "data" / "fleet" / "kueue_schemas.json").read_text())
API = "kueue.x-k8s.io/v1beta2"


def complaints(found: dict[str, Any]) -> list[str]:
    """All that is wrong with one object."""
    if found.get("apiVersion") != API or found.get("kind") not in SCHEMAS:
        return [f"no resource {found.get('apiVersion')} {found.get('kind')}"]
    schema = _strict(SCHEMAS[found["kind"]])
    wrong = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(found)]
    return wrong or [*_of_rules(found["kind"], found.get("spec", {}))]


def _strict(schema: Any) -> Any:
    """As `kubectl` asks the server to be: a field that is not known is an error, not dropped."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        strict["additionalProperties"] = False
    return strict


def _of_rules(kind: str, spec: dict[str, Any]) -> Iterator[str]:
    """The CEL rules of the CRDs, and what Kueue's webhook refuses."""
    if kind == "Topology":
        labels = [level["nodeLabel"] for level in spec["levels"]]
        if len(set(labels)) < len(labels):
            yield "levels must be unique"
        if "kubernetes.io/hostname" in labels[:-1]:
            yield "kubernetes.io/hostname can only be used at the lowest level"
    if kind == "ResourceFlavor":
        if spec.get("topologyName") and not spec.get("nodeLabels"):
            yield "at least one nodeLabel is required when topology is set"
        for taint in spec.get("nodeTaints", []):
            if taint["effect"] not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                yield "taint effect"
    covered: list[str] = []
    for group in spec.get("resourceGroups", []):
        covered += group["coveredResources"]
        for flavor in group["flavors"]:
            if [resource["name"] for resource in flavor["resources"]] != group["coveredResources"]:
                yield "flavors must have the same resources as coveredResources, in their order"
            for resource in flavor["resources"]:
                limited = {"borrowingLimit", "lendingLimit"} & resource.keys()
                if limited and not spec.get("cohortName") and kind == "ClusterQueue":
                    yield f"{limited} must be nil when cohort is empty"
    if len(set(covered)) < len(covered):
        yield "a resource is covered by one group"
    if kind == "ClusterQueue":
        preemption, fungible = spec.get("preemption", {}), spec.get("flavorFungibility", {})
        loans = preemption.get("borrowWithinCohort", {}).get("policy", "Never")
        if preemption.get("reclaimWithinCohort", "Never") == "Never" and loans != "Never":
            yield "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never"
        if "preference" in fungible and {fungible.get("whenCanBorrow"), fungible.get("whenCanPreempt")} != {
            "TryNextFlavor"
        }:
            yield "preference can only be set when both are TryNextFlavor"
