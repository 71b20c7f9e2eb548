"""Who holds a device and does nothing with it: facts to a decision, with its reason.

Everything that is unknown is in the way of a decision, and everything that is in the way is named. The
step that is due is found from the time for which *nothing* was in the way: no cell open, no work of
processor or device, no training, no keep, nothing unread, no gap between two looks. Several steps are
due one after the other, so early that the last one comes at the idle timeout:

    |-- idle ---------------- warn ---- warn_before ---- free -- step_wait -- shutdown --> verify
    |<------------------------ idle_timeout (at most one tick later) ------>|

``decide`` changes nothing: the caller acts, and tells so with ``acted``.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from jupyter_gpuprof.analysis.activity import GIB, STEPS_INSIDE, Look, look, span
from jupyter_gpuprof.records.idleness import (
    Action,
    Activity,
    Decision,
    KernelFacts,
    OrphanFacts,
    Process,
    Reason,
    Step,
    Tick,
    Watch,
    Work,
)
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing

#: A cell in which nothing worked for so long is said to wait for input.
_WAITS_AFTER_S = 60.0

Veto = tuple[Reason, str]

_BUSY = {
    "training": "it trains",
    "running a cell": "a cell runs",
    "background work": "no cell runs, and something works",
}


def decide(facts: KernelFacts, watch: Watch | None, policy: Policy, tick: Tick) -> tuple[Watch, Decision]:
    """What to do with a kernel now.

    Args:
        facts: of this tick.
        watch: what the last tick left; None for a kernel that is new.
        policy: what may be done.
        tick: the clocks.

    Returns:
        What to hand in at the next tick, and the decision.
    """
    policy = policy.for_kernelspec(facts.kernelspec)
    seen = look(facts.process, facts.work, watch, policy, tick)
    unread = dict(seen.unread)
    if isinstance(facts.open_requests, Missing):
        unread["open requests"] = facts.open_requests.reason
    if isinstance(facts.training, Missing):
        unread["training hook"] = facts.training.reason

    stalled_since_s = max(seen.watch.stalled_since_s, facts.last_end_s or 0.0)
    if seen.works or seen.unread or isinstance(facts.open_requests, Missing) or not facts.open_requests:
        stalled_since_s = tick.now_s
    activity = _activity(facts, seen.works, unread, tick.now_s - stalled_since_s, policy, tick)
    kept_until_s = _kept_until_s(facts, policy)
    kept_s = max(kept_until_s - tick.now_s, 0.0)
    idle_since_s = max(seen.watch.idle_since_s, facts.last_end_s or 0.0, facts.began_s)
    # The clock of the steps also begins anew after a keep; one that was ended early counts until then.
    base_s = max(idle_since_s, seen.watch.base_s, min(kept_until_s, tick.now_s))
    if activity != "idle":
        idle_since_s = base_s = tick.now_s
    if activity == "waiting for input":
        base_s = stalled_since_s
    new = replace(
        seen.watch,
        idle_since_s=idle_since_s,
        stalled_since_s=stalled_since_s,
        base_s=base_s,
        steps=seen.watch.steps if watch and base_s == watch.base_s else (),
    )
    vetoes = _vetoes(facts, activity, unread, kept_s, tick.now_s - stalled_since_s, policy)
    plan = _plan(activity, policy)
    path = "" if isinstance(facts.notebook, Missing) else facts.notebook
    name = path or f"Kernel {facts.kernel_id}"
    decision = _next_step(name, facts.work, activity, vetoes, replace(seen, watch=new), policy, tick, plan)
    if decision.action != "none" and (why_not := _asked(policy, facts)):
        decision = replace(decision, action="none", reason="policy hook", sentence=why_not, vetoes=(why_not,))
    return new, replace(decision, holder=facts.kernel_id, version=facts.version)


def decide_orphan(
    facts: OrphanFacts, watch: Watch | None, policy: Policy, tick: Tick
) -> tuple[Watch, Decision]:
    """What to do with a process whose kernel is gone; as `decide`.

    It is ended only if it is certainly ours: recorded while its kernel lived, the same process number
    with the same start time, and our user.
    """
    seen = look(facts.process, facts.work, watch, policy, tick)
    activity: Activity = "background work" if seen.works else "unknown" if seen.unread else "idle"
    idle_since_s = tick.now_s if activity != "idle" else max(seen.watch.idle_since_s, facts.gone_s)
    new = replace(
        seen.watch,
        idle_since_s=idle_since_s,
        base_s=idle_since_s,
        steps=seen.watch.steps if watch and idle_since_s == watch.base_s else (),
    )
    vetoes = _orphan_vetoes(facts, activity, seen.unread, policy)
    steps: list[tuple[Action, float]] = [("end orphan", policy.step_wait_s)]
    name = f"Process {facts.process.pid}"
    decision = _next_step(name, facts.work, activity, vetoes, replace(seen, watch=new), policy, tick, steps)
    return new, replace(decision, holder=f"pid {facts.process.pid}")


def acted(watch: Watch, decision: Decision, now_s: float) -> Watch:
    """The watch after the decision's step was done (or would have been, in a dry run)."""
    return replace(watch, steps=(*watch.steps, Step(decision.action, now_s)))


def void(
    decision: Decision, version: int, process: Process | None, open_requests: int | Missing
) -> str | None:
    """Why the decision does not hold any more, from facts read just before acting; None if it does.

    Read them and begin to act in one turn of the event loop.
    """
    if process != decision.process:
        return "it is another process by now"
    if version != decision.version:
        return "a message came after the decision"
    if isinstance(open_requests, Missing):
        return open_requests.reason
    return "a cell runs" if open_requests and decision.reason != "stalled" else None


def _activity(
    facts: KernelFacts, works: tuple[str, ...], unread: dict[str, str], stalled_s: float,
    policy: Policy, tick: Tick,
) -> Activity:  # fmt: skip
    """What it does; what is certainly in progress goes before what is unread."""
    if facts.process is None:
        return "remote"
    if facts.training is True:
        return "training"
    if not isinstance(facts.open_requests, Missing) and facts.open_requests > 0:
        waits_s = min(_WAITS_AFTER_S, policy.busy_timeout_s or _WAITS_AFTER_S)
        return "waiting for input" if stalled_s >= waits_s else "running a cell"
    if tick.now_s - facts.began_s < policy.start_grace_s:
        return "starting"
    if works:
        return "background work"
    return "unknown" if unread else "idle"


def _kept_until_s(facts: KernelFacts, policy: Policy) -> float:
    """Until when it is kept; whatever was asked for, the policy's maximum holds."""
    if facts.keep is None:
        return 0.0
    return min(facts.keep.until_s, facts.keep.since_s + policy.keep_max_s)


def _vetoes(
    facts: KernelFacts, activity: Activity, unread: dict[str, str], kept_s: float, stalled_s: float,
    policy: Policy,
) -> list[Veto]:  # fmt: skip
    """Everything that is in the way of a step, the most telling first."""
    found: list[Veto] = []
    if not policy.enabled:
        found.append(("off", "the reaper is off"))
    if activity == "remote":
        found.append(("remote", "its processes are not on this machine"))
    if activity in _BUSY:
        found.append(("busy", _BUSY[activity]))
    if activity == "waiting for input" and policy.busy_timeout_s is None:
        words = f"a cell is open in which nothing has worked for {span(stalled_s)}"
        found.append(("waiting for input", words))
    if kept_s:
        words = f" ({facts.keep.why})" if facts.keep and facts.keep.why else ""
        found.append(("keep", f"it is kept for another {span(kept_s)}{words}"))
    if isinstance(facts.notebook, Missing):
        if policy.exempt:
            found.append(("unknown", f"notebook path: {facts.notebook.reason}, so it may be exempt"))
    elif any(fnmatch.fnmatchcase(facts.notebook, pattern) for pattern in policy.exempt):
        found.append(("exempt", f"{facts.notebook} is exempt"))
    if activity == "starting":
        found.append(("starting", "it is starting"))
    if activity != "remote":
        found += [("unknown", f"{what}: {why}") for what, why in unread.items()]
    if facts.open_messages:
        found.append(("message in progress", "it is answering a message"))
    return found + _held_vetoes(facts.work, policy)


def _orphan_vetoes(
    facts: OrphanFacts, activity: Activity, unread: dict[str, str], policy: Policy
) -> list[Veto]:
    found: list[Veto] = []
    if not policy.enabled:
        found.append(("off", "the reaper is off"))
    if facts.recorded != facts.process:
        found.append(("not certainly ours", "it was not recorded as a child of one of our kernels"))
    if facts.process.uid != facts.own_uid:
        found.append(("not certainly ours", "it belongs to another user"))
    if facts.stuck:
        found.append(("not released", "it is stuck in the operating system and cannot be ended"))
    if activity == "background work":
        found.append(("busy", "it works"))
    found += [("unknown", f"{what}: {why}") for what, why in unread.items()]
    found += _held_vetoes(facts.work, policy)
    if policy.orphans != "end":
        found.append(("orphans are only reported", "orphans are reported and not ended"))
    return found


def _held_vetoes(work: Work, policy: Policy) -> list[Veto]:
    held = work.held_bytes
    if isinstance(held, Missing):
        return [("unknown", f"device memory: {held.reason}")] if policy.min_held_bytes else []
    if held >= policy.min_held_bytes:
        return []
    if not held:
        return [("holds too little", "it holds no device memory")]
    return [
        ("holds too little", f"it holds {held / GIB:.2g} GiB, and {policy.min_held_bytes / GIB:.2g} count")
    ]


def _plan(activity: Activity, policy: Policy) -> list[tuple[Action, float]]:
    """The steps in their order, each with the time until the next one."""
    warn: tuple[Action, float] = ("warn", policy.warn_before_s)
    stalled = activity == "waiting for input"
    if policy.action == "warn" or (stalled and policy.action != "shutdown"):
        return [warn]
    last: tuple[Action, float] = (policy.action, policy.step_wait_s)
    if policy.action == "shutdown" and not stalled:  # a kernel that runs a cell can free nothing
        return [warn, ("free", policy.step_wait_s), last]
    return [warn, last]


def _next_step(
    name: str, work: Work, activity: Activity, vetoes: list[Veto], seen: Look, policy: Policy, tick: Tick,
    plan: list[tuple[Action, float]],
) -> Decision:  # fmt: skip
    """The step of the plan that comes next, and whether it is due."""
    watch = seen.watch
    quiet_s = tick.now_s - watch.base_s
    stalled = activity == "waiting for input"
    idle_s = tick.now_s - watch.idle_since_s
    quiet = (
        f"has a cell open in which nothing works for {span(quiet_s)}"
        if stalled
        else (f"is idle for {span(idle_s)}")
    )
    taken = len(watch.steps)
    next_action: Action = plan[taken][0] if taken < len(plan) else "none"
    due_s = _due_s(quiet_s, stalled, seen, policy, tick, plan)
    action: Action = "none"
    reason: Reason
    if vetoes:
        reason, words = vetoes[0]
        if taken and reason == "holds too little":
            reason, words = "released", "its device memory is free"
        sentence = f"{name} is left alone: {words}"
    elif isinstance(due_s, Missing):
        reason, sentence = _after_the_last(name, work, watch, plan[-1][1], tick)
    elif due_s > 0:
        reason, sentence = "not idle long enough", f"{name} {quiet}, {next_action} follows in {span(due_s)}"
    else:
        action, reason = next_action, "stalled" if stalled else "idle"
        sentence = f"{name} {quiet} and holds {_held(work)}"
    steps = (f"{step.action} {span(tick.now_s - step.at_s)} ago" for step in watch.steps)
    return Decision(
        holder=name,
        action=action,
        activity=activity,
        reason=reason,
        sentence=f"{sentence}.",
        vetoes=tuple(words for _, words in vetoes),
        evidence=(*_evidence(work), *steps),
        idle_s=idle_s if activity == "idle" else Missing(f"it is not idle: {activity}"),
        due_s=Missing(vetoes[0][1]) if vetoes else due_s,
        next_action=next_action,
        version=0,
        process=watch.process,
        dry_run=policy.dry_run,
    )


def _due_s(
    quiet_s: float, stalled: bool, seen: Look, policy: Policy, tick: Tick, plan: list[tuple[Action, float]]
) -> float | Missing:
    """Seconds until the next step of the plan.

    Each step comes early by the ticks that the later ones may be late, so that the last one is at most
    one tick late; and no step comes before the one before it had its time.
    """
    steps = seen.watch.steps
    taken = len(steps)
    if taken >= len(plan):
        return Missing("no step is left")
    ahead_s = 0.0
    for action, wait_s in plan[taken:-1]:
        ahead_s += wait_s + tick.interval_s * (2 if action in STEPS_INSIDE else 1)
    timeout_s = policy.busy_timeout_s if stalled and policy.busy_timeout_s else policy.idle_timeout_s
    due_s = timeout_s - ahead_s - quiet_s
    if taken:
        due_s = max(due_s, steps[-1].at_s + plan[taken - 1][1] - tick.now_s)
        if seen.echo:  # not before one whole look in which the kernel was not at work on our own step
            due_s = max(due_s, tick.interval_s)
    return max(due_s, 0.0)


def _after_the_last(name: str, work: Work, watch: Watch, wait_s: float, tick: Tick) -> tuple[Reason, str]:
    step = watch.steps[-1]
    ago_s = tick.now_s - step.at_s
    if step.action == "warn":
        return "warned", f"{name} was warned {span(ago_s)} ago and still holds {_held(work)}"
    if ago_s < wait_s:
        return "done", f"{name}: {step.action} {span(ago_s)} ago, its effect is awaited"
    return "not released", f"{name} still holds {_held(work)}, {span(ago_s)} after {step.action}"


def _evidence(work: Work) -> tuple[str, ...]:
    cpu, device = work.cpu_s, work.busy_ratio
    return (
        f"holds {_held(work)}",
        "processor time unread" if isinstance(cpu, Missing) else f"{cpu:.2f} s of processor time so far",
        "device use unread"
        if isinstance(device, Missing)
        else f"device works {device * 100:.0f} % of the time",
    )


def _held(work: Work) -> str:
    held = work.held_bytes
    return "an unknown amount of device memory" if isinstance(held, Missing) else f"{held / GIB:.2f} GiB"


def _asked(policy: Policy, facts: KernelFacts) -> str:
    """Why the policy's hook is against it, or ""."""
    if policy.hook is None:
        return ""
    try:
        answer = policy.hook(facts)
    except Exception as error:
        return f"The policy hook failed ({type(error).__name__}: {error})."
    if answer is True:
        return ""
    return answer if isinstance(answer, str) and answer else "The policy hook is against it."
