"""Configuration of a real queue, written out for a person to apply: we emit, the queue's engine executes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The queues that a policy can be written for.
Queue = Literal["kueue", "slurm"]


@dataclass(frozen=True)
class EmittedFile:
    """One file of an emission: its name, without a folder, and what it holds."""

    name: str
    text: str


@dataclass(frozen=True)
class Emission:
    """What one policy becomes for one queue.

    Args:
        notes: one sentence each: what the policy asks for that this queue cannot do, or does in another way.
    """

    queue: Queue
    files: tuple[EmittedFile, ...]
    notes: tuple[str, ...] = ()
