"""Frozen dataclasses to plain JSON values and back, by their type hints."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jupyter_gpuprof.errors import NewerSchemaError, RunFileError
from jupyter_gpuprof.records.reading import Missing

T = TypeVar("T")


def encode(value: Any) -> Any:
    """The value as dicts, lists, strings, numbers, booleans and None.

    `Missing` becomes ``{"missing": reason}``.
    """
    if isinstance(value, Missing):
        return {"missing": value.reason}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], data: Any, *, newest: int) -> T:
    """The record of type `kind` that `encode` turned into `data`.

    Raises:
        NewerSchemaError: ``data["schema_version"]`` is above `newest`.
        RunFileError: `data` does not have the fields of `kind`.
    """
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFileError("This is not a run of jupyter_gpuprof: it has no schema_version.")
    if version > newest:
        raise NewerSchemaError(f"The run has schema version {version}, this jupyter_gpuprof knows {newest}.")
    try:
        record: T = _decode(kind, data, kind.__name__)
    except OverflowError as error:
        raise RunFileError(f"The run has a number that no measurement gives ({error}).") from error
    return record


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), data, where)
    if origin is Literal:
        return _checked(data, data in get_args(kind), where)
    if origin is tuple:
        _checked(data, isinstance(data, list), where)
        return tuple(_decode(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is dict:
        _checked(data, isinstance(data, dict), where)
        return {key: _decode(get_args(kind)[1], item, f"{where}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, data, where)
    if kind is float:
        return float(_checked(data, isinstance(data, (int, float)) and not isinstance(data, bool), where))
    return _checked(data, type(data) is kind, where)


def _decode_record(kind: Any, data: Any, where: str) -> Any:
    _checked(data, isinstance(data, dict), where)
    hints = get_type_hints(kind)
    values = {}
    for f in dataclasses.fields(kind):
        if f.name in data:
            values[f.name] = _decode(hints[f.name], data[f.name], f"{where}.{f.name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise RunFileError(f"The run lacks {where}.{f.name}.")
    return kind(**values)


def _decode_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    if Missing in kinds and isinstance(data, dict) and set(data) == {"missing"}:
        return Missing(str(data["missing"]))
    for kind in kinds:
        if kind is Missing:
            continue
        # int before float: a count stays a count.
        if kind is float and int in kinds and type(data) is int:
            continue
        try:
            return _decode(kind, data, where)
        except RunFileError:
            continue
    if type(None) in kinds and data is None:
        return None
    raise RunFileError(f"The run has a value of the wrong kind at {where}.")


def _checked(data: Any, right: bool, where: str) -> Any:
    if not right:
        raise RunFileError(f"The run has a value of the wrong kind at {where}.")
    return data
