"""`SweepBudget`: what a sweep may cost, for Optuna, Ray Tune and plain loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import OptionError, UsageError
from jupyter_gpuprof.records.sweep import Direction, Sweep
from jupyter_gpuprof.session.sweeps.guard import Asked, Guard
from jupyter_gpuprof.session.sweeps.plain import Trial, trial_here
from jupyter_gpuprof.session.sweeps.plainbook import PlainBook
from jupyter_gpuprof.session.sweeps.terms import Expiry, checked_hours, expiry_unix_s
from jupyter_gpuprof.store.runs import new_run_id

if TYPE_CHECKING:
    from jupyter_gpuprof.session.sweeps.optunaguard import OptunaGuard
    from jupyter_gpuprof.session.sweeps.rayguard import RayGuard


class SweepBudget:
    """What a sweep may cost, in GPU-hours and in time, held while its trials run.

    ::

        budget = SweepBudget(gpu_hours=20, expires="3d", study="widths")
        for params in grid:
            if budget.is_over:
                break
            with budget.trial(params) as trial:
                for epoch in range(epochs):
                    trial.report(epoch, train(params))

    For Optuna, ``budget.optuna(study).optimize(objective, n_trials=100)``; for Ray Tune, `ray`.

    When the budget is spent, or its time is over, no new trial starts; a trial that is within a tenth of its
    next comparison, or its end, comes to it; the others are stopped, each after what `on_stop` registered. A
    trial that does not report is interrupted in its thread. The budget and what is spent of it are kept with
    the study, so that they hold after a restart and for other processes that use a budget on that study.

    Args:
        gpu_hours: for all trials of the study together, those before a restart included.
        expires: no trial runs after that: "48h" or "7d" from the moment at which the study got its first
            budget, or a date or datetime, also in ISO 8601. What is kept with the study holds unless it is
            given anew.
        stop_losing: also stop trials that lose. True: in a plain loop and in Ray those worse than the running
            median at the same step, in Optuna by the study's own pruner (its median pruner where it has
            none). For Optuna it may be one of Optuna's pruners.
        study: name of a plain loop's or Ray's study; the same name goes on with it. Without one, a new study.
        devices: of each trial; None: as many as the process is seen to use, one where none is seen.
        direction: of a plain loop's values: "minimize" or "maximize".
        rungs: steps at which trials are compared or done, where they are known.

    Raises:
        OptionError: a figure makes no sense.
        UsageError: there is nothing to hold.
    """

    def __init__(
        self,
        gpu_hours: float | None = None,
        expires: Expiry = None,
        stop_losing: Any = None,
        *,
        study: str = "",
        devices: float | None = None,
        direction: Direction = "minimize",
        rungs: Sequence[int] = (),
    ) -> None:
        if gpu_hours is None and expires is None and not stop_losing and not study:
            raise UsageError(
                "A budget of nothing in particular holds nothing.", "Give gpu_hours, expires or stop_losing."
            )
        if devices is not None and not devices > 0:
            raise OptionError(f"A trial has a number of devices above 0, not {devices!r}.")
        if direction not in get_args(Direction):
            raise OptionError(f"The direction is minimize or maximize, not {direction!r}.")
        if expires is not None:
            expiry_unix_s(expires, 0.0)  # says so now
        self.study = study or f"sweep {new_run_id(clock.utc_now())}"
        self.stop_losing = stop_losing
        self._direction: Direction = direction
        self._asked = Asked(checked_hours(gpu_hours), expires, devices, tuple(rungs))
        self._lock = threading.Lock()
        self._plain: tuple[Guard, PlainBook] | None = None

    # -- plain loops -------------------------------------------------------------------------------

    def trial(self, params: Any = None) -> Trial:
        """The next trial of a plain loop, as a ``with`` block that begins it.

        Args:
            params: its configuration, for the report.

        Raises:
            SweepOver: (where the block begins) no new trial may start.
        """
        guard, book = self._loop()
        return Trial(guard, book, params)

    @property
    def is_over(self) -> bool:
        """Whether no new trial may start; `why` says why."""
        return bool(self.why)

    @property
    def why(self) -> str:
        """Why no new trial may start, one sentence; "" if one may."""
        return self._loop()[0].refusal()

    @property
    def spent_gpu_hours(self) -> float:
        """What the trials of a plain loop's study have cost until now."""
        return self._loop()[0].spent_s / 3600

    def on_stop(self, hook: Callable[[], Any]) -> None:
        """Call a function before this thread's trial is stopped, such as ``checkpointer.save``.

        Raises:
            UsageError: no trial runs in this thread.
        """
        live = trial_here()
        if live is None:
            raise UsageError("No trial runs in this thread.", "Call it inside the trial.")
        live.on_stop(hook)

    def sweep(self) -> Sweep:
        """The study of a plain loop as it stands."""
        return self._loop()[1].sweep()

    def _loop(self) -> tuple[Guard, PlainBook]:
        with self._lock:
            if self._plain is None:
                self._plain = self.guard_of_loop(timer=True)
            return self._plain

    def guard_of_loop(self, *, timer: bool, direction: Direction | None = None) -> tuple[Guard, PlainBook]:
        """The guard of a study in the ledger file, for adapters.

        Args:
            timer: beat in a thread while trials run.
            direction: which values are better, if not as the budget says.
        """
        if self.stop_losing not in (None, False, True):
            raise OptionError("Only studies of Optuna take Optuna's pruners.", "Use stop_losing=True.")
        book = PlainBook(self.study)
        way = direction or self._direction
        try:
            book.keep_facts({**book.facts(), "direction": way})
        except Exception:
            pass  # the guard says so
        return Guard(book, self._asked, losing=way if self.stop_losing else None, timer=timer), book

    # -- frameworks --------------------------------------------------------------------------------

    def optuna(self, study: Any) -> OptunaGuard:
        """The guard of an Optuna study; its ``optimize`` takes what the study's takes.

        Raises:
            ImportError: optuna is not installed.
        """
        from jupyter_gpuprof.session.sweeps.optunaguard import OptunaGuard

        return OptunaGuard(study, self._asked, self.stop_losing)

    def ray(self, metric: str = "", mode: str = "min") -> RayGuard:
        """A stopper of Ray Tune that is also a callback: ``RunConfig(stop=guard, callbacks=[guard])``.

        Args:
            metric: the reported value that trials are compared by.
            mode: "min" or "max".

        Raises:
            ImportError: ray is not installed.
        """
        from jupyter_gpuprof.session.sweeps.rayguard import RayGuard

        return RayGuard(self, metric, mode)
