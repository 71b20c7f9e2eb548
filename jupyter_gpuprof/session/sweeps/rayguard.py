"""A budget for Ray Tune: a stopper that is a callback, too, so that it knows when trials begin and end.

Both are asked in the driver, between two looks of Tune at its trials: a trial that hangs is ended by Tune,
which ends its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune import Callback, Stopper

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError, SweepOver
from jupyter_gpuprof.records.sweep import Direction
from jupyter_gpuprof.session.sweeps.live import LiveTrial, number_of
from jupyter_gpuprof.session.sweeps.plain import params_words

if TYPE_CHECKING:
    from jupyter_gpuprof.session.sweeps.budget import SweepBudget

_MODES: dict[str, Direction] = {"min": "minimize", "max": "maximize"}
#: Tune copies and pickles stoppers and callbacks; in this process all of them are the same one.
_guards: dict[str, RayGuard] = {}


class RayGuard(Stopper, Callback):  # type: ignore[misc]  # Any where Ray is not installed
    """Holds the budget of a Ray Tune experiment.

    Args:
        budget: the budget, whose ``study`` names the experiment in the ledger file.
        metric: the reported value that trials are compared by; without it no trial is losing.
        mode: "min" or "max".

    Raises:
        OptionError: there is no such mode.
    """

    def __init__(self, budget: SweepBudget, metric: str = "", mode: str = "min") -> None:
        if mode not in _MODES:
            raise OptionError(f'The mode is "min" or "max", not {mode!r}.')
        self.study, self._metric = budget.study, metric
        self._guard, self._book = budget.guard_of_loop(timer=False, direction=_MODES[mode])
        self._lives: dict[str, LiveTrial] = {}
        self._refused: set[str] = set()  # Tune has begun them all the same; they end at their first report
        self._due_s = clock.now_s()
        self._is_over = False
        _guards[self.study] = self

    def __reduce__(self) -> Any:
        return _guards.__getitem__, (self.study,)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial is to end, after its report."""
        live = self._lives.get(trial_id)
        if live is None or live.ended:
            return trial_id in self._refused
        step = int(result.get("training_iteration", 0))
        if step == live.step:  # Tune repeats the last result at the end
            return bool(live.why)
        return bool(self._guard.report(live, step, number_of(result.get(self._metric))))

    def stop_all(self) -> bool:
        """Whether the experiment is to end; Tune asks all the time."""
        now_s = clock.now_s()
        if now_s >= self._due_s:
            self._is_over = bool(self._guard.refusal())
            self._due_s = now_s + self._guard.beat()
        return self._is_over and all(live.why or live.ended for live in self._lives.values())

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial begins."""

        def make(now_s: float, now_unix_s: float) -> LiveTrial:
            facts = {"params": params_words(trial.config), "state": "running"}
            number = self._book.begin({**facts, "began": now_unix_s, "at": now_unix_s})
            live = LiveTrial(number, now_s, now_unix_s, facts=facts)
            live.devices, live.counted = _devices(trial)
            return live

        try:
            self._lives[trial.trial_id] = self._guard.begin(make)
        except SweepOver:
            self._refused.add(trial.trial_id)
            self._is_over = True
        self._due_s = clock.now_s()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has ended."""
        live = self._lives.get(trial.trial_id)
        if live is not None and not live.ended:
            self._guard.end(live, state="stopped" if live.why else "completed")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has failed."""
        live = self._lives.get(trial.trial_id)
        if live is not None and not live.ended:
            self._guard.end(live, state="failed")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """What still runs was stopped."""
        for live in self._lives.values():
            if not live.ended:
                self._guard.end(live, state="stopped")


def _devices(trial: Any) -> tuple[float, Any]:
    """The devices that Tune gives a trial, one where it gives none."""
    try:
        count = float(trial.placement_group_factory.required_resources.get("GPU", 0.0))
    except Exception:
        count = 0.0
    return (count, "seen") if count > 0 else (1.0, "assumed")
