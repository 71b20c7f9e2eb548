"""What became of the device memory of a kernel that was asked to let go of it, or to take it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.idleness import Action, Decision
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing, Number


@dataclass(frozen=True)
class Held:
    """Memory that goes by one name.

    Args:
        name: of the variable that leads to it, or words in brackets where none does.
        size_bytes: tensors that share memory are counted once, under the first name that was found.
        why: it stays where it is; empty where nothing is to be said.
    """

    name: str
    size_bytes: int
    why: str = ""


@dataclass(frozen=True)
class ReleaseReport:
    """One release, offload or return.

    Args:
        kind: "release" frees what nobody uses, "offload" also moves tensors to the host, "return" brings
            them back.
        devices: in use when it began, as the framework calls them; empty without an accelerator in use.
        simulated: they are not real.
        freed_bytes: what others can have now that this process had before; 0 for a return.
        reserved_bytes: what the framework still keeps of the devices. The driver's own context comes on
            top and goes only with the process.
        still_held: what of it goes by a name, and what by none.
        moved: to the host, or back from it.
        stayed: what could not be moved, and why.
        complete: all was moved that was to be moved.
        remarks: what else to know, sentences.
        took_s: how long it took.
    """

    kind: Literal["release", "offload", "return"]
    devices: tuple[str, ...] = ()
    simulated: bool = False
    freed_bytes: int = 0
    reserved_bytes: int = 0
    still_held: tuple[Held, ...] = ()
    moved: tuple[Held, ...] = ()
    stayed: tuple[Held, ...] = ()
    complete: bool = True
    remarks: tuple[str, ...] = ()
    took_s: float = 0.0

    @property
    def moved_bytes(self) -> int:
        """All that was moved."""
        return sum(held.size_bytes for held in self.moved)

    @property
    def stayed_bytes(self) -> int:
        """All that could not be moved."""
        return sum(held.size_bytes for held in self.stayed)


@dataclass(frozen=True)
class ReaperNote:
    """What the kernel's own reaper does, for the person.

    Args:
        action: the step.
        sentence: why.
        next_action: what follows if nothing changes; "none" where nothing does.
        next_s: until then.
        report: of a step that frees; None for the others.
        remarks: what went wrong, sentences.
    """

    action: Action
    sentence: str
    next_action: Action = "none"
    next_s: Number = Missing("nothing follows")
    report: ReleaseReport | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReaperStatus:
    """The kernel's own reaper, for ``%gpuprof reaper status``.

    Args:
        policy: what it may do; None while it is off.
        steps_back: why it leaves the work to the server's; empty where it does not.
        decision: the last one; None before the first.
        trouble: the last failure of its own; empty where there was none.
    """

    policy: Policy | None
    steps_back: str = ""
    decision: Decision | None = None
    trouble: str = ""
