"""What a function is and what it reads, from its compiled code.

Compiled code is source with its comments, layout and docstrings taken away, and it is what runs: it stays
right when the file was edited after the import, and where there is no file (a notebook's cell in a fresh
process).
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Literal

_HAS_DOCSTRING = 0x4000000  # of Python 3.13; before, a docstring is the first constant
_SILENT = ("CACHE", "EXTENDED_ARG", "PRECALL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "PUSH_NULL")


@dataclass(frozen=True)
class Read:
    """One name that code looks up, and the attributes it takes of that: ``self.size``, ``np.random.rand``.

    Args:
        root: where the name is: "global", "cell" (a closure's), "local", "import" (a module that the code
            imports itself) or "super".
        name: the name; of an import the module.
        attributes: one after the other.
        line: of the file.
    """

    root: Literal["global", "cell", "local", "import", "super"]
    name: str
    attributes: tuple[str, ...]
    line: int


@dataclass
class Reads:
    """All that a function's code looks up, functions inside of it included.

    Args:
        reads: in their order.
        stores: attributes that it sets, as (name, attribute).
        sets_globals: global names that it binds.
    """

    reads: list[Read] = field(default_factory=list)
    stores: set[tuple[str, str]] = field(default_factory=set)
    sets_globals: set[str] = field(default_factory=set)


def code_digest(code: CodeType) -> str:
    """SHA-256 of what the code does; names of files, lines, comments and docstrings are not in it."""
    found = hashlib.sha256()
    for piece in _pieces(code):
        found.update(len(piece).to_bytes(4, "little") + piece)
    return found.hexdigest()


def _pieces(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x2F)
    ).encode()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
    for place, constant in enumerate(code.co_consts):
        if place == 0 and _is_docstring(code, constant):
            continue
        yield from _constant(constant)


def _constant(constant: Any) -> Iterator[bytes]:
    if isinstance(constant, CodeType):
        yield from _pieces(constant)
    elif isinstance(constant, frozenset):
        yield repr(sorted(map(repr, constant))).encode()
    elif isinstance(constant, tuple):
        yield b"("
        for item in constant:
            yield from _constant(item)
    else:
        yield f"{type(constant).__name__} {constant!r}".encode()


def _is_docstring(code: CodeType, constant: object) -> bool:
    if not isinstance(constant, (str, type(None))) or code.co_name.startswith("<"):
        return False
    return sys.version_info < (3, 13) or bool(code.co_flags & _HAS_DOCSTRING)


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """What the code looks up and sets."""
    found = Reads()
    _Reader(code, found, frozenset()).read()
    return found


class _Reader:
    """Goes over the instructions once; a name and the attributes after it are one read."""

    def __init__(self, code: CodeType, found: Reads, outer: frozenset[str]) -> None:
        self._code, self._found = code, found
        self._own = outer | set(code.co_cellvars) | set(code.co_varnames)
        self._imports: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._imported: tuple[str, tuple[str, ...]] | None = None
        self._chain: tuple[Any, str, tuple[str, ...]] | None = None
        self._after_super = False
        self._constant: Any = None  # the last one; before an import what it takes of the module
        self._whole = False  # import a.b, or import a.b as c
        self._line = code.co_firstlineno
        self._doubled: tuple[Any, str] | None = None  # of x.n += 1 the x

    def read(self) -> None:
        for instruction in dis.get_instructions(self._code):
            positions = getattr(instruction, "positions", None)
            line = positions.lineno if positions is not None else instruction.starts_line
            if instruction.opname in _SILENT:
                continue
            self._one(instruction.opname, instruction.argval)
            self._line = line or self._line
        self._end()
        for constant in self._code.co_consts:
            if isinstance(constant, CodeType):
                _Reader(constant, self._found, frozenset(self._own)).read()

    def _one(self, name: str, value: Any) -> None:
        doubled, self._doubled = self._doubled, None
        if doubled is not None and name == "LOAD_ATTR":
            self._found.stores.add((doubled[1], value))  # read only to be counted on
            return
        if doubled is not None:
            self._found.reads.append(Read(*doubled, (), self._line))
        if name in ("CALL", "CALL_FUNCTION") and value == 1 and self._is_bare_after_len():
            self._chain = *self._chain[:2], ("__len__",)  # type: ignore[index]
        if name in ("COPY", "DUP_TOP") and self._chain is not None and not self._chain[2]:
            self._doubled, self._chain = self._chain[:2], None
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            if self._chain is not None:
                root, first, attributes = self._chain
                self._chain = root, first, (*attributes, value)
            elif self._after_super:
                self._chain, self._after_super = ("super", "super", (value,)), False
        elif name.startswith("LOAD_SUPER"):
            self._chain = "super", "super", (value,)
        elif name.startswith("LOAD_FAST"):
            for each in value if isinstance(value, tuple) else (value,):
                self._begin("local", each)
        elif name == "STORE_FAST_LOAD_FAST":
            self._bind(value[0])
            self._begin("local", value[1])
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._begin("global", value)
        elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            self._begin("local" if value in self._own else "cell", value)
        elif name == "IMPORT_NAME":
            self._end()
            self._imported, self._whole = (value, ()), self._constant is None
        elif name == "IMPORT_FROM" and self._imported is not None:
            if not self._whole:
                self._imported = self._imported[0], (value,)
        elif name == "POP_TOP":
            self._end()
            self._imported = self._imported if self._whole else None
        elif name in ("STORE_FAST", "STORE_DEREF"):
            self._end()
            self._bind(value)
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            if self._chain is not None and not self._chain[2]:
                self._found.stores.add((self._chain[1], value))
                self._chain = None
            self._end()
        elif name == "STORE_GLOBAL":
            self._end()
            self._found.sets_globals.add(value)
        else:
            self._end()
            if name == "LOAD_CONST":
                self._constant = value

    def _is_bare_after_len(self) -> bool:
        last = self._found.reads[-1] if self._found.reads else None
        bare = self._chain is not None and not self._chain[2]
        return bare and last is not None and (last.root, last.name, last.attributes) == ("global", "len", ())

    def _begin(self, root: Any, name: str) -> None:
        self._end()
        if root == "local" and name in self._imports:
            module, attributes = self._imports[name]
            self._chain = "import", module, attributes
        else:
            self._chain = root, name, ()

    def _bind(self, name: str) -> None:
        """A local name is bound; to a module if one was just imported."""
        if self._imported is None:
            self._imports.pop(name, None)
            return
        module, attributes = self._imported
        first = module.partition(".")[0]
        self._imports[name] = (first, ()) if name == first and not attributes else (module, attributes)
        if self._whole:
            self._imported = None

    def _end(self) -> None:
        if self._chain is None:
            return
        root, name, attributes = self._chain
        self._chain = None
        if name == "super" and root == "global":
            self._after_super = True
            return
        if name != "__class__":
            self._after_super = False
        self._found.reads.append(Read(root, name, attributes, self._line))
