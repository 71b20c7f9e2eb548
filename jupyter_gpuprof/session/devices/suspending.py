"""Takes a process through the states of the driver's checkpoint, from outside of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.suspension import next_call
from jupyter_gpuprof.probes.cudacheckpoint import DriverRefused
from jupyter_gpuprof.records.suspension import Call, Ending, Goal, ProcessState

#: How long the process has to finish the work it submitted, and how long a state in between may last.
LOCK_S, BUSY_S = 10.0, 60.0
_POLL_S = 0.1


class CheckpointDriver(Protocol):
    """One process, as the driver lets another one handle it; each call may raise `DriverRefused`."""

    def state(self) -> ProcessState:
        """What it is in."""
        ...

    def lock(self, timeout_ms: int) -> None:
        """No further calls of it."""
        ...

    def checkpoint(self) -> None:
        """Its device memory to the host."""
        ...

    def restore(self) -> None:
        """And back."""
        ...

    def unlock(self) -> None:
        """It goes on."""
        ...


@dataclass(frozen=True)
class Driven:
    """How far it came.

    Args:
        ending: how it ended.
        made: the calls, in order.
        trouble: what the driver said against it; empty for nothing.
    """

    ending: Ending
    made: tuple[Call, ...]
    trouble: str


def drive(
    driver: CheckpointDriver, goal: Goal, *,
    now_s: Callable[[], float] = clock.now_s, sleep: Callable[[float], None] = time.sleep,
) -> Driven:  # fmt: skip
    """Suspend a process, or bring it back; never raises for what the driver does.

    Args:
        driver: of the process.
        goal: what is wanted.
        now_s, sleep: the clock.
    """
    made: tuple[Call, ...] = ()
    troubles: list[str] = []
    while True:
        try:
            state = _settled(driver, now_s, sleep)
        except DriverRefused as error:
            return Driven("unknown" if made else "refused", made, "; ".join([*troubles, str(error)]))
        step = next_call(goal, state, made)
        if step not in ("lock", "checkpoint", "restore", "unlock"):
            return Driven(step, made, "; ".join(troubles))  # type: ignore[arg-type]
        made = (*made, step)
        try:
            driver.lock(int(LOCK_S * 1000)) if step == "lock" else getattr(driver, step)()
        except DriverRefused as error:
            troubles.append(f"{step}: {error}")


def _settled(
    driver: CheckpointDriver, now_s: Callable[[], float], sleep: Callable[[float], None]
) -> ProcessState:
    """The state, once it is none of those in between."""
    until_s = now_s() + BUSY_S
    while (state := driver.state()) == "busy":
        if now_s() >= until_s:
            raise DriverRefused(f"it is between two states for {BUSY_S:g} s")
        sleep(_POLL_S)
    return state
