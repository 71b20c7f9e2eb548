"""Find the training loops in a person's source and let `watch_loop` see what they iterate over.

Only the iterable of a ``for`` statement is wrapped, in the syntax tree; lines, columns and names stay
as they are. Which loop it was that gave the batches shows when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Tree = TypeVar("Tree", bound=ast.AST)

#: `jupyter_gpuprof.probes.watch.watch_loop` as an expression that needs no name of ours in the person's code.
WATCH_LOOP = "__import__('jupyter_gpuprof.probes.watch', fromlist=['watch_loop']).watch_loop"
#: Calls that mark a loop as a training loop.
TRAINING_CALLS = frozenset({"backward", "manual_backward", "step"})


def wrap_training_loops(tree: Tree, expression: str) -> Tree:
    """The tree with ``for x in y`` turned into ``for x in <expression>(y, "line n")``, in place.

    Loops around a training call are wrapped, wherever they stand, and so are loops around a call of a
    function of this source that trains; without any (the step is defined elsewhere), all loops outside
    of functions.

    Args:
        tree: a module.
        expression: Python that evaluates to a function of the iterable and the loop's name.
    """
    calls = TRAINING_CALLS | _training_functions(tree)
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and any(calls & _called(statement) for statement in node.body)
    ]
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


def _training_functions(tree: ast.AST) -> frozenset[str]:
    """Names of the functions defined here that train, themselves or through one another."""
    defined = [
        (node.name, {name for statement in node.body for name in _called(statement)})
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    trains: set[str] = set()
    while found := {name for name, calls in defined if calls & (TRAINING_CALLS | trains)} - trains:
        trains |= found
    return frozenset(trains)


def _called(statement: ast.AST) -> set[str]:
    """Names of the functions and methods that are called in a statement.

    A method called ``step`` counts only as an optimizer's, which takes nothing but a closure: a cell's
    ``h = cell.step(x, h)`` may stand in a compiled function, where our wrapper would break the graph.
    """
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    methods = {
        call.func.attr
        for call in calls
        if isinstance(call.func, ast.Attribute) and (call.func.attr != "step" or _is_optimizer_step(call))
    }
    return methods | {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _is_optimizer_step(call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return not arguments or (len(arguments) == 1 and "closure" in ast.dump(arguments[0]))


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        yield node
        yield from _outside_functions(node)
