"""Which backend the options of a door name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.session.reruns.job import Job
from jupyter_gpuprof.session.reruns.launch import Backend
from jupyter_gpuprof.session.reruns.rerun import FEWEST_STEPS


def backend_of(args: Any) -> Backend | None:
    """The backend of ``--on``; None for this machine.

    Raises:
        ImportError: what it needs is not installed; the message says how to install it.
    """
    if args.on is None:
        return None
    from jupyter_gpuprof.session.reruns.slurm import Slurm, SlurmOptions

    return Slurm(
        SlurmOptions(
            partition=args.partition,
            account=args.account,
            gpus_per_node=args.gpus_per_node,
            minutes=args.time,
        )
    )


def device_kind_of(backend: Backend | None) -> str | None:
    """What each rank of a backend has one of, where it was told; None for that of this machine."""
    options = getattr(backend, "options", None)
    if options is None:
        return None
    return "cuda" if options.gpus_per_node else "cpu"


def kubernetes_manifests(script: Sequence[str], name: str, counts: Sequence[int], args: Any) -> str:
    """What ``--on kubernetes --dry-run`` prints.

    Raises:
        UsageError: without ``--dry-run``, or what `manifests` refuses.
    """
    from jupyter_gpuprof.session.reruns.kubernetes import KubernetesOptions, manifests

    if not args.dry_run:
        raise UsageError("Nothing is sent to Kubernetes: its manifests are only written.", "Add --dry-run.")
    job = Job(source="", name=name, steps=args.steps or FEWEST_STEPS, script=tuple(script))
    options = KubernetesOptions(args.image, args.gpus_per_node, args.namespace, args.claim)
    return manifests(job, counts, options)
