"""How far a loop has come in its loader, and how to go on there in another process.

Counted are batches that the loader handed out, not those that its workers have fetched ahead. Going on means:
the random states from before the order was drawn, the same draw again, and what was handed out passed over,
as numbers where the data set has numbers, by reading where it is a stream.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import resumestate
from jupyter_gpuprof.probes.loadercount import count_in, count_out, counted
from jupyter_gpuprof.probes.loaderorder import (
    OTHER_ORDER,
    Numbers,
    generator_states,
    innermost,
    put_back,
    put_generators,
    snapshot,
)
from jupyter_gpuprof.probes.workersignals import GoOn


def is_loader(thing: Any) -> bool:
    """Whether its place is counted: torch's DataLoader, or something to loop over that has no state."""
    from torch.utils.data import DataLoader

    stateful = callable(getattr(thing, "state_dict", None)) or isinstance(thing, Mapping)
    return isinstance(thing, DataLoader) or (not stateful and hasattr(type(thing), "__iter__"))


class LoaderPosition:
    """Counts the batches of a loader from now on; the loader stays the same object, and iterates as before.

    Args:
        name: what to call it in messages.
        loader: torch's DataLoader or a kind of it, torchdata's StatefulDataLoader, or any iterable.

    Raises:
        UsageError: its order cannot be had again.
    """

    def __init__(self, name: str, loader: Any) -> None:
        from torch.utils.data import DataLoader, IterableDataset

        if getattr(loader, "num_workers", 0) and not getattr(loader, "in_order", True):
            raise UsageError(
                f"{name} hands out batches in the order in which they are ready (in_order=False), "
                "which cannot be had again.",
                "Make it with in_order=True.",
            )
        self.name = name
        count_in(self, loader)
        self._loader = weakref.ref(loader)  # which refers to this
        self.passes = 0  # that the loop has ended
        self.batch = 0  # handed out in this pass
        self.trained = False  # a step was made in this pass
        self.restored: Mapping[str, Any] | None = None  # random states of the main process, see `resume`
        self.has_state = callable(getattr(loader, "state_dict", None))
        self._is_torch = isinstance(loader, DataLoader)
        self._is_stream = not self._is_torch or isinstance(loader.dataset, IterableDataset)
        #: Others of the same loop: with ``zip(a, b)`` only one of them is read to its end.
        self.others: Sequence[LoaderPosition] = ()
        self._left = False  # another's pass ended where this one goes on too
        self._in_pass = False
        self._iterator: Callable[[], Any] = lambda: None  # a weak reference
        self._again: Mapping[str, Any] | None = None
        self._born: dict[str, Any] = {}  # random states before the iterator was made
        self._drawn: dict[str, Any] = {}  # and before it drew the order
        self._numbers: Numbers | None = None

    @property
    def loader(self) -> Any:
        """The loader, which its owner keeps."""
        return self._loader()

    def detach(self) -> None:
        """Count no longer."""
        count_out(self, self.loader)

    def stepped(self) -> None:
        """The loop has made a step."""
        self.restored = None  # from here on the random states are its own
        if self._in_pass:
            self.trained, self._again, self._left = True, None, False

    def geometry(self) -> dict[str, Any]:
        """What the order depends on, as plain JSON values."""
        if not self._is_torch:
            return {"kind": type(self.loader).__name__}
        loader, sampler = self.loader, innermost(self.loader)
        found: dict[str, Any] = {
            "batch_size": getattr(loader.batch_sampler, "batch_size", loader.batch_size),
            "drop_last": bool(getattr(loader.batch_sampler, "drop_last", loader.drop_last)),
        }
        if self._is_stream or self.has_state:
            found["num_workers"] = loader.num_workers
        if self._is_stream:
            return found
        return found | {
            "items": len(loader.dataset) if hasattr(loader.dataset, "__len__") else None,
            "sampler": type(sampler).__name__,
            "num_replicas": getattr(sampler, "num_replicas", 1),
            "seed": getattr(sampler, "seed", None) if hasattr(sampler, "num_replicas") else None,
        }

    def state(self) -> dict[str, Any]:
        """Where the loop is, as tensors and plain data."""
        if self._in_pass and self.trained and self._iterator() is None:
            self._ended()  # a loop that was left by ``break`` has let its iterator go
        found: dict[str, Any] = {
            "passes": self.passes,
            "batch": self.batch,
            "generators": generator_states(self.loader),
            "epoch": getattr(innermost(self.loader), "epoch", None),
            "born": self._born,
            "drawn": self._drawn,
            "print": self._numbers.print_at(self.batch) if self._numbers is not None else None,
        }
        if self.has_state:
            found["loader"] = self.loader.state_dict()
        elif self._dataset_has_state():
            found["dataset"] = self.loader.dataset.state_dict()
            fetcher = getattr(self._iterator(), "_dataset_fetcher", None)
            found["ended"] = bool(getattr(fetcher, "ended", False))
        return found

    def resume(self, state: Mapping[str, Any], random: Mapping[str, Any], *, same_batches: bool) -> None:
        """Go on at a state when the loop next iterates.

        Args:
            state: from `state`, of another process.
            random: the random states of the main process then, which are put back when the loop is in place.
            same_batches: False if the batches are cut otherwise now, so that they cannot be compared.
        """
        self.passes, self.batch = state["passes"], state["batch"]
        self._in_pass = self.trained = False
        self._numbers = None
        put_generators(self.loader, state["generators"])
        self._load_own_state(state)
        self._again = self.restored = None
        if state["batch"]:
            self._again, self.restored = dict(state), random
            if not same_batches:
                self._again = {**self._again, "print": None}  # type: ignore[dict-item]

    def begin(self, make: Callable[[], Any]) -> Any:
        """The loop iterates: called in place of the loader's ``__iter__``, which is `make`."""
        if self._left:
            self._ended()
        if self._again is not None:
            iterator = self._go_on(make, self._again)
        else:
            if self._in_pass and self.trained:
                self._ended()  # the loop left the pass before its end
            if not self._born or getattr(self.loader, "_iterator", None) is None:
                self._born = snapshot(self.loader)  # else persistent workers were started in an earlier pass
            self.batch = 0
            self._numbers = self._numbers_of(None)
            iterator = self._make(make)
        self._in_pass, self.trained = True, False
        iterator = counted(iterator, self)
        self._iterator = weakref.ref(iterator)
        return iterator

    def end_pass(self, iterator: Any) -> None:
        """The loop has read all of it."""
        if not (self._in_pass and self._iterator() is iterator):
            return
        if self._again is not None:  # no step was made since: the pass ends where the other process stopped
            for other in self.others:
                other._left = other._in_pass and other._again is not None
        self._ended()

    def _ended(self) -> None:
        self.passes += 1
        self.batch, self._in_pass, self.trained, self._again, self._left = 0, False, False, None, False

    def _go_on(self, make: Callable[[], Any], at: Mapping[str, Any]) -> Any:
        """Make the iterator that the other process had, and bring it to the batch that it was at."""
        self._born, self._drawn, self.batch = dict(at["born"]), dict(at["drawn"]), at["batch"]
        if at["epoch"] is not None and hasattr(innermost(self.loader), "set_epoch"):
            innermost(self.loader).set_epoch(at["epoch"])
        self._load_own_state(at)
        put_back(self.loader, self._born)
        self._numbers = self._numbers_of(at)
        iterator = self._make(make)
        if self._numbers is not None and hasattr(iterator, "_sampler_iter"):
            self._numbers.begin()
        elif self._dataset_has_state():
            if at["ended"]:  # the last batch was a smaller one, and the stream has begun anew
                iterator._dataset_fetcher.ended = True
        elif not self.has_state:
            self._numbers = None
            self._read_over(iterator, at["batch"])
        if self.restored is not None:
            resumestate.restore_random(self.restored)
        return iterator

    def _load_own_state(self, at: Mapping[str, Any]) -> None:
        if self.has_state:
            self.loader.load_state_dict(at["loader"])
        elif "dataset" in at and self._dataset_has_state():
            self.loader.dataset.load_state_dict(at["dataset"])

    def _read_over(self, iterator: Any, count: int) -> None:
        for _ in range(count):
            try:
                next(iterator)
            except StopIteration:
                raise UsageError(f"{self.name} has fewer batches than were read.", OTHER_ORDER) from None

    def _make(self, make: Callable[[], Any]) -> Any:
        """Call the loader's own ``__iter__`` with our numbers for its sampler, and workers that go on."""
        if not self._is_torch:
            return make()
        slots, loader = vars(self.loader), self.loader
        own_init = loader.worker_init_fn
        slot = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        own, kept = slots[slot], getattr(loader, "_iterator", None)
        if loader.num_workers and not isinstance(own_init, GoOn):
            loader.worker_init_fn = GoOn(own_init)
        if self._numbers is not None:
            slots[slot] = self._numbers
            if kept is not None:
                kept._index_sampler = self._numbers
        try:
            iterator = make()
        finally:
            slots[slot] = own
            loader.worker_init_fn = own_init
            if kept is not None and self._numbers is not None:
                kept._index_sampler = own
        if self._numbers is not None and hasattr(iterator, "_index_sampler"):
            iterator._index_sampler = own
        return iterator

    def _numbers_of(self, again: Mapping[str, Any] | None) -> Numbers | None:
        if self._is_stream or self.has_state:
            return None

        def noted(states: dict[str, Any]) -> None:
            self._drawn = states

        return Numbers(self.loader, self.name, again, noted)

    def _dataset_has_state(self) -> bool:
        """A stream that says where it is; in workers, its copies would have to be asked."""
        return (
            self._is_torch
            and self._is_stream
            and not self.loader.num_workers
            and callable(getattr(self.loader.dataset, "state_dict", None))
        )


def moved(batch: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> int | None:
    """The batch at which as many samples were handed out, to all ranks together, with another geometry.

    Args:
        batch: with the old one.
        was, now: from `LoaderPosition.geometry`; only the size of a batch and the number of ranks among which
            a DistributedSampler deals the samples may differ.

    Returns:
        None if there is no such batch.
    """
    may_differ = ("batch_size", "num_replicas")
    if {k: v for k, v in was.items() if k not in may_differ} != {
        k: v for k, v in now.items() if k not in may_differ
    }:
        return None
    try:
        before, after = (one["batch_size"] * one["num_replicas"] for one in (was, now))
    except (KeyError, TypeError):
        return None
    samples = batch * before
    return samples // after if samples % after == 0 else None
