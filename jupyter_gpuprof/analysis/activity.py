"""Whether anything works for a holder, from what its processes used since the last tick."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpuprof.records.idleness import Process, Tick, Watch, Work
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing

GIB = 2**30
#: A gap between two looks, or a jump of a clock, of more planned intervals than this: nobody knows
#: what went on meanwhile.
GAP_INTERVALS = 3
#: Steps whose own work inside the kernel must not pass for the kernel's.
STEPS_INSIDE = ("free", "offload", "suspend")


@dataclass(frozen=True)
class Look:
    """One look at a holder.

    Args:
        watch: for the next look.
        works: what works, worded.
        unread: what could not be read, and why.
        echo: what works may be our own step inside the kernel.
    """

    watch: Watch
    works: tuple[str, ...]
    unread: dict[str, str]
    echo: bool


def look(process: Process | None, work: Work, watch: Watch | None, policy: Policy, tick: Tick) -> Look:
    """Compare with the last look.

    After a gap or a jump of the clocks, or for another process under the same name, everything begins
    anew: what worked meanwhile cannot be told.
    """
    anew = watch is None or watch.process != process or gap(watch.tick, tick)
    if watch is None or anew:
        watch = Watch(process, tick, Missing("it was seen once only"), tick.now_s, tick.now_s, tick.now_s)
    unread: dict[str, str] = {}
    works: list[str] = []
    if isinstance(work.cpu_s, Missing):
        unread["processor time"] = work.cpu_s.reason
    elif isinstance(watch.cpu_s, Missing):
        unread["processor time"] = watch.cpu_s.reason
    else:
        used_s, over_s = work.cpu_s - watch.cpu_s, tick.now_s - watch.tick.now_s
        if used_s < 0:
            works.append("processes of it have ended")
        elif used_s > policy.cpu_ratio * over_s:
            works.append(f"its processes used the processor for {used_s:.2f} s in {over_s:.0f} s")
    busy = work.busy_ratio
    if isinstance(busy, Missing):
        if work.held_bytes != 0:  # what holds nothing of a device does not work on it
            unread["device use"] = busy.reason
    elif busy > policy.device_ratio:
        works.append(f"its device works {busy * 100:.0f} % of the time")
    echo = _is_echo(watch, policy)
    return Look(replace(watch, tick=tick, cpu_s=work.cpu_s), () if echo else tuple(works), unread, echo)


def gap(last: Tick, tick: Tick) -> bool:
    """Whether something happened to the clocks between two ticks: a sleep, a jump, a hanging server."""
    passed_s = tick.now_s - last.now_s
    most_s = GAP_INTERVALS * max(tick.interval_s, last.interval_s)
    return not 0 <= passed_s <= most_s or abs(tick.wall_s - last.wall_s - passed_s) > most_s


def span(seconds: float) -> str:
    """A duration in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _is_echo(watch: Watch, policy: Policy) -> bool:
    """Whether the kernel may have been at work on a step of ours since the last look."""
    if not watch.steps or watch.steps[-1].action not in STEPS_INSIDE:
        return False
    return watch.tick.now_s < watch.steps[-1].at_s + policy.step_wait_s
