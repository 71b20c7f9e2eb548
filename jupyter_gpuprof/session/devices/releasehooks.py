"""What the person wants done before this kernel is shut down, within a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Hook = TypeVar("Hook", bound=Callable[[], object])


@dataclass(frozen=True)
class _Asked:
    call: Callable[[], object]
    limit_s: float


_hooks: list[_Asked] = []


def on_release(fn: Hook | None = None, *, limit_s: float = 30.0) -> Hook | Callable[[Hook], Hook]:
    """Call a function before this kernel is shut down for its device, to save what would be lost.

    It runs in a thread of its own; one that takes longer than the limit is not waited for. Also a
    decorator::

        @jupyter_gpuprof.on_release
        def save():
            torch.save(model.state_dict(), "model.pt")

    Args:
        fn: called without arguments; the same function twice is the same as once.
        limit_s: seconds that it may take.
    """
    if fn is None:
        return lambda later: on_release(later, limit_s=limit_s)  # type: ignore[return-value]
    _hooks[:] = [asked for asked in _hooks if asked.call != fn]
    _hooks.append(_Asked(fn, limit_s))
    return fn


def forget_release(fn: Callable[[], object]) -> None:
    """Do not call that function any more."""
    _hooks[:] = [asked for asked in _hooks if asked.call != fn]


def call_release_hooks() -> tuple[str, ...]:
    """Call them, the one asked for last first; a sentence for each that failed or did not end in time."""
    return tuple(said for asked in reversed(_hooks) if (said := _call(asked)))


def _call(asked: _Asked) -> str:
    failure: list[BaseException] = []

    def work() -> None:
        try:
            asked.call()
        except BaseException as error:
            failure.append(error)

    name = getattr(asked.call, "__name__", type(asked.call).__name__)
    thread = threading.Thread(target=work, name="gpuprof on_release", daemon=True)
    thread.start()
    thread.join(asked.limit_s)
    if thread.is_alive():
        return f"{name} (on_release) did not end within {asked.limit_s:g} s."
    if failure:
        return f"{name} (on_release) failed ({type(failure[0]).__name__}: {failure[0]})."
    return ""
