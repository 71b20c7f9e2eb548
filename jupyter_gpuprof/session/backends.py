"""Which backend the options of a door name."""

from __future__ import annotations

from typing import Any

from jupyter_gpuprof.session.launch import Backend


def backend_of(args: Any) -> Backend | None:
    """The backend of ``--on``; None for this machine.

    Raises:
        ImportError: what it needs is not installed; the message says how to install it.
    """
    if args.on != "slurm":
        return None
    from jupyter_gpuprof.session.slurm import Slurm, SlurmOptions

    return Slurm(
        SlurmOptions(
            partition=args.partition,
            account=args.account,
            gpus_per_node=args.gpus_per_node,
            minutes=args.time,
        )
    )
