"""The trail of a training loop: what each step was given and what came of it, written down as it goes.

A step is a batch that a backward pass followed. It is over when the loop asks for its next batch; that is
the boundary at which a process can be interrupted. Batches that no backward pass followed (validation, those
that a resumed loop passes over) belong to no step. Where several batches were delivered before a step, as
many of the last ones are its own as it had backward passes; a loop that fetches one batch ahead (Lightning,
Accelerate) is thereby seen with each step's following batch, always alike.

Reading costs time and waits for the device, and changes no number: no random number is drawn.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from jupyter_gpuprof.probes.digests import batch_digest, random_digest, sample_digests, state_digest
from jupyter_gpuprof.records.resumeaudit import SeenStep


class Trail:
    """Follows the process's training from `start` on; for a process that does nothing else.

    Args:
        on_step: told each step when it is over, and its number from 1 on.
        on_boundary: told the number of steps made, after `on_step`, before the next batch is fetched.
        on_update: told the number of the step in which an optimizer is about to step.
    """

    def __init__(
        self,
        on_step: Callable[[int, SeenStep], None],
        on_boundary: Callable[[int], None] = lambda steps: None,
        on_update: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.steps = 0
        self._on_step, self._on_boundary, self._on_update = on_step, on_boundary, on_update
        self._thread = get_ident()
        self._delivered: deque[tuple[int, tuple[str, ...], bool, str]] = deque(maxlen=256)
        self._passes: dict[int, int] = {}
        self._losses: list[str] = []
        self._rates: list[str] = []
        self._state: tuple[str, str, str] = ("", "", "")
        self._undo: list[Callable[[], None]] = []
        self._depth = self._epoch = 0

    @property
    def step(self) -> int:
        """The step whose backward pass was last; 0 before the first."""
        return self.steps + bool(self._losses)

    def start(self) -> None:
        """Put our hooks into torch."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._replace(DataLoader, "__iter__", self._iter)
        self._replace(_BaseDataLoaderIter, "_next_index", self._next_index)
        self._replace(_BaseDataLoaderIter, "__next__", self._next)
        self._replace(torch.autograd, "backward", self._backward)
        self._undo.append(register_optimizer_step_pre_hook(self._steps).remove)

    def stop(self) -> None:
        """Take them out again, and close the last step."""
        self.close_step()
        while self._undo:
            self._undo.pop()()

    def close_step(self) -> None:
        """The step that had its backward pass is over."""
        if not self._losses:
            return
        own = list(self._delivered)[-len(self._losses) :]
        self._delivered.clear()
        self._epoch = own[-1][0] if own else self._epoch
        seen = SeenStep(
            epoch=self._epoch,
            samples=tuple(sample for one in own for sample in one[1]),
            indexed=all(one[2] for one in own),
            content=",".join(one[3] for one in own),
            rates=tuple(self._rates),
            losses=tuple(self._losses),
            weights=self._state[0],
            moments=self._state[1],
            random=self._state[2],
        )
        self._losses, self._rates, self._state = [], [], ("", "", "")
        self.steps += 1
        self._on_step(self.steps, seen)

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, make(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _iter(self, original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            if get_ident() == self._thread and not self._depth:
                self._passes[id(loader)] = self._passes.get(id(loader), 0) + 1
            kept = getattr(loader, "_iterator", None)
            if kept is not None and hasattr(kept, "_gpuprof_indices"):
                kept._gpuprof_indices.clear()  # persistent workers begin a new pass
            iterator = original(loader)
            iterator._gpuprof_pass = self._passes.get(id(loader), 1) - 1
            return iterator

        return __iter__

    def _next_index(self, original: Any) -> Any:
        def _next_index(iterator: Any) -> Any:
            index = original(iterator)
            known = vars(iterator).setdefault("_gpuprof_indices", deque())
            known.append(index)
            return index

        return _next_index

    def _next(self, original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            if get_ident() != self._thread or self._depth:
                return original(iterator)
            self.close_step()
            self._on_boundary(self.steps)
            self._depth += 1
            try:
                batch = original(iterator)
            finally:
                self._depth -= 1
            self._note(iterator, batch)
            return batch

        return __next__

    def _note(self, iterator: Any, batch: Any) -> None:
        known = getattr(iterator, "_gpuprof_indices", ())
        index = known.popleft() if known else None
        samples, indexed = _numbers(index), True
        if not samples:
            samples, indexed = sample_digests(batch), False
        self._delivered.append((getattr(iterator, "_gpuprof_pass", 0), samples, indexed, batch_digest(batch)))

    def _backward(self, original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            result = original(tensors, *args, **kwargs)
            torch = sys.modules["torch"]
            first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
            self._losses.append(float(first.detach().double().sum().item()).hex())
            return result

        return backward

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._rates += [float(group["lr"]).hex() for group in optimizer.param_groups]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state = [optimizer.state[p] for p in parameters if p in optimizer.state]
        weights, moments, _ = self._state
        self._state = weights + state_digest(parameters), moments + state_digest(state), random_digest()
        self._on_update(self.step)


def _numbers(index: Any) -> tuple[str, ...]:
    """The sampler's numbers of a batch; none for a stream, whose "numbers" are empty."""
    if isinstance(index, (list, tuple)):
        return tuple(repr(one) for one in index if one is not None)
    return () if index is None else (repr(index),)
