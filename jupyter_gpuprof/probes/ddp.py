"""How long a data-parallel backward pass waits for communication after its last gradient.

DistributedDataParallel lets the compute stream wait for its collectives before `backward` returns. From
the moment at which the last gradient is there to the end of the pass, nothing but that is left to do: a
lower bound of exposed communication, at the cost of one hook on one parameter. Which parameter comes
last is learned in one pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.probes.recorder import Recorder


class _LastGradient:
    """Finds the parameter of one module whose gradient comes last, then watches only that one."""

    def __init__(self, module: Any, mine: Callable[[], Recorder | None]) -> None:
        self._current = mine
        self._recorder: Recorder | None = None
        self._last: Any = None
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._learn)
            for parameter in module.parameters()
            if parameter.requires_grad
        ]

    def forward(self) -> None:
        """A forward pass begins; after the first backward pass the last parameter is known."""
        self._recorder = self._current()
        if self._last is not None:
            last, self._last = self._last, None
            self.remove()
            self._handles = [last.register_post_accumulate_grad_hook(self._tell)]

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _learn(self, parameter: Any) -> None:
        self._last = parameter

    def _tell(self, parameter: Any) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            recorder.tail()
        except Exception as error:
            recorder.failed(error)


def patch(
    replace: Callable[[Any, str, Callable[[Any], Any]], None],
    undo: list[Callable[[], None]],
    mine: Callable[[], Recorder | None],
) -> None:
    """Watch every DistributedDataParallel module that runs from here on.

    Args:
        replace: puts a wrapper in place of a method, until everything is undone.
        undo: what is to be called then.
        mine: the run to record into, on the training thread.
    """
    import torch

    if not torch.distributed.is_available():
        return
    from torch.nn.parallel import DistributedDataParallel

    watched: weakref.WeakKeyDictionary[Any, _LastGradient] = weakref.WeakKeyDictionary()

    # `forward` calls it, and so do the hooks of the composable `replicate`, which has no module to call.
    before = "_pre_forward" if hasattr(DistributedDataParallel, "_pre_forward") else "forward"

    def wrap(original: Any) -> Any:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            recorder = mine()
            if recorder is not None and torch.is_grad_enabled():
                try:
                    if module not in watched:
                        watched[module] = _LastGradient(module, mine)
                    watched[module].forward()
                except Exception as error:
                    recorder.failed(error)
            return original(module, *args, **kwargs)

        return forward

    def remove_all() -> None:
        for last in list(watched.values()):
            last.remove()

    replace(DistributedDataParallel, before, wrap)
    undo.append(remove_all)
