"""A job for each device count as Kubernetes takes it: JobSets, to read, keep and apply; nothing is sent.

A JobSet (``jobset.x-k8s.io/v1alpha2``) is what Kubeflow's TrainJob is made into, and is there wherever
that is. It is used because it says everything by itself: a TrainJob leaves what happens after a failure to
a runtime that the cluster must have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.session.reruns.job import Job
from jupyter_gpuprof.session.reruns.layout import spread

#: Where the shared volume is mounted.
RESULTS = "/gpuprof"
PORT = 29500
#: A pod is called NAME-ranks-0-INDEX-xxxxx, which may have 63 letters.
_NAME_LETTERS = 40

_HEAD = """\
# One JobSet for each of: {counts}. Apply one at a time, so that they do not share a network or a disk:
#   kubectl create --filename FILE
# The image must have jupyter-gpuprof, torch and the script, which must distribute its work by itself.
# Rank 0 prints the report; {where}
"""

_MANIFEST = """\
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {name}{namespace}
spec:
  network:
    enableDNSHostnames: true
  failurePolicy:
    maxRestarts: 0  # a measurement that failed is over
  replicatedJobs:
    - name: ranks
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          completions: {nodes}
          parallelism: {nodes}
          backoffLimit: 0
          template:
            spec:
              restartPolicy: Never
              containers:
                - name: rank
                  image: {image}
                  command: {command}
                  env:
                    - name: JUPYTER_GPUPROF_DATABASE
                      value: {results}/ledger.db
                    - name: PYTHONUNBUFFERED
                      value: "1"
                  ports:
                    - containerPort: {port}{resources}
                  volumeMounts:
                    - name: results
                      mountPath: {results}
                    - name: shared-memory  # loader workers hand batches over in it
                      mountPath: /dev/shm
              volumes:
                - name: results
                  {volume}
                - name: shared-memory
                  emptyDir:
                    medium: Memory
"""

_RESOURCES = """
                  resources:
                    limits:
                      nvidia.com/gpu: {gpus}"""


@dataclass(frozen=True)
class KubernetesOptions:
    """What a person may choose.

    Args:
        image: of the container.
        gpus_per_node: ranks in each pod, each with a GPU; None runs one rank a pod, without GPUs.
        namespace: where the jobs belong; "" leaves it to kubectl.
        claim: a PersistentVolumeClaim that all pods can write; "" keeps the results in the log only.
    """

    image: str
    gpus_per_node: int | None = None
    namespace: str = ""
    claim: str = ""


def manifests(job: Job, counts: Sequence[int], options: KubernetesOptions) -> str:
    """A YAML stream with a JobSet for each count.

    Args:
        job: a job with a script.
        counts: device counts.
        options: what the cluster needs to know.

    Raises:
        UsageError: the job is a cell, or a count cannot be spread evenly over pods.
        OptionError: an option makes no sense.
    """
    if not job.script:
        raise UsageError(
            "A pod cannot see this kernel's names.",
            "Measure a script: jupyter gpuprof scale 1 2 4 --on kubernetes --dry-run -- train.py",
        )
    if not options.image:
        raise OptionError(
            "Kubernetes needs an image.", "Name one that has torch, jupyter-gpuprof and the script."
        )
    if options.gpus_per_node is not None and options.gpus_per_node < 1:
        raise OptionError("GPUs per node are a whole number from 1 on.")
    where = (
        f"all reports are in {RESULTS} of the claim {options.claim}."
        if options.claim
        else "without a shared volume it does not hear of ranks in other pods."
    )
    head = _HEAD.format(counts=", ".join(map(str, counts)), where=where)
    return head + "".join(_manifest(job, count, options) for count in counts)


def _manifest(job: Job, count: int, options: KubernetesOptions) -> str:
    nodes, each = spread(count, options.gpus_per_node or 1)
    if nodes * each != count:
        raise UsageError(
            f"{count} ranks cannot be spread evenly over pods of at most {options.gpus_per_node}.",
            "torchrun starts the same number in each; name another count.",
        )
    name = _dns_name(f"gpuprof-{job.name}", f"-{count}")
    return _MANIFEST.format(
        name=name,
        namespace=f"\n  namespace: {_quoted(options.namespace)}" if options.namespace else "",
        nodes=nodes,
        image=_quoted(options.image),
        command=_quoted(_command(job, name, nodes, each)),
        results=RESULTS,
        port=PORT,
        resources=_RESOURCES.format(gpus=each) if options.gpus_per_node else "",
        volume=f"persistentVolumeClaim: {{claimName: {_quoted(options.claim)}}}"
        if options.claim
        else "emptyDir: {}",
    )


def _command(job: Job, name: str, nodes: int, each: int) -> list[str]:
    """Torch's launcher on each pod; the first pod is where the ranks meet."""
    return [
        "torchrun",
        f"--nnodes={nodes}",
        f"--nproc-per-node={each}",
        "--node-rank=$(JOB_COMPLETION_INDEX)",  # set by Kubernetes in each pod of an indexed job
        f"--master-addr={name}-ranks-0-0.{name}",
        f"--master-port={PORT}",
        f"--rdzv-id={name}",
        "--max-restarts=0",
        "-m",
        "jupyter_gpuprof.cli.main",
        "run",
        f"--name={name}",
        f"--steps={job.steps}",
        f"--json={RESULTS}/{name}.json",
        "--no-live",
        # Kubernetes reads $ in a command; $$ is the person's own $.
        *(word.replace("$", "$$") for word in job.script),
    ]


def _quoted(value: object) -> str:
    """JSON, which is YAML too."""
    return json.dumps(value, ensure_ascii=False)


def _dns_name(text: str, end: str) -> str:
    """A name as RFC 1035 wants it: small letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())
    return plain[: _NAME_LETTERS - len(end)].strip("-") + end
