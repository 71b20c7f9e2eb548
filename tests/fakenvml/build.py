"""Compiles the library once per source and set of functions left out."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fakenvml.c")
NAME = "libnvidia-ml.so.1"
COMPILER = os.environ.get("CC", "gcc")


def why_not() -> str | None:
    """Why the library cannot be had here, or None if it can."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
        return "the fake NVML is written for 64-bit Linux"
    return None if shutil.which(COMPILER) else f"no C compiler ({COMPILER})"


def library(without: tuple[str, ...] = ()) -> Path:
    """The compiled library, alone in its folder.

    It has no soname: a process that loaded it by its path still finds a real driver by its name.

    Args:
        without: functions that it shall not export, as an older driver.
    """
    key = hashlib.sha256("\n".join([SOURCE.read_text(), COMPILER, *without]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter_gpuprof"
    target = cache / f"fakenvml-{key}" / NAME
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            exports, built = Path(folder, "exports"), Path(folder, NAME)
            left_out = f"local: {' '.join(f'{name};' for name in without)}" if without else ""
            exports.write_text(f"{{ global: nvml*; fakenvml*; {left_out} }};\n")
            command = [COMPILER, "-Wall", "-O1", "-fPIC", "-shared", f"-Wl,--version-script={exports}"]
            subprocess.run([*command, "-o", str(built), str(SOURCE), "-lpthread"], check=True)
            os.replace(built, target)  # whole or not at all
    return target
