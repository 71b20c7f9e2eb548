"""Compiles the device once per torch version and source, and imports what was compiled."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

SOURCES = sorted(Path(__file__).parent.glob("*.cpp")) + sorted(Path(__file__).parent.glob("*.h"))
NAME = "simdevice_native"
# A virtual environment that is used without being activated has its ninja beside its python.
BUILD_PATH = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])


def why_not() -> str | None:
    """Why the device cannot be had here, or None if it can."""
    if sys.platform != "linux":
        return "the sim device is written for Linux"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if not hasattr(torch.Stream, "is_capturing"):
        return f"torch {torch.__version__} is older than the C++ interfaces the sim device is written for"
    return None if _library().exists() else _why_not_build()


def _why_not_build() -> str | None:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler, path=BUILD_PATH) is None:
        return f"no C++ compiler ({compiler})"
    if shutil.which("ninja", path=BUILD_PATH) is None:
        return "ninja is not installed"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the Python headers are not installed"
    try:
        _library().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"no cache folder: {error}"
    return None


def native() -> ModuleType:
    """The compiled device. Importing it is what registers it with torch."""
    library = _library()
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with _one_process_at_a_time(library.parent):
            if not library.exists():  # else another process built it while we waited
                return _compile(library)
    return _import(library)


def _import(library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec, library
    assert spec.loader, library
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _library() -> Path:
    import torch

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [torch.__version__, sys.version, os.environ.get("CXX", "c++")]
    key = hashlib.sha256("\n".join(parts + [source.read_text() for source in SOURCES]).encode())
    return cache / "jupyter_gpuprof" / f"simdevice-{key.hexdigest()[:16]}" / f"{NAME}.so"


@contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    import fcntl

    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back by the system even if this process is killed
        yield


def _compile(library: Path) -> ModuleType:
    os.environ["PATH"] = BUILD_PATH
    from torch.utils import cpp_extension

    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        module: ModuleType = cpp_extension.load(
            NAME,
            [str(source) for source in SOURCES if source.suffix == ".cpp"],
            build_directory=folder,
            extra_cflags=["-O1"],  # nothing here is worth the time an optimiser takes
        )
        os.replace(Path(folder) / library.name, library)  # whole or not at all
    return module
