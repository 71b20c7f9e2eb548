"""Digests of batches, parameters and random states: reads only, draws nothing, changes nothing."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jupyter_gpuprof.probes import resumestate

#: Of a large tensor so many numbers are read, evenly spread: enough to tell two states apart.
_SPREAD = 256
_DEEPEST = 8


def batch_digest(batch: Any) -> str:
    """Of everything in a batch, bit by bit."""
    return _digest(_pieces(batch, 0))


def sample_digests(batch: Any) -> tuple[str, ...]:
    """Of each sample of a batch, whose tensors are stacked along their first dimension; else empty."""
    tensors = [found for found in _tensors(batch, 0) if found.ndim]
    sizes = {len(tensor) for tensor in tensors}
    if len(sizes) != 1:
        return ()
    return tuple(_digest(_bits(tensor[i]) for tensor in tensors) for i in range(sizes.pop()))


def state_digest(things: Iterable[Any]) -> str:
    """Of tensors (of large ones, numbers spread over them), numbers and containers of these."""
    return _digest(piece for thing in things for piece in _pieces(thing, 0, _SPREAD))


def random_digest() -> str:
    """Of the random states of this process and its devices."""
    return _digest(_pieces(resumestate.random_states(), 0))


def _digest(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(len(piece).to_bytes(8, "little"))
        found.update(piece)
    return found.hexdigest()[:16]


def _pieces(thing: Any, depth: int, most: int = 0) -> Iterator[bytes]:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(thing, torch.Tensor):
        yield _bits(thing, most)
    elif numpy is not None and isinstance(thing, numpy.ndarray) and not thing.dtype.hasobject:
        yield f"{thing.dtype} {thing.shape}".encode() + thing.tobytes()
    elif depth > _DEEPEST:
        yield type(thing).__qualname__.encode()
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield repr(key).encode()
            yield from _pieces(value, depth + 1, most)
    elif isinstance(thing, (list, tuple)):
        yield f"{type(thing).__qualname__} {len(thing)}".encode()
        for value in thing:
            yield from _pieces(value, depth + 1, most)
    elif isinstance(thing, (bool, int, float, complex, str, bytes, type(None))):
        yield f"{type(thing).__name__} {thing!r}".encode()
    else:
        yield type(thing).__qualname__.encode()
        yield from _pieces(getattr(thing, "__dict__", {}), depth + 1, most)


def _tensors(thing: Any, depth: int) -> Iterator[Any]:
    if isinstance(thing, sys.modules["torch"].Tensor):
        yield thing
    elif depth <= _DEEPEST and isinstance(thing, (Mapping, list, tuple)):
        for value in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _tensors(value, depth + 1)
    elif depth <= _DEEPEST and hasattr(thing, "__dict__"):
        yield from _tensors(vars(thing), depth + 1)


def _bits(tensor: Any, most: int = 0) -> bytes:
    """The kind, the shape and the bits of a tensor; of more than `most` numbers, so many of them."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
        plain = tensor.detach()
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        if most and plain.numel() > most:
            plain = plain.reshape(-1)[:: plain.numel() // most]
        plain = plain.cpu().contiguous().reshape(-1)
        return kind + bytes(plain.view(torch.uint8).numpy().tobytes()) if plain.numel() else kind
