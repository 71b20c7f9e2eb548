"""Which `for` loops of a source are wrapped, and that nothing else of it changes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from jupyter_gpuprof.session.loops import wrap_training_loops


def wrapped(source: str) -> list[int]:
    """Lines of the loops that are wrapped."""
    tree = wrap_training_loops(ast.parse(textwrap.dedent(source)), "W.loop")
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.For)
        and isinstance(node.iter, ast.Call)
        and ast.unparse(node.iter.func) == "W.loop"
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("for x in data:\n    loss(x).backward()\n", [1]),
        ("for x in data:\n    print(x)\nfor x in data:\n    opt.step()\n", [3]),
        ("for e in range(3):\n  for x in data:\n    loss(x).backward()\n", [1, 2]),
        ("def run(data):\n  for x in data:\n    opt.step()\nrun(data)\n", [2]),
        ("for x in data:\n    print(x)\n", [1]),
        ("def f(data):\n  for x in data:\n    print(x)\nfor x in data:\n  f(x)\n", [4]),
        # The step is in a function of the same source.
        (
            "def step(x):\n  loss(x).backward()\ndef epoch(data):\n  for x in data:\n    step(x)\nepoch(d)\n",
            [4],
        ),
        ("def a(x):\n  b(x)\ndef b(x):\n  opt.step()\nfor x in data:\n  a(x)\nfor y in z:\n  c(y)\n", [5]),
        ("class M:\n  def fit(self, x):\n    opt.step()\nfor x in data:\n  m.fit(x)\n", [4]),
        ("def a():\n  a()\nfor x in data:\n  a()\n", [3]),  # recursion without training
        ("while True:\n  for x in data:\n    accelerator.backward(loss)\n", [2]),
        ("[x for x in data]\n", []),
        ("", []),
    ],
)
def test_which_loops(source: str, lines: list[int]) -> None:
    assert wrapped(source) == lines


def test_the_rest_stays_and_tracebacks_point_at_the_persons_lines() -> None:
    source = "n = 0\nfor x in broken():\n    opt.step()\nelse:\n    n = 1\n"
    tree = wrap_training_loops(ast.parse(source), "W")
    compile(tree, "cell", "exec")
    loop = tree.body[1]
    assert isinstance(loop, ast.For)
    assert loop.orelse
    assert isinstance(loop.iter, ast.Call)
    assert ast.unparse(loop.iter) == "W(broken(), 'line 2')"
    inner = loop.iter.args[0]
    assert (loop.iter.lineno, loop.iter.col_offset) == (inner.lineno, inner.col_offset) == (2, 9)
