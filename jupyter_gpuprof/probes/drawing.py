"""Whether code draws random numbers, by running it: seeds are set, states are compared, all is put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def states_kept() -> Iterator[None]:
    """Whatever is drawn inside, the random states of this process are as before."""
    states = {name: get() for name, (get, _, _) in _generators().items()}
    try:
        yield
    finally:
        for name, (_, put, _) in _generators().items():
            if name in states:
                put(states[name])


def drawn_by(work: Callable[[], T], seed: int) -> tuple[T, tuple[str, ...]]:
    """What some work gives from that seed on, and the generators of this process that it drew from.

    Args:
        work: what to run, inside `states_kept`.
        seed: for all of them.
    """
    generators = _generators()
    for _, _, put_seed in generators.values():
        put_seed(seed)
    before = {name: _comparable(get()) for name, (get, _, _) in generators.items()}
    result = work()
    after = {name: _comparable(get()) for name, (get, _, _) in generators.items()}
    return result, tuple(name for name in before if before[name] != after[name])


def _comparable(state: Any) -> Any:
    return bytes(state.numpy()) if hasattr(state, "numpy") else repr(state)


def _generators() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]]:
    """Python's, numpy's and torch's, as far as loaded: how to get, put back and seed their states."""
    found: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]] = {
        "random": (random.getstate, random.setstate, random.seed)
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:

        def state() -> Any:
            name, keys, *rest = numpy.random.get_state()
            return name, keys.tolist(), *rest

        found["numpy.random"] = (state, numpy.random.set_state, numpy.random.seed)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        found["torch"] = (torch.get_rng_state, torch.set_rng_state, torch.default_generator.manual_seed)
    return found
