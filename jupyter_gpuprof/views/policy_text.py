"""The reaper's policy in one line, for the log and for status."""

from __future__ import annotations

from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.views.format import byte_size, seconds


def policy_line(policy: Policy) -> str:
    """The effective values, with their units."""
    if not policy.enabled:
        return "the reaper is off"
    parts = [
        f"reaper on{' (dry run)' if policy.dry_run else ''}: action {policy.action}",
        f"idle timeout {seconds(policy.idle_timeout_s)}",
        f"warning {seconds(policy.warn_before_s)} before",
        f"busy timeout {'off' if policy.busy_timeout_s is None else seconds(policy.busy_timeout_s)}",
        f"from {byte_size(policy.min_held_bytes)} held",
        f"exempt {', '.join(policy.exempt) or 'nothing'}",
        f"orphans are {'ended' if policy.orphans == 'end' else 'reported'}",
        f"keep for {seconds(policy.keep_max_s)} at most",
    ]
    if policy.kernelspecs:
        parts.append(f"other values for {', '.join(sorted(policy.kernelspecs))}")
    if policy.hook is not None:
        parts.append("a policy hook is asked last")
    return "; ".join(parts)
