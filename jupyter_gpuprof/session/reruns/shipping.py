"""Send the names that a cell needs to a fresh process, through a file.

All names go into one pickle, so what they share stays shared: an optimizer steps the parameters of its
model. Functions and classes of the notebook go by value, and take the fresh process's own ``__main__`` as
their globals, so that a cell and the functions it calls see the same names, as in the kernel.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import sys
import types
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from jupyter_gpuprof.errors import CannotShip
from jupyter_gpuprof.probes.freight import TorchFreight
from jupyter_gpuprof.session.reruns.culprit import find_culprit, first_line
from jupyter_gpuprof.session.reruns.names import read_names


@dataclass(frozen=True)
class Shipment:
    """What was written.

    Args:
        path: the file.
        names: what is in it.
        left_out: names that cannot be sent, and that the cell may bind itself before it needs them.
        size_bytes: of the file.
        sys_path: of this process; modules are sent as their names only.
        cwd: of this process.
    """

    path: Path
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    size_bytes: int
    sys_path: tuple[str, ...]
    cwd: str


def ship(source: str, namespace: Mapping[str, Any], path: Path) -> Shipment:
    """Write the names of `namespace` that the cell needs to `path`; the objects stay as they are.

    The contents of tensors and arrays are written from where they lie. If it fails or is interrupted,
    no file is left.

    Args:
        source: the cell as plain Python.
        namespace: the dictionary of globals that the cell runs in.
        path: the file to write.

    Raises:
        CannotShip: a name the cell needs cannot be sent, or the disk is full.
        SyntaxError: the source is no Python.
    """
    reads = read_names(source)
    names = {name: namespace[name] for name in sorted(reads.needed) if name in namespace}
    left_out: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while (error := _write(names, namespace, path)) is not None:
                for name in _unfit(names, namespace, reads.certain, error):
                    left_out.append(name)
                    del names[name]
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    size_bytes = path.stat().st_size
    return Shipment(path, tuple(names), tuple(left_out), size_bytes, tuple(sys.path), os.getcwd())


def unship(path: Path, module: types.ModuleType | None = None) -> dict[str, Any]:
    """Read the names of `ship` into a module's dictionary, and return that dictionary.

    Args:
        path: the file.
        module: where the names go; by default this process's ``__main__``.
    """
    into = vars(module or sys.modules["__main__"])
    with path.open("rb") as file:
        names, classes = _Unpickler(file, into).load()
    into.update({**classes, **names})
    return into


def _write(names: dict[str, Any], namespace: Mapping[str, Any], path: Path) -> Exception | None:
    """Why not all of it could be pickled; None if it could."""
    try:
        with path.open("wb") as file:
            pickler = _Pickler(file, namespace)
            pickler.dump((names, pickler.classes))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CannotShip(
                f"What the cell needs does not fit on the disk of {path.parent}.",
                "Let TMPDIR name a folder with more room.",
            ) from None
        return error
    except Exception as error:
        return error
    return None


def _unfit(
    names: dict[str, Any], namespace: Mapping[str, Any], certain: frozenset[str], together: Exception
) -> list[str]:
    """The names that cannot be pickled, none of which the cell surely needs.

    Raises:
        CannotShip: it surely needs one, or the names fail together only.
    """

    def why(value: object) -> Exception | None:
        try:
            _Pickler(_Nowhere(), namespace, data=False).dump(value)
        except Exception as error:
            return error
        return None

    unfit = []
    for name, value in names.items():
        if why(value) is not None:
            if name in certain:
                raise _refusal(name, *find_culprit(value, name, why))
            unfit.append(name)
    if not unfit:
        raise CannotShip(f"What the cell needs ({', '.join(names)}) cannot be sent: {first_line(together)}.")
    return unfit


def _refusal(name: str, path: str, what: str) -> CannotShip:
    holds = f"is {what}" if path == name else f"holds {what}, {path}"
    return CannotShip(f"`{name}` cannot be sent to a fresh process: it {holds}.")


class _Classes(dict[str, type]):
    """Classes of the notebook by name; pickled last, when all have been met."""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class _Globals(dict[str, Any]):
    """Stands for the namespace where the globals of a function are pickled."""

    def __reduce__(self) -> Any:
        return _namespace_there, ()


def _namespace_there() -> dict[str, Any]:
    raise AssertionError("read by _Unpickler only")


def _shell_getter() -> Any:
    from IPython import get_ipython

    return get_ipython


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with torch's objects in order and the namespace as the globals of its functions."""

    def __init__(self, file: BinaryIO | _Nowhere, namespace: Mapping[str, Any], *, data: bool = True) -> None:
        super().__init__(file, protocol=5)
        self.globals_ref[id(namespace)] = _Globals()
        self.classes = _Classes()
        self._namespace = namespace
        self._freight = TorchFreight(data=data)

    def reducer_override(self, thing: Any) -> Any:
        """How to pickle `thing`."""
        kind: type = type(thing)
        if issubclass(kind, type):
            of_notebook = thing.__module__ == "__main__" and self._namespace.get(thing.__name__) is thing
            if of_notebook:
                self.classes[thing.__name__] = thing
        elif kind is types.MethodType and thing is self._namespace.get("get_ipython"):
            return _shell_getter, ()
        elif thing is sys.stdout or thing is sys.stderr:
            return getattr, (sys, "stdout" if thing is sys.stdout else "stderr")
        elif kind is io.TextIOWrapper:
            raise pickle.PicklingError("an open file")  # cloudpickle would read all of it
        reduced = self._freight.reduce(thing)
        return super().reducer_override(thing) if reduced is NotImplemented else reduced


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, into: dict[str, Any]) -> None:
        super().__init__(file)
        self._into = into

    def find_class(self, module: str, name: str) -> Any:
        if name == "_namespace_there" and module == __name__:
            return lambda: self._into
        return super().find_class(module, name)


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)
