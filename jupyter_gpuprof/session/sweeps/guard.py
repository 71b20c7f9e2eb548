"""Counts the device time of a study while its trials run, and says when they must stop.

A report asks nothing of the storage: it is decided with what was read at the last beat. The beat is a
thread's while trials run (or its caller's): it writes what the trials here have cost, reads what all others
have cost, and interrupts a trial that is to stop and does not come to a report.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import SweepOver
from jupyter_gpuprof.planning.sweep import decide, next_comparison
from jupyter_gpuprof.planning.sweeplosing import is_losing
from jupyter_gpuprof.probes.owndevice import used_devices
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sweep import BudgetDecision, Direction, SweepTerms
from jupyter_gpuprof.session.devices.kernelreports import report_now, tell_sweep
from jupyter_gpuprof.session.sweeps.book import Book, TrialCost, facts_of, terms_of
from jupyter_gpuprof.session.sweeps.live import LiveTrial
from jupyter_gpuprof.session.sweeps.terms import Expiry, merged_terms

#: Seconds between two beats: the longest, and the shortest near a limit.
LONGEST_BEAT_S, SHORTEST_BEAT_S = 5.0, 0.2
#: A trial that was interrupted and goes on for so long is reported as stuck.
_STUCK_S = 30.0


@dataclass(frozen=True)
class Asked:
    """What a person asks of a budget; see `SweepBudget`."""

    gpu_hours: float | None = None
    expires: Expiry = None
    devices: float | None = None
    rungs: tuple[int, ...] = ()


class Guard:
    """The budget of one study in this process.

    Args:
        book: of the study.
        asked: what is asked of it.
        losing: stop trials that are worse than the running median of the study's values in this direction.
        timer: beat in a thread while trials run; without it the caller beats.
        now_s, now_unix_s: monotonic and wall-clock seconds.
    """

    def __init__(
        self,
        book: Book,
        asked: Asked,
        *,
        losing: Direction | None = None,
        timer: bool = True,
        now_s: Callable[[], float] = clock.now_s,
        now_unix_s: Callable[[], float] = lambda: clock.unix_ns() * 1e-9,
    ) -> None:
        self.book = book
        self.running: dict[int, LiveTrial] = {}
        #: What did not go as it should, in sentences.
        self.notes: list[str] = []
        self._asked, self._losing, self._timer = asked, losing, timer
        self._now_s, self._now_unix_s = now_s, now_unix_s
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._counted_s = now_s()
        self._others: list[TrialCost] = []
        self._values: dict[int, list[Number]] = {}
        self._own: dict[int, float] = {}  # trials of this process that have ended
        self._finish_by: dict[int, float] = {}
        self._terms = SweepTerms(now_unix_s())
        self._attach()

    # -- what a trial calls ------------------------------------------------------------------------

    def refusal(self) -> str:
        """Why no new trial may start, or ""; looks at the books."""
        self.beat()
        with self._lock:
            decision = self._decide()
        return "" if decision.starts else decision.why

    def begin(self, make: Callable[[float, float], LiveTrial]) -> LiveTrial:
        """A trial begins.

        Args:
            make: makes it, called with the monotonic time and the date.

        Raises:
            SweepOver: it may not.
        """
        why = self.refusal()
        if why:
            raise SweepOver(why)
        live = make(self._now_s(), self._now_unix_s())
        with self._lock:
            self._count()
            self.running[live.number] = live
            self._tell()
            if self._timer and self._thread is None:
                self._thread = threading.Thread(target=self._beats, name="gpuprof sweep", daemon=True)
                self._thread.start()
            self._wake.notify_all()  # with one more trial the limit is nearer
        return live

    def report(self, live: LiveTrial, step: int, value: Number) -> str:
        """A trial has reported; why it must stop, or ""."""
        with self._lock:
            self._count()
            live.mark(step, value, self._now_s(), self._now_unix_s())
            decision = self._decide()
            if live.number in decision.stop:
                live.why = live.why or decision.why
            elif (
                self._losing is not None
                and is_losing(value, self._values.get(step, ()), self._losing) is True
            ):
                count = len(self._values[step])
                live.why = f"At step {step} it is worse than the median of the {count} trials before it."
        return live.why

    def end(self, live: LiveTrial, **facts: Any) -> None:
        """A trial has ended, however; what it has cost goes to the books. Never raises.

        Args:
            live: the trial.
            facts: what else the books keep of it.
        """
        with self._lock:
            self._count()
            live.ended = True
            live.facts = {**live.facts, **facts}
            self.running.pop(live.number, None)
            self._finish_by.pop(live.number, None)
            self._own[live.number] = live.device_s
            self._tell()
            thread = self._thread if not self.running else None
            if thread is not None:
                self._thread = None
                self._wake.notify_all()
        with self._writing:  # after what the beat writes of it
            self._try(self.book.write, live.number, live.body(self._now_unix_s()))
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    # -- the beat ----------------------------------------------------------------------------------

    def beat(self) -> float:
        """Write and read the books, and interrupt what must stop; seconds until the next one."""
        with self._lock:
            self._count()
            now_unix_s = self._now_unix_s()
            bodies = [(live.number, live.body(now_unix_s)) for live in self.running.values()]
        for number, body in bodies:
            with self._writing:
                if number in self.running:
                    self._try(self.book.write, number, body)
        costs = self._try(self.book.costs)
        values = self._try(self._read_values) if self._losing is not None else None
        terms = self._try(lambda: terms_of(self.book.facts()))
        with self._lock:
            self._count()
            self._others = self._others if costs is None else costs
            self._values = self._values if values is None else values
            self._terms = terms if isinstance(terms, SweepTerms) else self._terms
            decision = self._decide()
            self._interrupt(decision)
            return self._period_s(decision)

    def _beats(self) -> None:
        period_s = 0.0
        while True:
            with self._wake:
                if self._thread is not threading.current_thread():
                    return
                if period_s:
                    self._wake.wait(period_s)
                if self._thread is not threading.current_thread():
                    return
            try:
                period_s = self.beat()
                if "JPY_PARENT_PID" in os.environ:
                    report_now()
            except Exception as error:  # a thread of ours must not die before the trials do
                self._note(f"The sweep's budget was not looked at ({type(error).__name__}: {error}).")
                period_s = LONGEST_BEAT_S

    def _period_s(self, decision: BudgetDecision) -> float:
        """Half of the way to the limit, since other processes may come nearer to it, too."""
        if decision.stop:
            return SHORTEST_BEAT_S
        if isinstance(decision.wait_s, Missing):
            return LONGEST_BEAT_S
        return min(max(decision.wait_s / 2, SHORTEST_BEAT_S), LONGEST_BEAT_S)

    def _interrupt(self, decision: BudgetDecision) -> None:
        now_s = self._now_s()
        for number in decision.stop:
            live = self.running[number]
            live.why = live.why or decision.why
            if live.stop_since_s is None:
                live.stop_since_s = now_s
            waited_s = now_s - live.stop_since_s
            if live.interrupter is None or live.saving or waited_s < live.grace_s:
                continue
            if waited_s >= live.grace_s + live.interrupted * LONGEST_BEAT_S:
                live.interrupted += 1
                live.interrupter.interrupt()
            if waited_s > live.grace_s + _STUCK_S:
                self._note(
                    f"Trial {number} does not react to its stop: it is inside code that does not come back "
                    "to Python. It goes on to hold its device, and is counted, until its process is ended."
                )

    # -- counting ----------------------------------------------------------------------------------

    @property
    def spent_s(self) -> float:
        """Device seconds of the whole study, as far as is known here."""
        with self._lock:
            self._count()
            return self._spent_s()

    @property
    def terms(self) -> SweepTerms:
        """What holds."""
        return self._terms

    def _count(self) -> None:
        """Add the time since the last call to what each trial has cost."""
        now_s = self._now_s()
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        if not self.running:
            return
        seen = 0 if self._asked.devices is not None else len(used_devices())
        share = max(seen, 1) / len(self.running) if seen else 1.0
        for live in self.running.values():
            given = live.devices if live.devices is not None else self._asked.devices
            if given is not None:
                live.counted = "given" if live.devices is None else live.counted
            elif seen:
                live.counted = "seen"
            live.device_s += passed_s * (given if given is not None else share)

    def _spent_s(self) -> float:
        here = {**self._own, **{live.number: live.device_s for live in self.running.values()}}
        return sum(here.values()) + sum(cost.device_s for cost in self._others if cost.number not in here)

    def _decide(self) -> BudgetDecision:
        now_unix_s = self._now_unix_s()
        ends = [
            int(cost.last_step)
            for cost in self._others
            if cost.is_completed and not isinstance(cost.last_step, Missing)
        ]
        useful = [cost.device_s for cost in self._others if cost.is_useful and cost.device_s > 0]
        decision = decide(
            self._terms,
            spent_s=self._spent_s(),
            devices=sum(live.devices or self._asked.devices or 1.0 for live in self.running.values()),
            now_unix_s=now_unix_s,
            running=[
                live.standing(next_comparison(live.step, self._asked.rungs, ends))
                for live in self.running.values()
            ],
            finish_by=self._finish_by,
            least_s=min(useful) if useful else Missing("no trial has come to a result"),
        )
        for number, seconds in decision.finishing:
            self._finish_by.setdefault(number, now_unix_s + seconds)
        return decision

    def _read_values(self) -> dict[int, list[Number]]:
        values: dict[int, list[Number]] = {}
        for trial in self.book.sweep().trials:
            if trial.number not in self.running:
                for point in trial.points:
                    values.setdefault(point.step, []).append(point.value)
        return values

    # -- the books ---------------------------------------------------------------------------------

    def _attach(self) -> None:
        facts = self._try(self.book.facts)
        kept = terms_of(facts or {})
        self._terms = merged_terms(kept, self._asked.gpu_hours, self._asked.expires, self._now_unix_s())
        if facts is not None and self._terms != kept:
            self._try(self.book.keep_facts, {**facts, **facts_of(self._terms)})

    def _try(self, act: Callable[..., Any], *values: Any) -> Any:
        """Whatever is wrong with the storage costs nobody a trial."""
        try:
            return act(*values)
        except Exception as error:
            self._note(f"The books of {self.book.study} cannot be used ({type(error).__name__}: {error}).")
            return None

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)
            try:
                warnings.warn(f"gpuprof: {sentence}", stacklevel=2)
            except Exception:
                pass  # warnings are errors here: it is among the notes

    def _tell(self) -> None:
        numbers = ",".join(str(number) for number in sorted(self.running))
        tell_sweep(self.book.study if numbers else "", numbers)
