"""How much memory the host has left for more loader workers, and what a process takes for itself."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpuprof.records.reading import Missing, Number

#: A control group without a limit says so with a huge number.
_NO_LIMIT = 1 << 60


def free_bytes() -> Number:
    """Memory that new processes can have: the host's, or what a container's limit leaves if that is less."""
    try:
        import psutil

        available = int(psutil.virtual_memory().available)
    except Exception as error:
        return Missing(f"the host's memory could not be read ({error})")
    left = group_bytes()
    return available if left is None else min(available, left)


def own_bytes(pid: int | None = None) -> int | None:
    """Memory that would be free if the process were not there (its USS); None where that is not told."""
    try:
        import psutil

        return int(psutil.Process(pid).memory_full_info().uss)
    except Exception:
        return None


def private_bytes(pid: int) -> int | None:
    """Memory in use that the process shares with no other, about: cheaper than `own_bytes`."""
    try:
        import psutil

        told = psutil.Process(pid).memory_info()
        return int(told.rss) - int(getattr(told, "shared", 0))
    except Exception:
        return None


def group_bytes(root: Path = Path("/")) -> int | None:
    """What the limits of this process's control groups leave, files in the cache counted as free.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    found = []
    for _, controllers, path in (line.split(":", 2) for line in groups if line.count(":") >= 2):
        if not controllers:
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):  # inside a container its own group is often the top
            left = _left(folder, *names)
            if left is not None:
                found.append(left)
            if folder == top:
                break
    return min(found, default=None)


def _left(folder: Path, limit: str, usage: str) -> int | None:
    try:
        most = (folder / limit).read_text().strip()
        if most == "max" or int(most) >= _NO_LIMIT:
            return None
        used = int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
    return max(0, int(most) - used + cached)
