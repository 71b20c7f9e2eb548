"""A policy as the configuration of a real queue, with what a person should know before applying it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from jupyter_gpuprof.planning.claimtime import claim_bound_s, claim_parts, grace_note
from jupyter_gpuprof.records.emission import Emission, Queue
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.spot import CheckpointCost
from jupyter_gpuprof.store.trials import recent_curves


@dataclass(frozen=True)
class ClaimTime:
    """T_claim, and the parts it is made of, in words."""

    bound_s: Number
    parts: str


def emit_policy(
    queue: Queue, policy: FleetPolicy, *, save_p99_s: float | None = None
) -> tuple[Emission, ClaimTime]:
    """The policy for the queue; nothing is applied.

    Args:
        queue: which one.
        policy: how the pool is shared.
        save_p99_s: what a save takes at most; by default the longest that was measured, of the last
            measurement of each job, or else what the policy says.

    Raises:
        OptionError: names of the policy cannot be told apart in the queue.
    """
    if queue == "slurm":
        from jupyter_gpuprof.planning.slurmpolicy import slurm_emission as emission_of
    else:
        from jupyter_gpuprof.planning.kueuepolicy import kueue_emission as emission_of
    # The name goes into comments: it is one line.
    emission = emission_of(dataclasses.replace(policy, name=" ".join(policy.name.split())))
    bound_s = claim_bound_s(dataclasses.replace(policy, gang=True))  # both queues admit a job as a whole
    note = _on_grace(policy, save_p99_s)
    notes = (note, *emission.notes) if note else emission.notes
    return dataclasses.replace(emission, notes=notes), ClaimTime(bound_s, claim_parts(policy))


def _on_grace(policy: FleetPolicy, given_s: float | None) -> str:
    if given_s is not None:
        return grace_note(policy, given_s)
    measured = _slowest_save()
    if measured is not None:
        name, p99_s = measured
        note = grace_note(policy, p99_s)
        return f"{note} (measured of {name})" if note else ""
    if isinstance(policy.checkpoint.save_s, Missing):
        return (
            "whether a save fits into the grace time is not known: measure one with %gpuprof checkpoint, or"
            " give --checkpoint-p99"
        )
    return grace_note(policy, policy.checkpoint.save_s)


def _slowest_save() -> tuple[str, float] | None:
    """The job whose last measured save took longest, by the way of saving to go by, until it was safe."""
    last: dict[str, CheckpointCost] = {}
    for cost in recent_curves(CheckpointCost, limit=None):  # the newest first
        if cost.ways:
            last.setdefault(cost.run_name, cost)
    found = [(name, cost.ways[0].durable_p99_s) for name, cost in last.items()]
    return max(found, key=lambda one: one[1], default=None)
