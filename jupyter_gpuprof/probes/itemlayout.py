"""Samples as bytes and back: arrays, tensors and images as they lie in memory, plain data as msgpack.

Nothing of it can run code when it is read.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from jupyter_gpuprof.errors import CacheRefused

#: Arrays begin at multiples of so many bytes.
ALIGNED_BYTES = 64
_PLAIN = (bool, int, float, str, bytes, type(None))
#: Modes of images that are an array and nothing else.
_MODES = {
    "L": 1,
    "RGB": 3,
    "RGBA": 4,
    "CMYK": 4,
    "YCbCr": 3,
    "HSV": 3,
    "LAB": 3,
    "LA": 2,
    "I;16": 0,
    "I": 0,
    "F": 0,
}


@dataclass(frozen=True)
class Packed:
    """A sample as bytes.

    Args:
        layout: how it is built, as msgpack; the same for samples of the same shapes and kinds.
        data: its arrays one after the other, each at a multiple of `ALIGNED_BYTES`, then its plain values.
        plain_at: where in `data` those begin, in bytes.
    """

    layout: bytes
    data: bytes
    plain_at: int


def pack(item: Any) -> Packed:
    """A sample as bytes.

    Raises:
        CacheRefused: a part of it is nothing that can be read back without running code.
    """
    arrays: list[Any] = []
    plain: list[Any] = []
    layout = msgspec.msgpack.encode(_layout(item, arrays, plain, "the sample"))
    pieces: list[bytes | memoryview] = []
    size = 0
    for array in arrays:
        pieces.append(array.tobytes())
        size += array.nbytes
        gap = -size % ALIGNED_BYTES
        pieces.append(bytes(gap))
        size += gap
    try:
        pieces.append(msgspec.msgpack.encode(plain))
    except (OverflowError, UnicodeEncodeError) as error:
        raise CacheRefused(f"The sample cannot be kept: {error}.") from None
    return Packed(layout, b"".join(pieces), size)


def _layout(item: Any, arrays: list[Any], plain: list[Any], path: str) -> Any:
    kind = type(item)
    if kind in _PLAIN:
        plain.append(item)
        return 0
    if kind in (list, tuple):
        parts = [_layout(part, arrays, plain, f"{path}[{i}]") for i, part in enumerate(item)]
        return ["l" if kind is list else "u", parts]
    if kind is dict and all(type(key) in (str, int) for key in item):
        parts = [_layout(part, arrays, plain, f"{path}[{key!r}]") for key, part in item.items()]
        return ["d", list(item), parts]
    if kind is np.ndarray and not item.dtype.hasobject and item.dtype.names is None:
        arrays.append(np.ascontiguousarray(item))
        return ["a", item.dtype.str, item.shape]
    if isinstance(item, np.generic) and not item.dtype.hasobject and item.dtype.names is None:
        arrays.append(np.asarray(item))
        return ["s", item.dtype.str, ()]
    torch = sys.modules.get("torch")
    if (
        torch is not None
        and kind is torch.Tensor
        and item.layout == torch.strided
        and item.device.type == "cpu"
        and not item.requires_grad  # it would come back without
        and not item.is_quantized
    ):
        flat = item.resolve_conj().resolve_neg().contiguous().reshape(-1)
        arrays.append(flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8))
        return ["t", str(item.dtype).removeprefix("torch."), tuple(item.shape)]
    mode = getattr(item, "mode", None)
    if mode in _MODES and kind.__module__.startswith("PIL."):
        arrays.append(np.asarray(item))
        return ["i", mode, arrays[-1].shape, arrays[-1].dtype.str]
    raise CacheRefused(f"{path} is a {kind.__qualname__}, which cannot be kept: {_KEPT}.")


_KEPT = "arrays, tensors, images, numbers, text and containers of these can"
#: Makes a sample of a buffer, where in it the sample begins and ends, and where its plain values begin.
Unpack = Callable[[Any, int, int, int], Any]


@functools.lru_cache(maxsize=256)
def unpacker(layout: bytes) -> Unpack:
    """What makes samples of that layout again, each in memory of its own."""
    built = msgspec.msgpack.decode(layout)
    if isinstance(built, list) and built[0] in ("u", "l") and all(_is_leaf(part) for part in built[1]):
        return _flat(built)
    decode = msgspec.msgpack.decode

    def unpack(buffer: Any, begin: int, end: int, plain_at: int) -> Any:
        plain = iter(decode(memoryview(buffer)[begin + plain_at : end]))
        item, _ = _build(built, buffer, begin, begin, plain)
        return item

    return unpack


def _is_leaf(part: Any) -> bool:
    return part == 0 or part[0] not in ("l", "u", "d")


def _flat(built: Any) -> Unpack:
    """The usual case, a tuple of arrays and numbers, with everything worked out beforehand."""
    kind, parts = (tuple if built[0] == "u" else list), built[1]
    makers: list[Any] = []
    offset = 0
    for part in parts:
        if part == 0:
            makers.append(None)
            continue
        make, size = _leaf(part)
        makers.append((make, offset))
        offset += size
    decode = msgspec.msgpack.decode

    def unpack(buffer: Any, begin: int, end: int, plain_at: int) -> Any:
        plain = iter(decode(memoryview(buffer)[begin + plain_at : end]))
        return kind([next(plain) if m is None else m[0](buffer, begin + m[1]) for m in makers])

    return unpack


def _build(built: Any, buffer: Any, begin: int, at: int, plain: Any) -> tuple[Any, int]:
    if built == 0:
        return next(plain), at
    if built[0] in ("l", "u", "d"):
        items = []
        for part in built[-1]:
            item, at = _build(part, buffer, begin, at, plain)
            items.append(item)
        if built[0] == "d":
            return dict(zip(built[1], items, strict=True)), at
        return (items if built[0] == "l" else tuple(items)), at
    make, size = _leaf(built)
    return make(buffer, at), at + size


def _leaf(part: Any) -> tuple[Callable[[Any, int], Any], int]:
    """What makes an array, a tensor or an image of a buffer and an offset; the bytes that it takes there."""
    kind, name, shape = part[0], part[1], tuple(part[2])
    if kind == "t":
        import torch

        dtype = getattr(torch, name)
        count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

        def make(buffer: Any, at: int) -> Any:
            copied = np.ndarray((count,), np.uint8, buffer, at).copy()
            return (
                torch.from_numpy(copied).view(dtype).reshape(shape)
                if count
                else torch.empty(shape, dtype=dtype)
            )

        return make, count + -count % ALIGNED_BYTES
    dtype = np.dtype(part[3] if kind == "i" else name)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    padded = count + -count % ALIGNED_BYTES
    if kind == "a":
        return lambda buffer, at: np.ndarray(shape, dtype, buffer, at).copy(), padded
    if kind == "s":
        return lambda buffer, at: np.ndarray(shape, dtype, buffer, at)[()], padded

    def image(buffer: Any, at: int) -> Any:
        from PIL import Image

        size = (shape[1], shape[0])
        return Image.frombytes(name, size, np.ndarray(shape, dtype, buffer, at).tobytes())

    return image, padded
