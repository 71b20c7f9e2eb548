"""What sampling the stacks of threads and loader workers gave, before anybody judges it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Missing, Number

#: What a stack was sampled in: fetching a batch (or making one, in a worker), or anything else.
Where = Literal["fetch", "step"]


@dataclass(frozen=True)
class Frame:
    """One frame of a Python stack.

    `text` is the source of what was running: the call itself where the interpreter tells (3.11 and
    newer), else its line; empty where there is no source.
    """

    file: str
    line: int
    function: str
    text: str = ""


@dataclass(frozen=True)
class StackCount:
    """One stack, innermost frame first, and how often it was seen."""

    frames: tuple[Frame, ...]
    where: Where
    count: int


@dataclass(frozen=True)
class Samples:
    """Stacks of one kind of thread over a run.

    Args:
        source: "training thread", "workers" (from inside each worker) or "py-spy" (from outside).
        stacks: distinct stacks with their counts.
        period_s: between two samples of one thread.
        threads: how many threads were sampled (worker processes).
        cpu_s: processor seconds of the sampled threads while they were sampled.
        core_wait_s: seconds for which they could have computed, but no core was free.
        wall_s: seconds over which they were sampled, all threads together.
        remarks: what a person should know: workers that could not be read and why, samples left out.
    """

    source: Literal["training thread", "workers", "py-spy"]
    stacks: tuple[StackCount, ...]
    period_s: float
    threads: int = 1
    cpu_s: Number = Missing("not read")
    core_wait_s: Number = Missing("not read")
    wall_s: float = 0.0
    remarks: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many samples there are."""
        return sum(stack.count for stack in self.stacks)
