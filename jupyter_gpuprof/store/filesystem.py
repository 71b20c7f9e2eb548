"""On what kind of file system a file lies: SQLite's write-ahead log needs a local one."""

from __future__ import annotations

from pathlib import Path

#: Kinds on a disk (or in the memory) of this machine. Anything else may be shared with another one.
_LOCAL = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "nilfs2",
    "tmpfs", "ramfs", "overlay", "aufs", "vfat", "exfat", "ntfs", "ntfs3", "fuseblk",
}  # fmt: skip
_MOUNTS = Path("/proc/mounts")


def is_local(path: Path, mounts: str | None = None) -> bool:
    """Whether the file is certainly on a local disk; False where that cannot be told.

    Args:
        path: a file that exists, or will.
        mounts: the text of /proc/mounts (for tests).
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return False
    resolved = str(path.resolve())
    longest, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        # The last of equal length is the one on top.
        if len(point) >= len(longest) and _is_below(resolved, point):
            longest, kind = point, fields[2]
    return kind in _LOCAL


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
