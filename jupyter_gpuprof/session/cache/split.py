"""Cut a data set's pipeline of transforms at its last deterministic step."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof.analysis.determinism import Hazard
from jupyter_gpuprof.errors import CacheRefused
from jupyter_gpuprof.session.cache.plan import plan_of


class Head:
    """The first steps of a pipeline; remembers what it gave last, to be found again in the sample."""

    def __init__(self, steps: list[Any]) -> None:
        self.transforms = steps
        self._last: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        """A value with all steps done."""
        for step in self.transforms:
            value = step(value)
        self._last[threading.get_ident()] = value
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {"transforms": self.transforms, "_last": {}}

    def place_in(self, item: Any) -> Any:
        """Where in a sample the result of the last call is: an index, a key, or "" for the sample itself.

        Raises:
            CacheRefused: it is nowhere: the data set does more with it.
        """
        last = self._last.pop(threading.get_ident(), None)
        if item is last:
            return ""
        places = (
            item.items()
            if isinstance(item, dict)
            else enumerate(item if isinstance(item, (list, tuple)) else ())
        )
        for place, value in places:
            if value is last:
                return place
        raise CacheRefused(
            "The pipeline cannot be split: the data set changes what its transforms give.",
            "Let the transforms come last.",
        )


@dataclass(frozen=True)
class Split:
    """A data set without the rest of its transforms, and that rest.

    Args:
        dataset: a copy that ends with the last deterministic step.
        head: these steps, as they are in it.
        rest: the steps after it.
        reason: why the first of these is not kept.
    """

    dataset: Any
    head: Head
    rest: tuple[Any, ...]
    reason: Hazard

    def finish(self, item: Any, place: Any) -> Any:
        """A sample with the rest done to what is at `place` in it."""
        value = item if place == "" else item[place]
        for step in self.rest:
            value = step(value)
        if place == "":
            return value
        if isinstance(item, tuple):
            return (*item[:place], value, *item[place + 1 :])
        item[place] = value
        return item


def split_of(dataset: Any, *, most: int | None = None) -> Split | None:
    """The data set cut at its first step that gives something else each time; None if nothing can be cut.

    Args:
        dataset: a map-style data set, or one that wraps it as its ``dataset``.
        most: keep at most so many steps.
    """
    chain = _chain(dataset)
    found = _pipeline(chain[-1])
    if not found:
        return None
    name, steps = found
    kept: list[Any] = []
    reason = None
    for step in steps:
        hazards = plan_of(step, type(step).__name__).hazards
        if hazards or len(kept) == most:
            reason = hazards[0] if hazards else Hazard(_name(step), "random")
            break
        kept.append(step)
    if reason is None or not kept:
        return None
    head = Head(kept)
    copied = copy.copy(chain[-1])
    setattr(copied, name, head)
    for outer in reversed(chain[:-1]):
        wrapped = copy.copy(outer)
        wrapped.dataset = copied
        copied = wrapped
    return Split(copied, head, tuple(steps[len(kept) :]), reason)


def steps_of(dataset: Any) -> int:
    """How many steps its pipeline has; 0 without one."""
    found = _pipeline(_chain(dataset)[-1])
    return len(found[1]) if found else 0


def _chain(dataset: Any) -> list[Any]:
    """The data set and those that it wraps, down to the one with the pipeline."""
    chain = [dataset]
    while not _pipeline(chain[-1]) and hasattr(chain[-1], "dataset") and len(chain) < 8:
        chain.append(chain[-1].dataset)
    return chain


def _pipeline(dataset: Any) -> tuple[str, list[Any]] | None:
    """The attribute that holds a pipeline of transforms, and its steps."""
    for name in ("transform", "transforms"):
        found = getattr(dataset, "__dict__", {}).get(name)
        steps = getattr(found, "transforms", None)
        if callable(found) and isinstance(steps, (list, tuple)) and all(map(callable, steps)):
            return name, list(steps)
    return None


def _name(step: Any) -> str:
    return str(getattr(step, "__qualname__", type(step).__qualname__))
