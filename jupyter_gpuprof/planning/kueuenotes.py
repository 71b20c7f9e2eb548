"""What a policy asks for that Kueue cannot do, or does in another way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.reading import Missing

#: The queue of teams that the policy does not name: they only borrow.
OTHERS = "others"


def kueue_notes(policy: FleetPolicy, renamed: Sequence[str]) -> tuple[str, ...]:
    """One sentence each, the most important first.

    Args:
        policy: how the pool is shared.
        renamed: names that Kubernetes does not take, with what they became.
    """
    kept = [name for name, kind in policy.classes if not kind.preemptible]
    notes = [
        "Kueue bounds no reclaim by itself: T_claim holds where pods carry the terminationGracePeriodSeconds"
        " of the example job, and a pod that cannot be ended holds the claim up",
        f"teams that the policy does not name need a LocalQueue of their own for the ClusterQueue {OTHERS}",
    ]
    if renamed:
        notes.append(f"names were changed to what Kubernetes takes: {', '.join(renamed)}")
    if kept:
        notes.append(
            "Kueue has no job that never gives way: what jobs of"
            f" {', '.join(kept)} borrow is taken back as well"
        )
    if len({0, *(kind.priority for _, kind in policy.classes)}) > 1:
        notes.append(
            "a higher class also stops lower ones of its own team for what it borrows, not only within the"
            " guarantee"
        )
    if policy.line == "fifo":
        notes.append(
            "the next in line blocks its own team alone; a loan that waits does not block other teams"
        )
    if policy.line == "skip":
        notes.append("Kueue tries those who do not fit again only when something ends in their cohort")
    if policy.line == "backfill":
        notes.append(
            "Kueue keeps no date for the first in line and knows no time limits, so large jobs are passed as"
            " with line: skip"
        )
    if math.isfinite(policy.aging_s):
        notes.append("Kueue has no aging: a lower class waits for as long as higher ones come")
    if not policy.gang:
        notes.append(
            "Kueue admits a job with the quota of all its pods at once; gang: false has no counterpart"
        )
    else:
        notes.append(
            "that all pods of a job start together or not at all needs waitForPodsReady in Kueue's own"
            " configuration"
        )
    if policy.nodes:
        notes.append(
            "whether pods find machines is looked at by topology-aware scheduling (on since Kueue 0.14)"
        )
    if policy.spot.gpus:
        notes.append("loans go to spot capacity last, where the replay sends them first")
    if any(not isinstance(team.p90_s, Missing) for _, team in policy.teams):
        notes.append("Kueue keeps no limit on waits (p90); fleet report measures them")
    return tuple(notes)
