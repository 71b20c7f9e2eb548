"""Whether a cell writes files, seen in its source and in that of the person's own code that it reaches.

A rerun writes them again, over those of the person's run. What is not seen here, the fresh process itself
refuses (`jupyter_gpuprof.probes.writeguard`), only later.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpuprof.errors import WritesFiles
from jupyter_gpuprof.probes.reach import reachable
from jupyter_gpuprof.session.reruns.writecalls import is_quiet, writing_calls

#: Functions of the person's to look into, and objects to look at, at most.
_MOST_FUNCTIONS, _MOST_OBJECTS = 2000, 200_000
_FOREIGN = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parents[2])}
)


@dataclass(frozen=True)
class FileWrite:
    """A place that writes a file.

    Args:
        line: in the cell, or in the file or the cell where the function stands.
        place: "the cell", or the function's name, with its file if it has one.
        text: the line itself.
        what: what writes there.
    """

    line: int
    place: str
    text: str
    what: str


def refuse_writes(text: str, source: str, namespace: Mapping[str, Any]) -> None:
    """Refuse a cell that writes files.

    Args:
        text: the cell as the person wrote it.
        source: the same as plain Python, its lines where they were.
        namespace: the globals that it runs in.

    Raises:
        WritesFiles: it does; the message names the line.
    """
    found = file_writes(source, namespace, text)
    if not found:
        return
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise WritesFiles(
        f"Line {first.line} of {first.place} writes files, and a rerun would write them again: "
        f"{first.text[:120]}{more}."
    )


def file_writes(source: str, namespace: Mapping[str, Any], text: str = "") -> tuple[FileWrite, ...]:
    """The places that write files, the cell's own first.

    Args:
        source: the cell as plain Python.
        namespace: the globals that it runs in.
        text: the cell as the person wrote it, where that is something else.
    """
    search = _Search()
    search.look_at("the cell", ast.parse(source), (text or source).splitlines(), 0, namespace)
    search.look_on()
    return tuple(dict.fromkeys(search.found))


class _Search:
    """Goes from source to source along the names that each of them uses."""

    def __init__(self) -> None:
        self.found: list[FileWrite] = []
        self._mentioned: set[str] = set()  # attributes that any of the sources uses
        self._functions: dict[types.CodeType, types.FunctionType] = {}
        self._done: set[types.CodeType] = set()
        self._classes: dict[type, None] = {}
        self._seen: set[int] = set()

    def look_at(
        self, place: str, tree: ast.AST, lines: list[str], before: int, names: Mapping[str, Any]
    ) -> None:
        """One source: note what writes, and what it leads to.

        Args:
            place: what to call it.
            tree: its syntax.
            lines: its text.
            before: lines of its file before it.
            names: its globals.
        """

        def resolve(node: ast.expr) -> Any:
            return _resolve(node, names)

        writes = list(writing_calls(tree, resolve, _is_own))
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Name, ast.Attribute)):
                continue
            if isinstance(node, ast.Attribute) and not isinstance(
                _or_none(node.value, names), types.ModuleType
            ):
                self._mentioned.add(node.attr)
            value = _or_none(node, names)
            if isinstance(node, ast.Name) and not is_quiet(value):
                writes.append((node.lineno, type(value).__name__))
            self._reach(value)
        self.found += [FileWrite(n + before, place, lines[n - 1].strip(), what) for n, what in sorted(writes)]

    def look_on(self) -> None:
        """All that was reached, until nothing new comes."""
        while len(self._done) < _MOST_FUNCTIONS:
            for kind in list(self._classes):
                self._functions |= {f.__code__: f for f in _methods(kind, self._mentioned)}
            left = [code for code in self._functions if code not in self._done]
            if not left:
                return
            for code in left:
                self._done.add(code)
                self._look_into(self._functions[code])

    def _look_into(self, function: types.FunctionType) -> None:
        try:
            source = inspect.getsource(function)
            tree = ast.parse(textwrap.dedent(source))
        except (OSError, TypeError, SyntaxError):  # none there, or a lambda within a line
            return
        code = function.__code__
        place = function.__qualname__.replace(".<locals>", "")
        if Path(code.co_filename).exists():
            place += f" ({Path(code.co_filename).name})"
        names = {**function.__globals__, **_closed_over(function)}
        self.look_at(place, tree, source.splitlines(), code.co_firstlineno - 1, names)

    def _reach(self, value: object) -> None:
        for thing in reachable([value], _MOST_OBJECTS, self._seen):
            if isinstance(thing, types.MethodType):
                thing = thing.__func__
            if isinstance(thing, types.FunctionType) and _is_own(thing):
                self._functions.setdefault(thing.__code__, thing)
            elif _is_own(type(thing)):
                self._classes[type(thing)] = None
        if isinstance(value, type) and _is_own(value):
            self._classes[value] = None


def _methods(kind: type, mentioned: set[str]) -> Iterator[types.FunctionType]:
    """Methods of a person's class that may be called: by name, by Python, or by a library's class above."""
    own = [base for base in kind.__mro__ if _is_own(base)]
    above = [base for base in kind.__mro__ if base not in own and base is not object]
    for base in own:
        for name, value in vars(base).items():
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(function, types.FunctionType) and (
                name in mentioned
                or (name.startswith("__") and name.endswith("__"))
                or any(hasattr(library, name) for library in above)
            ):
                yield function


def _is_own(value: object) -> bool:
    """Whether a function or class is the person's: of the notebook, or of a file that is not installed."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return _is_own_file(value.__code__.co_filename)
    if isinstance(value, type):
        codes = (f.__code__ for f in vars(value).values() if isinstance(f, types.FunctionType))
        return value.__module__ == "__main__" or any(_is_own_file(code.co_filename) for code in codes)
    return False


def _is_own_file(name: str) -> bool:
    return not (name.startswith(("<frozen", "<string>", *_FOREIGN)) or "-packages" in name)


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of a name, or of an attribute of a module, class or object that has it for itself.

    Raises:
        LookupError: it is not known.
    """
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, names)
        places: Iterable[Any] = (owner,)
        if not isinstance(owner, (types.ModuleType, type)):
            places = (owner, type(owner))  # no property of an object is asked
        for place in places:
            value = inspect.getattr_static(place, node.attr, LookupError)
            if value is not LookupError:
                return getattr(value, "__func__", value)
    raise LookupError


def _or_none(node: ast.expr, names: Mapping[str, Any]) -> Any:
    try:
        return _resolve(node, names)
    except LookupError:
        return None


def _closed_over(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
