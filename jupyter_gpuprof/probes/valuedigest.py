"""Values to digests: plain data, containers, arrays, tensors, paths of files, what can be taken apart."""

from __future__ import annotations

import copyreg
import hashlib
import os
import types
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
#: Of longer containers and larger arrays `brief` looks at the ends only.
_BRIEF = 16
#: From this length on, a list is tried in one go.
_LONG = 64
#: Flag of classes that were made by a class statement.
_MADE_BY_PYTHON = 1 << 9


class Unreadable(Exception):
    """A value that cannot be told from its content: an open file, a connection."""


class ValueDigest:
    """Digests of values, by content.

    Args:
        of_thing: takes functions, classes, modules and objects with code of their own; gives what stands for
            them, or None to have their state looked at.
        of_path: the identity of the file or folder that a text names; None if it names none.
        brief: look at the ends of long containers and the kinds of arrays only, and at no file.
    """

    def __init__(
        self,
        of_thing: Callable[[Any, str], bytes | None],
        of_path: Callable[[str], bytes | None],
        *,
        brief: bool = False,
    ) -> None:
        self._of_thing, self._of_path, self._brief = of_thing, of_path, brief
        self._open: dict[int, int] = {}  # containers that are being looked at, by their id

    def digest(self, value: Any, path: str) -> str:
        """SHA-256 of a value.

        Args:
            value: what.
            path: how it is reached, for messages.

        Raises:
            Unreadable: it cannot be told from its content.
        """
        return hashlib.sha256(self.token(value, path)).hexdigest()

    def token(self, value: Any, path: str) -> bytes:
        """What stands for a value; equal for equal values only."""
        kind = type(value)
        if kind in _PLAIN:
            return self._plain(value)
        if id(value) in self._open:
            return b"again %d" % self._open[id(value)]
        self._open[id(value)] = len(self._open)
        try:
            return self._token(value, kind, path)
        finally:
            del self._open[id(value)]

    def _token(self, value: Any, kind: type, path: str) -> bytes:
        if isinstance(value, PurePath):
            return self._plain(str(value))
        if kind in (np.ndarray, np.memmap) and not value.dtype.hasobject:
            return self._array(value, "array")
        if isinstance(value, np.generic):
            return self._array(np.asarray(value), "scalar")
        if hasattr(kind, "untyped_storage"):
            return self._tensor(value)
        if kind in (list, tuple):
            return self._sequence(value, kind, path)
        if kind in (set, frozenset):
            return _joined(kind.__name__, sorted(self.token(item, f"{path}.") for item in value))
        if kind in (dict, OrderedDict, types.MappingProxyType):
            items = list(value.items())
            count = len(items)
            if self._brief and count > _BRIEF:
                items = items[: _BRIEF // 2] + items[-_BRIEF // 2 :]
            tokens = [
                self.token(key, path) + b":" + self.token(item, f"{path}[{key!r}]") for key, item in items
            ]
            return _joined(f"{kind.__qualname__} {count}", tokens)
        known = self._of_thing(value, path)
        return known if known is not None else self.state(value, path)

    def state(self, value: Any, path: str, *, without: Collection[str] = ()) -> bytes:
        """What stands for an object: its class, and its attributes or what it is taken apart into.

        Args:
            value: the object.
            path: how it is reached, for messages.
            without: attributes to leave out.

        Raises:
            Unreadable: it cannot be taken apart.
        """
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        held = getattr(value, "__dict__", None)
        slots = {s: getattr(value, s) for c in kind.__mro__ for s in _slots(c) if hasattr(value, s)}
        if (held is None and not slots) or not _is_its_attributes(kind):
            return self._apart(value, name, path)
        parts = {**(held or {}), **slots}
        tokens = [
            n.encode() + b"=" + self.token(part, f"{path}.{n}")
            for n, part in sorted(parts.items())
            if n not in without and n != "__weakref__"
        ]
        return _joined(name, tokens)

    def _apart(self, value: Any, name: str, path: str) -> bytes:
        """As pickle takes it apart: what is in it besides attributes, and what it leaves out by itself."""
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced = reduce(value) if reduce is not None else value.__reduce_ex__(2)
        except Exception:
            raise Unreadable(f"{path}, a {type(value).__qualname__},") from None
        if isinstance(reduced, str):
            return _joined(name, [reduced.encode()])
        function, arguments, *rest = reduced
        tokens = [f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}".encode()]
        parts = [part for part in arguments if not isinstance(part, type)]
        parts += [list(part) if isinstance(part, Iterator) else part for part in rest[:3]]
        return _joined(name, tokens + [self.token(part, path) for part in parts])

    def _plain(self, value: Any) -> bytes:
        if type(value) is str and os.sep in value and not self._brief:
            identity = self._of_path(value)
            if identity is not None:
                return b"path " + identity
        return f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")

    def _sequence(self, value: Any, kind: type, path: str) -> bytes:
        count = len(value)
        if self._brief and count > _BRIEF:
            value = value[: _BRIEF // 2] + value[-_BRIEF // 2 :]
        elif count > _LONG:
            quick = self._quick(value)
            if quick is not None:
                return _joined(f"{kind.__name__} {count}", [quick])
        tokens = [self.token(item, f"{path}[{place}]") for place, item in enumerate(value)]
        return _joined(f"{kind.__name__} {count}", tokens)

    def _quick(self, value: Any) -> bytes | None:
        """A long list of plain data, or of short tuples of such; None for anything else."""
        paths: list[bytes] = []
        if len(kinds := {type(item) for item in value if type(item) in (tuple, list)}) > 1:
            return None
        head = "".join(kind.__name__ for kind in kinds).encode()
        for item in value:
            for part in item if type(item) in (tuple, list) else (item,):
                if type(part) is str:
                    if os.sep in part:
                        identity = self._of_path(part)
                        if identity is None:
                            identity = part.encode("utf-8", "surrogatepass")
                        paths.append(identity)
                elif type(part) not in (bool, int, float, bytes, type(None)):
                    return None
        if not paths:
            try:
                return hashlib.sha256(head + msgspec.msgpack.encode(value)).digest()
            except (OverflowError, UnicodeEncodeError, ValueError):
                return None
        left = [
            [None if type(part) is str and os.sep in part else part for part in item]
            if type(item) in (tuple, list)
            else (None if type(item) is str and os.sep in item else item)
            for item in value
        ]
        try:
            return hashlib.sha256(head + msgspec.msgpack.encode([left, paths])).digest()
        except (OverflowError, UnicodeEncodeError, ValueError):
            return None

    def _array(self, value: Any, what: str) -> bytes:
        head = f"{what} {value.dtype!r} {value.shape}"
        if self._brief:
            return head.encode()
        flat = np.ascontiguousarray(value).reshape(-1)
        bits = flat.view(np.uint8) if flat.nbytes else np.empty(0, np.uint8)
        return _joined(head, [hashlib.sha256(bits.data).digest()])

    def _tensor(self, value: Any) -> bytes:
        import torch

        head = f"tensor {value.dtype} {tuple(value.shape)}"
        if self._brief:
            return head.encode()
        with torch.no_grad():
            flat = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            flat = flat.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            bits = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        return _joined(head, [hashlib.sha256(bits.data).digest()])


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    own = f"_{kind.__name__.lstrip('_')}"  # as Python writes private names
    return tuple(own + n if n.startswith("__") and not n.endswith("__") else n for n in names)


def _is_its_attributes(kind: type) -> bool:
    """Whether nothing is in an object but attributes, and it says nothing else when it is pickled."""
    if kind in copyreg.dispatch_table:
        return False
    same = all(
        getattr(kind, name, None) is getattr(object, name, None)
        for name in ("__reduce_ex__", "__reduce__", "__getstate__")
    )
    return same and all(base.__flags__ & _MADE_BY_PYTHON for base in kind.__mro__[:-1])


def _joined(head: str, tokens: list[bytes]) -> bytes:
    found = hashlib.sha256(head.encode("utf-8", "surrogatepass"))
    for token in tokens:
        found.update(len(token).to_bytes(8, "little") + token)
    return found.digest()
