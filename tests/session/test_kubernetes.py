"""The manifests are what the JobSet API asks for, and their command runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.session.reruns.job import Job
from jupyter_gpuprof.session.reruns.kubernetes import KubernetesOptions, manifests
from jupyter_gpuprof.session.reruns.layout import spread

JOB = Job("", "Train me", 20, script=("train.py", "--epochs", "2", "$(DATE)", 'a "quoted" 😀'))
GPUS = KubernetesOptions("registry.example/train:1", gpus_per_node=4, namespace="team", claim="results")

NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}


def closed(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these fields and no other."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


POSITIVE = {"type": "integer", "minimum": 1}
TEXT = {"type": "string", "minLength": 1}
CONTAINER = closed(
    {
        "name": NAME,
        "image": TEXT,
        "command": one_or_more(TEXT),
        "env": one_or_more(closed({"name": TEXT, "value": {"type": "string"}})),
        "ports": one_or_more(closed({"containerPort": POSITIVE})),
        "volumeMounts": one_or_more(closed({"name": NAME, "mountPath": {"pattern": "^/"}})),
    },
    resources=closed({"limits": {"type": "object", "additionalProperties": POSITIVE}}),
)
VOLUME = closed(
    {"name": NAME},
    emptyDir=closed({}, medium={"enum": ["", "Memory"]}),
    persistentVolumeClaim=closed({"claimName": TEXT}),
)
POD = closed(
    {
        "restartPolicy": {"const": "Never"},
        "containers": one_or_more(CONTAINER),
        "volumes": one_or_more(VOLUME),
    }
)
JOB_SPEC = closed(
    {
        "completionMode": {"const": "Indexed"},
        "completions": POSITIVE,
        "parallelism": POSITIVE,
        "backoffLimit": {"const": 0},
        "template": closed({"spec": POD}),
    }
)
#: The part of jobset.x-k8s.io/v1alpha2, batch/v1 and v1 that we use, by their public reference.
JOB_SET = closed(
    {
        "apiVersion": {"const": "jobset.x-k8s.io/v1alpha2"},
        "kind": {"const": "JobSet"},
        "metadata": closed({"name": NAME}, namespace=NAME),
        "spec": closed(
            {
                "network": closed({"enableDNSHostnames": {"const": True}}),
                "failurePolicy": closed({"maxRestarts": {"const": 0}}),
                "replicatedJobs": one_or_more(
                    closed({"name": NAME, "replicas": POSITIVE, "template": closed({"spec": JOB_SPEC})})
                ),
            }
        ),
    }
)


def documents(
    options: KubernetesOptions = GPUS, counts: tuple[int, ...] = (1, 2, 4, 8), job: Job = JOB
) -> list[Any]:
    return list(yaml.safe_load_all(manifests(job, counts, options)))


def rank_of(document: Any) -> Any:
    return job_of(document)["template"]["spec"]["containers"][0]


def job_of(document: Any) -> Any:
    return document["spec"]["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize("options", [GPUS, KubernetesOptions("image")])
def test_each_count_is_a_job_set(options: KubernetesOptions) -> None:
    found = documents(options)
    assert len(found) == 4
    for document in found:
        jsonschema.validate(document, JOB_SET)
    assert len({document["metadata"]["name"] for document in found}) == 4


@pytest.mark.parametrize("name", ["", "9 lives", "Übung", "a" * 200, "a" * 31 + "-b"])
def test_names_of_pods_are_dns_labels(name: str) -> None:
    (document,) = documents(counts=(128,), job=Job("", name, 20, script=("train.py",)))
    jsonschema.validate(document, JOB_SET)
    jsonschema.validate(f"{document['metadata']['name']}-ranks-0-127-abcde", NAME)


def test_ranks_are_spread_over_pods_that_are_full() -> None:
    pods = [
        (job_of(d)["completions"], rank_of(d)["resources"]["limits"]["nvidia.com/gpu"]) for d in documents()
    ]
    assert pods == [(1, 1), (1, 2), (1, 4), (2, 4)]
    for document, (nodes, gpus) in zip(documents(), pods, strict=True):
        assert job_of(document)["parallelism"] == nodes
        assert f"--nnodes={nodes}" in rank_of(document)["command"]
        assert f"--nproc-per-node={gpus}" in rank_of(document)["command"]


def test_without_gpus_a_pod_is_a_rank() -> None:
    (document,) = documents(KubernetesOptions("image"), counts=(3,))
    assert job_of(document)["completions"] == 3
    assert "resources" not in rank_of(document)
    assert "namespace" not in document["metadata"]


def test_the_first_pod_is_where_the_ranks_meet() -> None:
    (document,) = documents(counts=(8,))
    name = document["metadata"]["name"]
    assert name == "gpuprof-train-me-8"
    assert f"--master-addr={name}-ranks-0-0.{name}" in rank_of(document)["command"]


def test_the_persons_arguments_arrive_as_they_are() -> None:
    (document,) = documents(counts=(1,))
    assert rank_of(document)["command"][-5:] == ["train.py", "--epochs", "2", "$$(DATE)", 'a "quoted" 😀']


@pytest.mark.parametrize(
    ("options", "counts", "job", "says"),
    [
        (GPUS, (6, 5), JOB, "5 ranks cannot be spread evenly over pods of at most 4."),
        (KubernetesOptions(""), (1,), JOB, "Kubernetes needs an image."),
        (
            KubernetesOptions("image", gpus_per_node=0),
            (1,),
            JOB,
            "GPUs per node are a whole number from 1 on.",
        ),
        (GPUS, (1,), Job("x = 1", "cell", 20), "A pod cannot see this kernel's names."),
    ],
)
def test_what_cannot_be_is_one_sentence(
    options: KubernetesOptions, counts: tuple[int, ...], job: Job, says: str
) -> None:
    with pytest.raises((UsageError, OptionError)) as caught:
        manifests(job, counts, options)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize("per_node", [1, 2, 3, 8])
def test_spreading_leaves_nobody_out(per_node: int) -> None:
    for count in range(1, 40):
        nodes, each = spread(count, per_node)
        assert each <= per_node
        assert (nodes - 1) * per_node < count <= nodes * each


@pytest.mark.slow
def test_the_command_runs_in_two_pods(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "torch.set_num_threads(1)\n"
        "torch.distributed.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.01)\n"
        "for (x,) in DataLoader(TensorDataset(torch.randn(int(sys.argv[1]), 8)), batch_size=4):\n"
        "    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    job = Job("", "train", 20, script=(str(tmp_path / "train.py"), "64"))
    (document,) = documents(KubernetesOptions("image"), counts=(2,), job=job)
    name = document["metadata"]["name"]
    env = {
        pair["name"]: pair["value"].replace("/gpuprof", str(tmp_path)) for pair in rank_of(document)["env"]
    }
    pods = []
    for index in range(2):
        words = [
            word.replace("$(JOB_COMPLETION_INDEX)", str(index))
            .replace(f"{name}-ranks-0-0.{name}", "127.0.0.1")
            .replace("=29500", f"={20000 + os.getpid() % 10000}")
            .replace("=/gpuprof", f"={tmp_path}")
            for word in rank_of(document)["command"]
        ]
        assert words[0] == "torchrun"
        words[:1] = [sys.executable, "-m", "torch.distributed.run"]
        pods.append(
            subprocess.Popen(
                words, env={**os.environ, **env, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True
            )
        )
    try:
        printed = [pod.communicate(timeout=120)[0] for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
            pod.wait()
    assert [pod.returncode for pod in pods] == [0, 0]
    assert name in printed[0]
    assert printed[1] == ""
    run = json.loads((tmp_path / f"{name}.json").read_text())
    assert len(run["ranks"]["rows"]) == 2
