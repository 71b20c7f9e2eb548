"""The order in which a loader's sampler draws, and the same order again."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import resumestate

#: The numbers of so many batches tell whether an order that was drawn again is the same.
_COMPARED = 4
OTHER_ORDER = "The Checkpointer cannot go on where the loop was."


class Numbers:
    """Stands for a loader's sampler during one pass: notes what it draws, or draws it again.

    The random states are noted, or put back, at its first number: the iterator has drawn a seed for its
    workers before.

    Args:
        loader: the loader.
        name: what to call it.
        again: the place to go on at, and what is known of it; None to begin.
        noted: told the random states from before the first number.
    """

    def __init__(
        self, loader: Any, name: str, again: Mapping[str, Any] | None, noted: Callable[[dict[str, Any]], None]
    ) -> None:
        self.sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        self._loader, self._name, self._again, self._noted = loader, name, again, noted
        self._source: Iterator[Any] | None = None
        self._count = 0
        ahead = (loader.prefetch_factor or 0) * loader.num_workers
        self._last: deque[Any] = deque(maxlen=ahead + _COMPARED + 1)

    def __iter__(self) -> Iterator[Any]:
        # A generator: the loader asks it for every batch, and nothing of Python's is cheaper.
        self.begin()
        keep = self._last.append
        for count, batch in enumerate(self._source, self._count + 1):  # type: ignore[arg-type]
            self._count = count
            keep(batch)
            yield batch

    def __len__(self) -> int:
        return len(self.sampler)

    def begin(self) -> None:
        """Draw the order, and pass over what was handed out already; once.

        Raises:
            UsageError: the order is not the same.
        """
        if self._source is not None:
            return
        # The loader keeps its iterator, and that this: not in a circle, in which workers end badly.
        loader, self._loader, again = self._loader, None, self._again
        if again is None:
            self._noted(snapshot(loader))
            self._source = iter(self.sampler)
            return
        put_back(loader, again["drawn"])
        self._source = iter(self.sampler)
        for batch in self._source:
            self._last.append(batch)
            self._count += 1
            if self._count == again["batch"]:
                break
        if self._count < again["batch"]:
            raise UsageError(f"{self._name} has fewer batches than were read.", OTHER_ORDER)
        if again["print"] is not None and self.print_at(self._count) != again["print"]:
            raise UsageError(
                f"The sampler of {self._name} does not give the same order again.",
                "Let it draw from a generator of its own (a torch.Generator that is its attribute).",
            )

    def print_at(self, batch: int) -> str | None:
        """A digest of the last numbers before the batch; None if they are not known any more."""
        first = self._count - len(self._last)
        begin = max(0, batch - _COMPARED)
        if begin < first or not batch:
            return None
        numbers = list(self._last)[begin - first : batch - first]
        return hashlib.sha256(repr(numbers).encode()).hexdigest()


def snapshot(loader: Any) -> dict[str, Any]:
    """The random states of this process, and of the generators of a loader."""
    return {"random": resumestate.random_states(), "generators": generator_states(loader)}


def put_back(loader: Any, states: Mapping[str, Any]) -> None:
    """Put a snapshot back; an empty one changes nothing."""
    if states:
        resumestate.restore_random(states["random"])
        put_generators(loader, states["generators"])


def innermost(loader: Any) -> Any:
    """The sampler that draws the numbers."""
    sampler: Any = getattr(loader, "batch_sampler", None)
    if sampler is None:
        sampler = getattr(loader, "sampler", None)
    while getattr(sampler, "sampler", None) is not None:
        sampler = sampler.sampler
    return sampler


def _generators(loader: Any) -> list[Any]:
    """The generators that a loader and its samplers draw from, each once, always in the same order."""
    torch = sys.modules["torch"]
    found: list[Any] = []
    owners = [loader, getattr(loader, "sampler", None)]
    owner = getattr(loader, "batch_sampler", None)
    while owner is not None:
        owners.append(owner)
        owner = getattr(owner, "sampler", None)
    for owner in owners:
        for value in getattr(owner, "__dict__", {}).values():
            if isinstance(value, torch.Generator) and not any(value is other for other in found):
                found.append(value)
    return found


def generator_states(loader: Any) -> list[Any]:
    """The state of each generator that a loader and its samplers draw from."""
    return [generator.get_state() for generator in _generators(loader)]


def put_generators(loader: Any, states: list[Any]) -> None:
    """Put the states back.

    Raises:
        UsageError: there are others than then.
    """
    generators = _generators(loader)
    if len(generators) != len(states):
        raise UsageError("The loader's samplers have other generators than before.", OTHER_ORDER)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
