"""How a cell under ``%%gpuprof`` runs natively: IPython executes it, we only put a ``try`` around it.

IPython turns a cell magic into a call with the body as a string; whoever runs that string has to
rebuild what IPython does for a cell (the last expression's display, ``_`` and ``Out``, top-level
await, tracebacks with the cell's lines) and gets some of it wrong. So we take the first line only:

* the text keeps its lines, with the first one turned into the call that IPython itself would make,
  but with an empty body (`take_first_line`, an input transformer);
* the syntax tree gets the rest as the body of a ``try`` that begins and ends the run, and its training
  loops are marked (`CellRewriter`, a syntax tree transformer).

Because both hang on the shell, ``%%time`` and other magics work above and below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from jupyter_gpuprof.session.loops import WATCH_LOOP, wrap_training_loops

_FIRST_LINE = re.compile(r"%%gpuprof(?:[ \t]+(?P<options>.*))?$")
#: Our magics object, reached without a name of ours in the person's namespace.
_MAGICS = "get_ipython().magics_manager.registry['GpuprofMagics']"


def take_first_line(lines: list[str]) -> list[str]:
    """An input transformer: ``%%gpuprof ...`` becomes a call on the first line, the rest stays."""
    match = _FIRST_LINE.match(lines[0].rstrip()) if lines else None
    if match is None or not "".join(lines[1:]).strip():
        return lines
    from IPython.core.inputtransformer2 import cell_magic, leading_empty_lines

    body = lines[1:]
    if leading_empty_lines(body)[0].startswith("%%"):
        body = cell_magic(leading_empty_lines(body))  # another magic below ours
    options = (match["options"] or "").strip()
    return [f"get_ipython().run_cell_magic('gpuprof', {options!r}, '')\n", *body]


class CellRewriter(ast.NodeTransformer):
    """A syntax tree transformer: a profiled cell's statements go into the run's ``try``.

    Args:
        profiling: whether a cell is being profiled right now (then a magic below ours runs its body).
    """

    def __init__(self, profiling: Callable[[], bool]) -> None:
        self._profiling = profiling

    def visit_Module(self, tree: ast.Module) -> ast.Module:
        """Rewrite a cell; any other module is left alone."""
        options = _options_of(tree)
        if options is None:
            return wrap_training_loops(tree, WATCH_LOOP) if self._profiling() else tree
        first, *body = tree.body
        wrap_training_loops(ast.Module(body, []), WATCH_LOOP)
        futures = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
        body = [s for s in body if s not in futures]
        frame = ast.parse(
            f"{_MAGICS}.begin({options!r})\n"
            f"try:\n    pass\nexcept {_MAGICS}.StopProfiling:\n    {_MAGICS}.stopped()\n"
            f"finally:\n    {_MAGICS}.end()\n"
        )
        for node in ast.walk(frame):
            ast.copy_location(node, first)
        begin, guarded = frame.body
        assert isinstance(guarded, ast.Try)
        shown: list[ast.stmt] = []
        if body and isinstance(body[-1], ast.Expr):
            shown = [_keep_value(body[-1])]
        guarded.body = body or guarded.body
        if not _compiles(guarded):
            # IPython compiles and runs statement by statement: it shall refuse the cell as without us.
            tree.body = [*futures, *body]
            return tree
        tree.body = [*futures, begin, guarded, *shown]
        ast.fix_missing_locations(tree)
        return tree


def _compiles(statement: ast.stmt) -> bool:
    """Whether the compiler takes what the parser took (``return`` outside of a function, say)."""
    module = ast.fix_missing_locations(ast.Module([statement], []))
    try:
        compile(module, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _keep_value(last: ast.Expr) -> ast.Expr:
    """Let the run's magics keep the last expression's value; the statement that shows it afterwards."""
    keep = ast.parse(f"{_MAGICS}.keep(None)", mode="eval").body
    take = ast.parse(f"{_MAGICS}.take()", mode="eval").body
    assert isinstance(keep, ast.Call)
    for node in (*ast.walk(keep), *ast.walk(take)):
        ast.copy_location(node, last)
    keep.args[0] = last.value
    last.value = keep
    return ast.copy_location(ast.Expr(take), last)


def _options_of(tree: ast.Module) -> str | None:
    """The options of a profiled cell, None for any other module."""
    match tree.body[:1]:
        case [
            ast.Expr(
                ast.Call(
                    func=ast.Attribute(attr="run_cell_magic"),
                    args=[ast.Constant("gpuprof"), ast.Constant(str(options)), ast.Constant("")],
                )
            )
        ]:
            return options
    return None
