"""What a cap would have done to a study that has been: its trials as they ran, ended where the cap is met."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jupyter_gpuprof.planning.sweep import is_near, next_comparison
from jupyter_gpuprof.planning.sweeplosing import better
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import CapReplay, Direction, Sweep, SweepTrial

_NOT_MET = Missing("the cap is not met")
_NO_BEST = Missing("no trial was finished with a value")


def replay_cap(sweep: Sweep, gpu_hours: float, now_unix_s: float, rungs: Sequence[int] = ()) -> CapReplay:
    """The study under a cap.

    Between two reports a trial spends evenly. Trials that had not begun when the cap is met are refused,
    those near a comparison (see `planning.sweep.is_near`) come to it, the others are stopped. What a trial
    that was refused would have made way for is not guessed.

    Args:
        sweep: the study.
        gpu_hours: the cap.
        now_unix_s: the date, where trials still run.
        rungs: steps at which trials are compared.
    """
    lines = {trial.number: _line(trial, now_unix_s) for trial in sweep.trials}
    total_s = sum(line[-1][1] for line in lines.values())
    met = _met(list(lines.values()), gpu_hours * 3600)
    best_seen = best_value([t for t in sweep.trials if t.state == "completed"], sweep.direction)
    if isinstance(met, Missing):
        finished = [trial for trial in sweep.trials if trial.state == "completed"]
        return CapReplay(gpu_hours, total_s, 0.0, len(finished), (), (), best_seen, best_seen, met)
    done, stopped, refused, spent_s = [], [], [], 0.0
    ends = [
        trial.points[-1].step
        for trial in sweep.trials
        if trial.state == "completed" and trial.points and lines[trial.number][-1][0] <= met
    ]
    for trial in sweep.trials:
        line = lines[trial.number]
        if line[0][0] >= met:
            refused.append(trial.number)
            continue
        ends_at = line[-1][0]
        until = ends_at if ends_at <= met else _allowed(trial, line, met, rungs, ends)
        spent_s += _at(line, until)
        if until < ends_at:
            stopped.append(trial.number)
        elif trial.state == "completed":
            done.append(trial)
    return CapReplay(
        gpu_hours,
        spent_s,
        total_s - spent_s,
        len(done),
        tuple(stopped),
        tuple(refused),
        best_value(done, sweep.direction),
        best_seen,
        met,
    )


def best_value(trials: Sequence[SweepTrial], direction: Direction | Missing) -> Number:
    """The best of the final values."""
    values = [trial.value for trial in trials if not isinstance(trial.value, Missing)]
    if isinstance(direction, Missing) or not values:
        return _NO_BEST if not isinstance(direction, Missing) else direction
    best = values[0]
    for value in values:
        best = value if better(value, best, direction) else best
    return best


def _line(trial: SweepTrial, now_unix_s: float) -> list[tuple[float, float]]:
    """Moments of a trial with its device seconds until then, from its beginning to its end."""
    line = [(trial.began_unix_s, 0.0)]
    line += [(point.at_unix_s, point.device_s) for point in trial.points]
    last = line[-1]
    end_unix_s = now_unix_s if isinstance(trial.end_unix_s, Missing) else trial.end_unix_s
    device_s = last[1] if isinstance(trial.device_s, Missing) else trial.device_s
    line.append((max(end_unix_s, last[0]), max(device_s, last[1])))
    return line


def _met(lines: Sequence[Sequence[tuple[float, float]]], cap_s: float) -> Number:
    """The moment at which all lines together come to the cap."""
    changes: list[tuple[float, float, float]] = []  # when, change of the rate, device seconds at once
    for line in lines:
        for (t0, s0), (t1, s1) in pairwise(line):
            if t1 > t0:
                rate = (s1 - s0) / (t1 - t0)
                changes += [(t0, rate, 0.0), (t1, -rate, 0.0)]
            elif s1 > s0:
                changes.append((t0, 0.0, s1 - s0))
    changes.sort()
    spent_s = rate = 0.0
    before = changes[0][0] if changes else 0.0
    for at, change, jump in changes:
        if rate > 0 and spent_s + rate * (at - before) > cap_s * (1 + 1e-9):
            return before + max(cap_s - spent_s, 0.0) / rate
        spent_s += rate * (at - before) + jump
        rate += change
        before = at
    return before if spent_s > cap_s * (1 + 1e-9) else _NOT_MET


def _allowed(
    trial: SweepTrial,
    line: Sequence[tuple[float, float]],
    met: float,
    rungs: Sequence[int],
    ends: Sequence[int],
) -> float:
    """Until when a trial may run that runs as the cap is met."""
    before = [point.step for point in trial.points if point.at_unix_s <= met]
    step: Number = before[-1] if before else Missing("it had not reported")
    goal = next_comparison(step, rungs, ends)
    if not is_near(step, goal) or isinstance(goal, Missing):
        return met
    last = trial.points[-1]
    if last.step <= goal and trial.state == "completed":
        return line[-1][0]  # its end is the comparison
    return next((point.at_unix_s for point in trial.points if point.step >= goal), line[-1][0])


def _at(line: Sequence[tuple[float, float]], at: float) -> float:
    """Device seconds at a moment."""
    for (t0, s0), (t1, s1) in pairwise(line):
        if at <= t1:
            return s0 + (s1 - s0) * (at - t0) / (t1 - t0) if t1 > t0 else s1
    return line[-1][1]
