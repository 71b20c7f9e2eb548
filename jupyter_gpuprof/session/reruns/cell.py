"""A notebook cell's source as something a process without a notebook can run."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import re
from dataclasses import dataclass
from types import CodeType
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.session.loops import WATCH_LOOP, wrap_training_loops

#: Cell magics that only time or show what a cell does: it runs the same without them.
TRANSPARENT = frozenset({"gpuprof", "time", "timeit", "capture", "prun"})
#: Line magics whose statement runs the same without them.
_TIMED = re.compile(r"^(\s*)%time(?:it)?\s+(?!-)")
#: How a rerun cell is called in tracebacks.
CELL_NAME = "<profiled cell>"


@dataclass(frozen=True)
class Cell:
    """A profiled cell as it was run.

    Args:
        source: the text of the cell, its ``%%gpuprof`` line included.
        run_id: of the run it gave.
        run_name: its name.
        mean_step_s: of that run, where it counted steps.
    """

    source: str
    run_id: str = ""
    run_name: str = "cell"
    mean_step_s: float | None = None


def plain_source(cell: str) -> str:
    """The cell as Python, its lines where they were; magics become calls of ``get_ipython()``.

    Raises:
        UsageError: a cell magic gives the body to something else than this kernel's Python.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    lines = cell.splitlines(keepends=True)
    for number, line in enumerate(lines):
        words = line.split()
        if not words:
            continue
        if not words[0].startswith("%%"):
            break
        if words[0][2:] not in TRANSPARENT:
            raise UsageError(
                f"The cell cannot be rerun: {words[0]} gives it to something else than Python.",
                "Profile a cell without that magic.",
            )
        lines[number] = "#\n"  # an empty first line would be taken away, and all others would move
    lines = [_TIMED.sub(r"\1", line) for line in lines]
    transformer: Any = TransformerManager()  # type: ignore[no-untyped-call]
    return str(transformer.transform_cell("".join(lines)))


def compile_cell(source: str, filename: str = CELL_NAME) -> CodeType:
    """The source of `plain_source` compiled, its training loops seen, top-level ``await`` allowed.

    Raises:
        UsageError: it is no Python that runs here.
    """
    try:
        tree = wrap_training_loops(ast.parse(source, filename), WATCH_LOOP)
        code: CodeType = compile(
            tree, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"The cell is no Python that runs here: {error}.") from None
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return code


def run_cell(code: CodeType, namespace: dict[str, Any]) -> None:
    """Run what `compile_cell` gave."""
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, namespace)
        return
    coroutine = eval(code, namespace)
    asyncio.run(coroutine)


def needs_shell(source: str) -> bool:
    """Whether the cell uses what only IPython gives it."""
    return "get_ipython" in source or "display(" in source


def give_shell(namespace: dict[str, Any]) -> None:
    """Let the cell's line magics find an IPython shell, one that keeps no history."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell.instance(
        user_ns=namespace, config=Config({"HistoryManager": {"enabled": False}})
    )
    namespace["get_ipython"] = lambda: shell
