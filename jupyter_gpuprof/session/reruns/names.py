"""Which names a cell reads from its namespace before it binds them itself."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

_LOADS = frozenset(
    {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME"}
)
_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL"})
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
#: What IPython keeps in the namespace for itself.
_OF_THE_SHELL = frozenset({"get_ipython", "exit", "quit", "In", "Out", "_ih", "_oh", "_dh"})


@dataclass(frozen=True)
class Reads:
    """The names a cell reads from its namespace.

    Args:
        needed: it may read them before it has bound them, itself or in what it defines.
        certain: those of them that it reads where it cannot have bound them yet.
    """

    needed: frozenset[str]
    certain: frozenset[str]


def needed_names(source: str) -> frozenset[str]:
    """Names that the cell may read before it has bound them; builtins only where it rebinds them.

    Raises:
        SyntaxError: the source is no Python.
    """
    return read_names(source).needed


def read_names(source: str) -> Reads:
    """The names that the cell reads from its namespace.

    Raises:
        SyntaxError: the source is no Python.
    """
    reader = _Reader()
    reader.walk(ast.parse(source).body, set())
    left_out = _OF_THE_SHELL | ({name for name in reader.needed if hasattr(builtins, name)} - reader.stored)
    return Reads(frozenset(reader.needed - left_out), frozenset(reader.certain - left_out))


class _Reader:
    """Goes through statements in order. `bound` is what is bound on every way to a place."""

    def __init__(self) -> None:
        self.needed: set[str] = set()
        self.certain: set[str] = set()
        self.stored: set[str] = set()  # bound somewhere so far

    def walk(self, statements: Iterable[ast.stmt], bound: set[str]) -> None:
        """Add what the statements need beyond `bound`; what they surely bind joins it."""
        for statement in statements:
            match statement:
                case ast.For() | ast.AsyncFor():
                    self._expression(statement.iter, bound)
                    inside = set(bound)
                    self._target(statement.target, inside)
                    self.walk(statement.body, inside)
                    self.walk(statement.orelse, set(bound))
                case ast.While():
                    self._expression(statement.test, bound)
                    self.walk(statement.body, set(bound))
                    self.walk(statement.orelse, set(bound))
                case ast.If():
                    self._expression(statement.test, bound)
                    yes, no = set(bound), set(bound)
                    self.walk(statement.body, yes)
                    self.walk(statement.orelse, no)
                    bound |= yes & no
                case ast.With() | ast.AsyncWith():
                    for item in statement.items:
                        self._expression(item.context_expr, bound)
                        if item.optional_vars is not None:
                            self._target(item.optional_vars, bound)
                    self.walk(statement.body, bound)
                case ast.Try():
                    self._try(statement, bound)
                case ast.Match():
                    self._match(statement, bound)
                case ast.Pass() | ast.Break() | ast.Continue():
                    pass
                case _:
                    self._code([statement], bound)
                    if isinstance(statement, ast.Delete):
                        bound -= {n.id for n in statement.targets if isinstance(n, ast.Name)}

    def _try(self, statement: ast.Try, bound: set[str]) -> None:
        self.walk(statement.body, set(bound))
        for handler in statement.handlers:
            if handler.type is not None:
                self._expression(handler.type, bound)
            self.walk(handler.body, bound | ({handler.name} if handler.name else set()))
        self.walk(statement.orelse, set(bound))
        self.walk(statement.finalbody, bound)

    def _match(self, statement: ast.Match, bound: set[str]) -> None:
        self._expression(statement.subject, bound)
        for case in statement.cases:
            inside = set(bound)
            for node in ast.walk(case.pattern):
                if isinstance(node, (ast.MatchValue, ast.MatchClass)):
                    self._expression(node.value if isinstance(node, ast.MatchValue) else node.cls, bound)
                captured = (getattr(node, "name", None), getattr(node, "rest", None))
                self._bind({name for name in captured if isinstance(name, str)}, inside)
            if case.guard is not None:
                self._expression(case.guard, inside)
            self.walk(case.body, inside)

    def _expression(self, expression: ast.expr, bound: set[str]) -> None:
        self._code([ast.Expr(expression)], bound)

    def _target(self, target: ast.expr, bound: set[str]) -> None:
        """What stands on the left may read too: ``for x[i] in y``."""
        names = [node for node in ast.walk(target) if isinstance(node, ast.Name)]
        self._read({n.id for n in names if isinstance(n.ctx, ast.Load)}, bound, certain=True)
        self._bind({n.id for n in names if isinstance(n.ctx, ast.Store)}, bound)

    def _code(self, statements: list[ast.stmt], bound: set[str]) -> None:
        """Statements or an expression without a block of this namespace inside."""
        module = ast.fix_missing_locations(ast.Module(statements, []))
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(module, "<cell>", "exec", flags=flags, dont_inherit=True)
        self._read(_names(code, _LOADS, later=False), bound, certain=True)
        self._read(_names(code, _LOADS, later=True), bound, certain=False)
        self._bind(_names(code, _STORES, later=True), bound)

    def _read(self, names: set[str], bound: set[str], *, certain: bool) -> None:
        self.needed |= names - bound
        if certain:
            self.certain |= names - self.stored

    def _bind(self, names: set[str], bound: set[str]) -> None:
        bound |= names
        self.stored |= names


def _names(code: CodeType, operations: frozenset[str], *, later: bool, top: bool = True) -> set[str]:
    """Names of the namespace that the code uses so.

    Args:
        code: of a module's statements, and what they define.
        operations: the bytecodes that use them so.
        later: look into functions too, whose body runs when they are called.
        top: whether the code's own names are those of the namespace (a class body binds its own).
    """
    found = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in operations and (top or step.opname != "STORE_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and (later or _runs_at_once(constant)):
            found |= _names(constant, operations, later=later, top=False)
    return found


def _runs_at_once(code: CodeType) -> bool:
    return code.co_name in _COMPREHENSIONS or not code.co_flags & inspect.CO_OPTIMIZED  # a class body
