"""From a study to what it cost and what of that was for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpuprof.planning.sweeplosing import LEAST_TRIALS, losses
from jupyter_gpuprof.planning.sweepreplay import best_value, replay_cap
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import CapReplay, Sweep, SweepReport, SweepTrial, TrialLoss, hours

_COUNTED = {
    "given": "as many devices as were given",
    "seen": "the devices that were seen in use",
    "assumed": "device-hours: no device was seen, one is assumed for each trial",
}


def conclude_sweep(
    sweep: Sweep,
    *,
    now_unix_s: float,
    made_at: str,
    cap_hours: float | None = None,
    rungs: Sequence[int] = (),
) -> SweepReport:
    """What ``%gpuprof sweep`` says.

    Args:
        sweep: the study.
        now_unix_s: the date, in seconds since 1970.
        made_at: the same in words.
        cap_hours: the cap to replay; None for the study's own.
        rungs: steps at which trials are compared.
    """
    found = losses(sweep)
    known = [t.device_s for t in sweep.trials if not isinstance(t.device_s, Missing)]
    spent_s, judged_s = float(sum(known)), sum(loss.judged_s for loss in found)
    cap = _cap(sweep, now_unix_s, cap_hours, rungs)
    judged = any(not isinstance(loss.losing_from, Missing) for loss in found) or judged_s > 0
    nothing = Missing(
        sweep.direction.reason
        if isinstance(sweep.direction, Missing)
        else f"no step was reported by more than {LEAST_TRIALS} trials"
    )
    losing: Number = sum(loss.losing_s for loss in found) if judged else nothing
    saved: Number = sum(loss.saved_s for loss in found) if judged else nothing
    best = _best(sweep)
    return SweepReport(
        sweep,
        made_at,
        _counted(sweep.trials),
        spent_s,
        losing,
        judged_s,
        saved,
        best,
        found,
        cap,
        _sentence(spent_s, losing, judged_s),
        tuple(_reasons(sweep, found, saved, best, cap)),
    )


def _cap(
    sweep: Sweep, now_unix_s: float, cap_hours: float | None, rungs: Sequence[int]
) -> CapReplay | Missing:
    if not sweep.trials:
        return Missing("the study has no trial")
    if cap_hours is None:
        own = Missing("no budget") if isinstance(sweep.terms, Missing) else sweep.terms.gpu_hours
        if isinstance(own, Missing):
            return Missing("no cap was given, and the study has none")
        cap_hours = float(own)
    return replay_cap(sweep, cap_hours, now_unix_s, rungs)


def _best(sweep: Sweep) -> Number:
    completed = [trial for trial in sweep.trials if trial.state == "completed"]
    best = best_value(completed, sweep.direction)
    return next(
        (trial.number for trial in completed if not isinstance(best, Missing) and trial.value == best),
        best if isinstance(best, Missing) else Missing("no trial has it"),
    )


def _counted(trials: Sequence[SweepTrial]) -> str:
    ways = [way for way in _COUNTED if any(trial.counted == way for trial in trials)]
    return "; ".join(_COUNTED[way] for way in ways)


def _sentence(spent_s: float, losing: Number, judged_s: float) -> str:
    if isinstance(losing, Missing):
        unknown = f"how much of that on losing trials is not known: {losing.reason}"
        return f"{hours(spent_s)} GPU-hours were spent; {unknown}."
    share = f", {100 * losing / spent_s:.0f} %," if spent_s else ""
    words = (
        f"{hours(spent_s)} GPU-hours were spent, {hours(losing)} of them{share} on trials that were losing"
    )
    return f"{words} already; {hours(judged_s)} could be judged."


def _reasons(
    sweep: Sweep, found: Sequence[TrialLoss], saved: Number, best: Number, cap: CapReplay | Missing
) -> list[str]:
    reasons = []
    losers = [loss for loss in found if loss.saved_s > 0]
    if losers and not isinstance(saved, Missing):
        words = f"Stopping each trial at its first losing report would have saved {hours(saved)} GPU-hours"
        first = next((loss for loss in losers if loss.number == best), None)
        if first is not None:
            reasons.append(f"{words}, and lost the best trial, {first.number}, at step {first.losing_from}.")
        else:
            reasons.append(f"{words} in {_count(len(losers), 'trial')}, and kept the best.")
    if not isinstance(cap, Missing):
        reasons.append(cap_sentence(cap))
    stopped = [trial for trial in sweep.trials if trial.state == "stopped"]
    if stopped:
        reasons.append(f"The budget has stopped {_count(len(stopped), 'trial')}.")
    return reasons


def cap_sentence(cap: CapReplay) -> str:
    """What the cap would have done, in one sentence."""
    limit = f"{hours(cap.gpu_hours * 3600)} GPU-hours"
    if isinstance(cap.at_unix_s, Missing):
        return f"A cap of {limit} would have changed nothing."
    words = (
        f"A cap of {limit} would have saved {hours(cap.saved_s)} GPU-hours: {_count(cap.finished, 'trial')} "
        f"finished, {len(cap.stopped)} stopped, {len(cap.refused)} not begun"
    )
    if isinstance(cap.best_seen, Missing):
        return f"{words}."
    if isinstance(cap.best, Missing):
        return f"{words}; none would have come to a result."
    if cap.best == cap.best_seen:
        return f"{words}, with the same best value."
    return f"{words}; the best value would have been {cap.best:.6g} instead of {cap.best_seen:.6g}."


def _count(count: int, noun: str) -> str:
    return f"{count} {noun if count == 1 else noun + 's'}"
