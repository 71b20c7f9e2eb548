"""Plain values as YAML in blocks; strings that YAML could take for something else are quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Words of several letters that are no truth value, null or number, also with ``/``, ``.`` and ``-`` inside.
_PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null)$)[A-Za-z][A-Za-z0-9]*(?:[./-]?[A-Za-z0-9])+", re.I)


def yaml_text(value: Mapping[str, Any]) -> str:
    """A mapping of mappings, lists, strings, whole numbers and truth values, as lines."""
    return "\n".join(_mapping(value))


def _mapping(value: Mapping[str, Any]) -> Iterator[str]:
    for key, inside in value.items():
        if isinstance(inside, (Mapping, list)) and inside:
            yield f"{_scalar(key)}:"
            block = _mapping(inside) if isinstance(inside, Mapping) else _list(inside)
            indent = "  " if isinstance(inside, Mapping) else ""
            yield from (indent + line for line in block)
        else:
            yield f"{_scalar(key)}: {_scalar(inside)}"


def _list(values: list[Any]) -> Iterator[str]:
    for value in values:
        lines = list(_mapping(value)) if isinstance(value, Mapping) else [_scalar(value)]
        yield from (("  " if i else "- ") + line for i, line in enumerate(lines))


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)
