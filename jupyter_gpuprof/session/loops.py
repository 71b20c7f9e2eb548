"""Find the training loops in a person's source and let `watch_loop` see what they iterate over.

Only the iterable of a ``for`` statement is wrapped, in the syntax tree; lines, columns and names stay
as they are. Which loop it was that gave the batches shows when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Tree = TypeVar("Tree", bound=ast.AST)

#: Calls that mark a loop as a training loop.
TRAINING_CALLS = frozenset({"backward", "manual_backward", "step"})


def wrap_training_loops(tree: Tree, expression: str) -> Tree:
    """The tree with ``for x in y`` turned into ``for x in <expression>(y, "line n")``, in place.

    Loops around a training call are wrapped, wherever they stand; without any such call in the source
    (the step is in a function defined elsewhere), all loops outside of functions.

    Args:
        tree: a module.
        expression: Python that evaluates to a function of the iterable and the loop's name.
    """
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and _trains(node)]
    if not loops:
        loops = [node for node in _outside_functions(tree) if isinstance(node, ast.For)]
    for loop in loops:
        call = ast.parse(f"{expression}(None, 'line {loop.lineno}')", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args[0] = loop.iter
        for node in (call, call.func, call.args[1], *ast.walk(call.func)):
            ast.copy_location(node, loop.iter)
        loop.iter = call
    ast.fix_missing_locations(tree)
    return tree


def _trains(loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TRAINING_CALLS
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        yield from _outside_functions(node)
