"""How long a process had to wait for a processor core, by the kernel's own count."""

from __future__ import annotations

from pathlib import Path


def core_wait_ns(pid: int | str = "self") -> int | None:
    """Nanoseconds for which a thread could have run while no core was free, since it began.

    The second figure of ``/proc/PID/schedstat``; None where the kernel does not count it.

    Args:
        pid: of a process, whose main thread is meant (by default this one), or "thread-self" for the caller.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
