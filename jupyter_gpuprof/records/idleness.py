"""What is known of a kernel that may hold a device, and what is decided about it.

Moments are monotonic seconds of the process that decides; a start time that identifies a process is in
seconds since 1970, as the operating system tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jupyter_gpuprof.records.reading import Missing, Number

#: What a holder is doing, as far as can be told.
Activity = Literal[
    "training",
    "running a cell",
    "waiting for input",  # a cell is open, and neither processor nor device works for it
    "background work",  # no cell is open, and something works
    "idle",
    "starting",
    "remote",  # its processes are on another machine
    "unknown",
]

#: What to do with a holder, from nothing to the most.
Action = Literal["none", "warn", "free", "offload", "suspend", "shutdown", "end orphan"]

#: Why, in one word for programs; the sentence beside it is for persons.
Reason = Literal[
    "idle",  # idle for long enough: the action is due
    "not idle long enough",
    "stalled",  # a cell is open and nothing works, for longer than the busy timeout
    "busy",
    "waiting for input",
    "starting",
    "remote",
    "unknown",
    "keep",
    "exempt",
    "message in progress",
    "holds too little",
    "policy hook",
    "off",
    "warned",  # nothing more than a warning is allowed
    "done",  # all steps were taken, and their effect is awaited
    "released",
    "not released",
    "not certainly ours",
    "orphans are only reported",
]


@dataclass(frozen=True)
class Process:
    """A process: its number may be given again, so the start time (seconds since 1970) belongs to it."""

    pid: int
    started_s: float
    uid: int


@dataclass(frozen=True)
class Tick:
    """One look at all holders: the monotonic and the wall clock, and the planned time between looks."""

    now_s: float
    wall_s: float
    interval_s: float


@dataclass(frozen=True)
class Keep:
    """Somebody asked to leave a kernel alone, at `since_s` until `until_s`."""

    since_s: float
    until_s: float
    why: str = ""


@dataclass(frozen=True)
class Work:
    """What the processes of a holder do, children in sessions of their own included.

    Args:
        cpu_s: processor seconds of all of them since they began.
        process_busy_ratio: share of the time in which the device worked for them.
        device_busy_ratio: share of the time in which the device worked for anybody, at least as large.
        driver_bytes: device memory they hold by the driver. Not being listed is missing, not 0: process
            numbers of the driver may be foreign.
        reported_bytes: device memory the kernel says it holds.
    """

    cpu_s: Number
    process_busy_ratio: Number = Missing("the driver does not tell it by process")
    device_busy_ratio: Number = Missing("the driver does not tell it")
    driver_bytes: Number = Missing("the driver does not list it")
    reported_bytes: Number = Missing("the kernel has not said")

    @property
    def busy_ratio(self) -> Number:
        """How much the device works for them, or at most; missing where neither can be read."""
        if not isinstance(self.process_busy_ratio, Missing):
            return self.process_busy_ratio
        return self.device_busy_ratio

    @property
    def held_bytes(self) -> Number:
        """The larger of what the driver and the kernel say."""
        said = [n for n in (self.driver_bytes, self.reported_bytes) if not isinstance(n, Missing)]
        return max(said) if said else self.driver_bytes


@dataclass(frozen=True)
class KernelFacts:
    """What is known of one kernel at one tick.

    Args:
        process: the kernel's own; None where it is not on this machine.
        began_s: when the process began, or when it was first seen.
        version: of the open requests; it changes with each message (see `OpenRequests.version`).
        open_requests: requests in progress that are use: cells, and messages that take long.
        open_messages: other requests in progress (completion, widgets).
        last_end_s: when the last of the former ended; None if there was none.
        training: whether its training hook is active; False for a kernel that never loaded us.
        keep: what was asked for, if anything.
        remarks: what else is worth telling, connections or a second culler.
    """

    kernel_id: str
    notebook: str | Missing  # path as the server knows it
    kernelspec: str
    process: Process | None
    began_s: float
    version: int
    open_requests: int | Missing
    open_messages: int
    last_end_s: float | None
    training: bool | Missing
    work: Work
    keep: Keep | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrphanFacts:
    """What is known of a process whose kernel is gone.

    Args:
        process: as it is now.
        recorded: as it was recorded as a descendant while its kernel lived; None if it was not.
        own_uid: the user of this server.
        gone_s: when its kernel was first missed.
        stuck: it waits in the operating system and cannot be ended.
    """

    kernel_id: str
    notebook: str | Missing
    process: Process
    recorded: Process | None
    own_uid: int
    gone_s: float
    work: Work
    stuck: bool = False


@dataclass(frozen=True)
class Step:
    """An action that was taken (or would have been, in a dry run)."""

    action: Action
    at_s: float


@dataclass(frozen=True)
class Watch:
    """What one tick leaves for the next, for one holder.

    Args:
        process: whom it is about; another one begins anew.
        tick: the last one.
        cpu_s: processor seconds at that tick.
        idle_since_s: nothing was in the way of being idle since then.
        stalled_since_s: neither processor nor device worked since then while a cell was open.
        base_s: the beginning of the stretch in which `steps` were taken.
    """

    process: Process | None
    tick: Tick
    cpu_s: Number
    idle_since_s: float
    stalled_since_s: float
    base_s: float
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What to do with one holder now, and why.

    Args:
        holder: the kernel's id, or ``pid <n>`` of an orphan.
        action: "none", or the step that is due.
        activity: what the holder is doing.
        reason: in one word.
        sentence: in one sentence.
        vetoes: everything that is in the way, worded; empty where the action is due.
        evidence: the numbers behind it, worded.
        idle_s: for how long it has been idle; missing while it is not.
        due_s: until the next step, if nothing changes; missing where there is none.
        next_action: that step.
        version: of the facts; newer facts void the decision (see `analysis.idleness.void`).
        process: whom it is about.
        dry_run: it is to be recorded and not to be done.
    """

    holder: str
    action: Action
    activity: Activity
    reason: Reason
    sentence: str
    vetoes: tuple[str, ...]
    evidence: tuple[str, ...]
    idle_s: Number
    due_s: Number
    next_action: Action
    version: int
    process: Process | None
    dry_run: bool
