"""T_claim: the time within which a guarantee is honoured, the same for every queue and for the replay."""

from __future__ import annotations

from jupyter_gpuprof.records.fleetpolicy import FleetPolicy
from jupyter_gpuprof.records.reading import Missing, Number


def claim_bound_s(policy: FleetPolicy) -> Number:
    """Seconds from a claim until its job runs, at most; missing where nobody gives way."""
    if not policy.gang:
        return Missing("nobody gives way without gang scheduling")
    return policy.reclaim.bound_s


def claim_parts(policy: FleetPolicy) -> str:
    """What the bound is made of: ``cycle 30 s + notice 0 s + ...``."""
    reclaim = policy.reclaim
    parts = (
        ("cycle", reclaim.cycle_s),
        ("notice", reclaim.notice_s),
        ("grace", reclaim.grace_s),
        ("teardown", reclaim.teardown_s),
        ("start", reclaim.start_s),
    )
    return " + ".join(f"{name} {value_s:g} s" for name, value_s in parts)


def grace_note(policy: FleetPolicy, save_p99_s: Number) -> str:
    """What becomes of work if a save does not fit into the grace time; "" if it fits, or is not known.

    Args:
        policy: how the pool is shared.
        save_p99_s: what a save takes at most.
    """
    grace_s, interval_s = policy.reclaim.grace_s, policy.checkpoint.interval_s
    if isinstance(save_p99_s, Missing) or save_p99_s <= grace_s:
        return ""
    loses = f"what it did since its last checkpoint, up to {interval_s:g} s" if interval_s else "its work"
    return (
        f"the grace time of {grace_s:g} s is shorter than the p99 of a save, {save_p99_s:.3g} s:"
        f" a preempted job loses {loses}"
    )
