"""The guard of an Optuna study: a wrapped objective, a callback and a pruner that asks the study's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from jupyter_gpuprof.errors import SweepOver
from jupyter_gpuprof.planning.sweep import halving_rungs
from jupyter_gpuprof.session.sweeps.guard import Asked, Guard
from jupyter_gpuprof.session.sweeps.live import LiveTrial, number_of
from jupyter_gpuprof.session.sweeps.optunastudy import OptunaBook
from jupyter_gpuprof.session.sweeps.plain import close, set_trial_here
from jupyter_gpuprof.session.sweeps.stopping import Interrupter


class _Stopped(optuna.TrialPruned):
    """A trial that does not report is ended by its budget; Optuna keeps it as pruned."""


class OptunaGuard:
    """Holds the budget of one study.

    ``guard.optimize(objective, n_trials=100)`` does all of it. A program that calls ``study.optimize`` by
    itself gives it ``guard.objective(objective)`` and ``callbacks=[guard]``, with
    ``study.pruner = guard.pruner``; without the wrapped objective, trials are seen from their first
    ``should_prune`` on, and are not interrupted.

    Args:
        study: of Optuna, in whatever storage.
        asked: of the budget.
        stop_losing: see `SweepBudget`.
    """

    def __init__(self, study: Study, asked: Asked, stop_losing: Any = None, **clocks: Any) -> None:
        self.study = study
        inner = study.pruner.inner if isinstance(study.pruner, GuardedPruner) else study.pruner
        if isinstance(stop_losing, BasePruner):
            inner = stop_losing
        elif stop_losing and isinstance(inner, NopPruner):
            inner = MedianPruner()
        #: Stops trials for the budget, and asks Optuna's own pruner for the rest.
        self.pruner = GuardedPruner(self, inner)
        if not asked.rungs:
            asked = Asked(asked.gpu_hours, asked.expires, asked.devices, _rungs(inner))
        self._devices = asked.devices
        self._book = OptunaBook(study)
        self._guard = Guard(self._book, asked, **clocks)

    @property
    def why(self) -> str:
        """Why no new trial may start, one sentence; "" if one may."""
        return self._guard.refusal()

    @property
    def spent_gpu_hours(self) -> float:
        """What the study's trials have cost until now, as far as this process knows."""
        return self._guard.spent_s / 3600

    def optimize(self, objective: Callable[[Any], Any], n_trials: int | None = None, **options: Any) -> None:
        """What ``study.optimize`` does, within the budget; with a spent budget a warning and nothing.

        Args:
            objective, n_trials, options: as Optuna takes them.
        """
        why = self.why
        if why:
            warnings.warn(f"gpuprof: no trial was begun. {why}", stacklevel=2)
            return
        before = self.study.pruner
        self.study.pruner = self.pruner
        callbacks = [*(options.pop("callbacks", None) or ()), self]
        try:
            self.study.optimize(self.objective(objective), n_trials, callbacks=callbacks, **options)
        finally:
            self.study.pruner = before

    def objective(self, objective: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The objective, counted while it runs and ended when the budget is."""

        def guarded(trial: Any) -> Any:
            try:
                live = self._begin(trial, Interrupter(_Stopped))
            except SweepOver as over:
                self._book.refused(trial, str(over))
                self._stop_study()
                raise optuna.TrialPruned(str(over)) from None
            try:
                set_trial_here(live)
                return objective(trial)
            except _Stopped:
                live.run_hooks()
                raise optuna.TrialPruned(live.why) from None
            finally:
                close(live)
                self._end(live)

        return guarded

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Optuna's callback: a trial has ended; is there to be another one?"""
        live = self._guard.running.get(trial.number)
        if live is not None:  # without the wrapped objective
            self._end(live)
        if self._guard.refusal():
            self._stop_study()

    def report(self, trial: FrozenTrial) -> str:
        """A trial asks whether it is to be pruned; why the budget says so, or ""."""
        live = self._guard.running.get(trial.number)
        if live is None:
            try:
                live = self._begin(optuna.trial.Trial(self.study, trial._trial_id), None, trial)
            except SweepOver as over:
                self._stop_study()
                return str(over)
        step = trial.last_step
        if step is None:
            return ""
        why = self._guard.report(live, step, number_of(trial.intermediate_values[step]))
        if why:
            live.run_hooks()
        return why

    def _begin(
        self, trial: Any, interrupter: Interrupter | None, before: FrozenTrial | None = None
    ) -> LiveTrial:
        def make(now_s: float, now_unix_s: float) -> LiveTrial:
            live = LiveTrial(trial.number, now_s, now_unix_s, interrupter)
            if before is not None and before.datetime_start is not None:  # seen late
                live.began_unix_s = before.datetime_start.timestamp()
                live.device_s = max(now_unix_s - live.began_unix_s, 0.0) * (self._devices or 1.0)
            self._book.began(trial)
            self._book.write(live.number, live.body(now_unix_s))
            return live

        try:
            return self._guard.begin(make)
        except BaseException:
            if interrupter is not None:
                interrupter.close()
            raise

    def _end(self, live: LiveTrial) -> None:
        set_trial_here(None)
        self._guard.end(live)
        self._book.ended(live.number)

    def _stop_study(self) -> None:
        with suppress(RuntimeError):  # not within optimize: then nobody asks for another trial
            self.study.stop()


class GuardedPruner(BasePruner):
    """Prunes what the budget stops; everything else is said by the pruner inside.

    Args:
        guard: of the study.
        inner: one of Optuna's.
    """

    def __init__(self, guard: OptunaGuard, inner: BasePruner) -> None:
        self._guard = guard
        self.inner = inner
        self._failed = False

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial is to end; a pruner that fails ends none."""
        if self._guard.report(trial):
            return True
        try:
            return self.inner.prune(study, trial)
        except Exception as error:
            if not self._failed:
                self._failed = True
                warnings.warn(
                    f"gpuprof: the pruner {type(self.inner).__name__} failed, so it stops no trial "
                    f"({type(error).__name__}: {error}).",
                    stacklevel=2,
                )
            return False


def _rungs(pruner: BasePruner) -> tuple[int, ...]:
    """Where successive halving compares, as far as it tells."""
    least = getattr(pruner, "_min_resource", None)
    factor = getattr(pruner, "_reduction_factor", None)
    rate = getattr(pruner, "_min_early_stopping_rate", 0)
    return halving_rungs(least, factor, rate) if isinstance(least, int) and isinstance(factor, int) else ()
