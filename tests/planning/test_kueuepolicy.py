"""A policy as Kueue's objects: accepted by its schemas and rules, and the policy's own numbers read back."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.kueuepolicy import JOB, QUEUES, kueue_emission
from jupyter_gpuprof.planning.yamltext import yaml_text
from jupyter_gpuprof.records.fleetpolicy import LINES, FleetPolicy, PriorityClass, Reclaim, Spot, Team
from tests.planning.kueue_rules import SCHEMAS, complaints

TEAMS = (("vision", Team(16, 8)), ("Speech Lab", Team(8)), ("123", Team(0, 0)))
POLICY = FleetPolicy(
    "pool of may", 32, nodes=(8,) * 4, teams=TEAMS,
    classes=(("release", PriorityClass(10, preemptible=False)),),
    reclaim=Reclaim(30, 0, 120, 5, 20), spot=Spot(4, 6 * 3600.0, 30.0), aging_s=3600,
)  # fmt: skip


def objects(policy: FleetPolicy, file: str = QUEUES) -> list[dict[str, Any]]:
    text = next(one.text for one in kueue_emission(policy).files if one.name == file)
    return list(yaml.safe_load_all(text))


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


def gpus(queue: dict[str, Any], flavor: str = "gpu-stable") -> dict[str, Any]:
    (group,) = queue["spec"]["resourceGroups"]
    (found,) = (one for one in group["flavors"] if one["name"] == flavor)
    return next(one for one in found["resources"] if one["name"] == "nvidia.com/gpu")


names = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)


@given(
    st.integers(0, 40),
    st.dictionaries(names, st.tuples(st.integers(0, 8), st.none() | st.integers(0, 9)), max_size=3),
    st.dictionaries(names, st.tuples(st.integers(-50, 50), st.booleans()), max_size=3),
    st.sampled_from(LINES),
    st.booleans(),
    st.integers(0, 4),
)
def test_every_policy_is_accepted_and_its_gpus_add_up(
    free: int, teams: Any, classes: Any, line: Any, with_nodes: bool, spot: int
) -> None:
    total = free + sum(guarantee for guarantee, _ in teams.values())
    if not total + spot:
        return
    policy = FleetPolicy(
        "p", total, nodes=(total,) if with_nodes and total else (),
        teams=tuple((name, Team(*team)) for name, team in teams.items()),
        classes=tuple((name, PriorityClass(*kind)) for name, kind in classes.items()),
        line=line, spot=Spot(spot),
    )  # fmt: skip
    try:
        found = objects(policy)
    except OptionError:
        return  # two of a name, below
    for one in found:
        assert complaints(one) == [], one
    queues, (cohort,) = of_kind(found, "ClusterQueue"), of_kind(found, "Cohort").values()
    promised = [gpus(queue)["nominalQuota"] for queue in queues.values()]
    assert sum(promised) + gpus(cohort)["nominalQuota"] == total
    assert len(of_kind(found, "LocalQueue")) == len(teams) == len(queues) - 1
    assert all(queue["spec"]["cohortName"] == cohort["metadata"]["name"] for queue in queues.values())


def test_shares_limits_and_what_is_taken_back() -> None:
    found = objects(POLICY)
    queues = of_kind(found, "ClusterQueue")
    assert list(queues) == ["vision", "speech-lab", "123", "others"]
    shares = [(gpus(q)["nominalQuota"], gpus(q).get("borrowingLimit")) for q in queues.values()]
    assert shares == [(16, 8), (8, None), (0, 0), (0, None)]
    (cohort,) = of_kind(found, "Cohort").values()
    assert (gpus(cohort)["nominalQuota"], gpus(cohort, "gpu-spot")["nominalQuota"]) == (8, 4)
    assert queues["vision"]["spec"]["preemption"] == {
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "Never"},
        "withinClusterQueue": "LowerPriority",
    }
    assert of_kind(found, "WorkloadPriorityClass")["release"]["value"] == 10
    local = of_kind(found, "LocalQueue")["speech-lab"]
    assert local["metadata"]["namespace"] == "speech-lab"
    (outside,) = queues["others"]["spec"]["namespaceSelector"]["matchExpressions"]
    assert outside["values"] == ["vision", "speech-lab", "123"]


def test_machines_and_spot() -> None:
    found = objects(POLICY)
    flavors = of_kind(found, "ResourceFlavor")
    assert {one["spec"]["topologyName"] for one in flavors.values()} == set(of_kind(found, "Topology"))
    (taint,) = flavors["gpu-spot"]["spec"]["nodeTaints"]
    (job,) = objects(POLICY, JOB)
    pod = job["spec"]["template"]["spec"]
    assert pod["tolerations"] == [taint]
    assert pod["terminationGracePeriodSeconds"] == 120
    plain = objects(FleetPolicy("p", 8))
    assert not of_kind(plain, "Topology")
    assert list(of_kind(plain, "ResourceFlavor")) == ["gpu-stable"]


@pytest.mark.parametrize(
    ("line", "strategy"), [("fifo", "StrictFIFO"), ("skip", "BestEffortFIFO"), ("backfill", "BestEffortFIFO")]
)
def test_the_line(line: Any, strategy: str) -> None:
    queues = of_kind(objects(FleetPolicy("p", 8, line=line)), "ClusterQueue")
    assert queues["others"]["spec"]["queueingStrategy"] == strategy


def test_what_kueue_cannot_do_is_said() -> None:
    notes = "\n".join(kueue_emission(POLICY).notes)
    for words in ("T_claim", "release borrow", "no aging", "Speech Lab is speech-lab", "spot capacity last"):
        assert words in notes
    quiet = "\n".join(kueue_emission(FleetPolicy("p", 8, aging_s=math.inf, line="skip")).notes)
    for words in ("aging", "never gives way", "names were", "spot", "p90"):
        assert words not in quiet
    assert "T_claim = 175 s = cycle 30 s" in kueue_emission(POLICY).files[0].text


def test_two_teams_of_one_name_are_refused() -> None:
    with pytest.raises(OptionError, match="Two teams would both be called a-b"):
        kueue_emission(FleetPolicy("p", 8, teams=(("a b", Team(1)), ("A-B", Team(1)))))


def test_the_rules_refuse_what_is_wrong() -> None:
    """Each of these is refused by a real API server; so a quiet checker would show here."""
    queue = of_kind(objects(POLICY), "ClusterQueue")["vision"]
    flavor = of_kind(objects(POLICY), "ResourceFlavor")["gpu-stable"]
    assert complaints(queue) == complaints(flavor) == []

    def changed(one: dict[str, Any], *path: Any, to: Any) -> list[str]:
        other = copy.deepcopy(one)
        place = other
        for key in path[:-1]:
            place = place[key]
        if to is None:
            del place[path[-1]]
        else:
            place[path[-1]] = to
        return complaints(other)

    first = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0)
    assert changed(queue, "spec", "cohort", to="p")  # the name of v1beta1
    assert changed(queue, "spec", "queueingStrategy", to="FIFO")
    assert changed(queue, *first, "nominalQuota", to="many")
    assert changed(queue, *first, "nominalQuota", to=None)
    assert changed(queue, *first, "name", to="amd.com/gpu")
    assert changed(queue, "spec", "cohortName", to=None)
    assert changed(queue, "spec", "cohortName", to="Not A Name")
    assert changed(queue, "spec", "preemption", to={"borrowWithinCohort": {"policy": "LowerPriority"}})
    assert changed(queue, "apiVersion", to="kueue.x-k8s.io/v1beta1")
    assert changed(flavor, "spec", "nodeLabels", to={})
    assert set(SCHEMAS) >= {"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology"}


scalars = names | st.integers() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(scalars | st.dictionaries(names, inner, min_size=1, max_size=2), max_size=3)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(names, values, min_size=1, max_size=4))
def test_yaml_reads_back_what_was_written(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


@pytest.mark.parametrize(
    "word", ["yes", "NULL", "0x1f", "1e3", "12:30:00", "2020-01-01", "-", "a: b", "é", "y"]
)
def test_words_that_yaml_takes_for_something_else(word: str) -> None:
    assert yaml.safe_load(yaml_text({word: [word, {"a": word}]})) == {word: [word, {"a": word}]}
