"""The monitor of one server: looks again and again, acts, and answers the REST routes.

Everything but the look itself happens on the server's event loop. A look runs in one thread, so that a
slow driver or a locked file stops nobody; what it found is one frozen record, which all readers share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof._version import __version__
from jupyter_gpuprof.errors import HolderNotFound, OptionError, ReleaseRefused
from jupyter_gpuprof.records.audit import AuditRow, Outcome
from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.devices import Attribution, Snapshot
from jupyter_gpuprof.records.idleness import Decision, Keep
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.sighting import KernelSight, OrphanSight, Sighting
from jupyter_gpuprof.server.actions import Actions, Result
from jupyter_gpuprof.server.journal import Journal
from jupyter_gpuprof.server.kernels import Kernels
from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION, Json
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor
from jupyter_gpuprof.store.audit import recent_audit
from jupyter_gpuprof.views.sighting_json import (
    decisions_json,
    devices_json,
    holders_json,
    keep_json,
    policy_json,
)

#: For so long after the last reader the devices are looked at, in seconds, if the reaper is off.
AWAKE_S = 60.0
_OWN_KEEP = "What was asked of the server is ended, but the keep made in the kernel itself stands"
_NO_LEDGER = "Nothing is written to the ledger: the devices are simulated."
_ACTIONS = ("free", "offload", "suspend", "shutdown")


class ServerMonitor:
    """What `protocol.Monitor` says, for one server.

    Args:
        monitor: looks at the devices.
        kernel_manager, session_manager: the server's.
        events: the server's event logger; None without one.
        price: of one device hour, for the ledger.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        monitor: DeviceMonitor,
        kernel_manager: Any,
        session_manager: Any,
        *,
        events: Any = None,
        price: float | None = None,
        clock: Callable[[], int] = clock.now_ns,
        log: logging.Logger,
    ) -> None:
        self._monitor = monitor
        self._clock = clock
        self._log = log
        self._price = price
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._sighting = Sighting(
            self._now_s(), 0.0, 0.0, Snapshot(self._now_s(), "unknown", "not looked yet"), Attribution((), ())
        )
        self._looks = 0
        self._read_s = float("-inf")
        self._waiting: list[asyncio.Future[Sighting]] = []
        self._failing = ""
        self._trouble, self._remarks = "", 0
        self._flushing: asyncio.Task[None] | None = None
        self._kernels = Kernels(kernel_manager, session_manager, clock=clock, log=log)
        self._journal = Journal(events, self._in_thread, log)
        self._actions = Actions(
            kernel_manager,
            self._kernels,
            monitor,
            self._journal,
            next_look=self._next_look,
            in_thread=self._in_thread,
            log=log,
        )

    # Life --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start looking; called once, on the server's event loop."""
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())
        for warning in self._kernels.warnings():
            self._log.warning("gpuprof: %s", warning)

    async def end(self) -> None:
        """Stop, and let go of everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._actions.close()
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        self._kernels.close()
        if self._pool is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._monitor.close)
            self._pool.shutdown(wait=True)
            self._pool = None

    # Reads -------------------------------------------------------------------------------------------

    def status(self) -> Json:
        """See `protocol.Monitor.status`."""
        seen = self._read()
        writer = self._monitor.writer
        never = Missing("not looked yet")
        return {
            "protocol": PROTOCOL_VERSION,
            "version": __version__,
            "devices": {
                "state": seen.snapshot.state,
                "reason": seen.snapshot.reason,
                "driver": seen.snapshot.driver,
                "count": len(seen.snapshot.devices),
                "simulated": self._monitor.simulated,
            },
            "sampling": {
                "awake": self._awake(),
                "period_s": self._monitor.interval_s,
                "looks": self._looks,
                "look_ago_s": encode(self._now_s() - seen.at_s if self._looks else never),
                "look_took_s": encode(seen.took_s if self._looks else never),
            },
            "allocation": self._monitor.allocation,
            "kernels": len(seen.kernels),
            "reaper": policy_json(self._monitor.policy),
            "ledger": {
                "trouble": writer.trouble if writer else _NO_LEDGER,
                "remarks": list(writer.remarks) if writer else [],
                "lost_s": writer.lost_s if writer else 0.0,
            },
            "warnings": self._kernels.warnings(),
        }

    def devices(self) -> Json:
        """See `protocol.Monitor.devices`."""
        return devices_json(self._read(), self._now_s())

    def holders(self) -> Json:
        """See `protocol.Monitor.holders`."""
        return holders_json(self._read(), self._now_s(), dict(self._actions.acting))

    def reaper(self) -> Json:
        """See `protocol.Monitor.reaper`."""
        seen = self._read()
        return {
            "policy": policy_json(self._monitor.policy),
            "decisions": decisions_json(seen, self._now_s(), dict(self._actions.acting)),
            "warnings": self._kernels.warnings(),
        }

    def audit(self, limit: int = 100) -> Json:
        """See `protocol.Monitor.audit`."""
        return {"rows": [encode(row) for row in recent_audit(limit)]}

    def ledger(self, by: str = "notebook", since_s: float | None = None, price: float | None = None) -> Json:
        """See `protocol.Monitor.ledger`."""
        from jupyter_gpuprof.session.devices.ledger import (
            ledger_report,
        )  # here and below: not before the server serves

        return ledger_report(by, since_s, self._price if price is None else price).to_dict()

    def runs(self, limit: int = 100) -> Json:
        """See `protocol.Monitor.runs`."""
        from jupyter_gpuprof.store.runs import recent_runs

        return {
            "runs": [
                {
                    "run_id": run.run_id,
                    "name": run.name,
                    "started_at": run.started_at,
                    "label": run.verdict.label,
                    "wall_s": run.steps.total_s,
                    "steps": run.steps.counted,
                }
                for run in recent_runs(limit)
            ]
        }

    def run(self, run_id: str) -> Json:
        """See `protocol.Monitor.run`."""
        from jupyter_gpuprof.store.runs import find_run

        return find_run(run_id).to_dict()

    # Requests ----------------------------------------------------------------------------------------

    async def keep(self, holder_id: str, hours: float, why: str = "", by: str = "") -> Json:
        """See `protocol.Monitor.keep`."""
        sight = self._kernel(holder_id)
        if not 0 <= hours < float("inf"):
            raise OptionError(f"A kernel is kept for a number of hours, not {hours!r}.")
        policy = self._monitor.policy.for_kernelspec(sight.facts.kernelspec)
        asked_s = hours * 3600
        granted_s = min(asked_s, policy.keep_max_s)
        now_s = self._now_s()
        keep = Keep(now_s, now_s + granted_s, why) if granted_s else None
        if keep is None:
            self._kernels.keeps.pop(holder_id, None)
        else:
            self._kernels.keeps[holder_id] = keep
        own = self._monitor.own_keep(holder_id)
        stands = own if own is not None and own.until_s > now_s else None
        words = f"{by or 'somebody'} asked for it" + (f" ({why})." if why else ".")
        if keep is not None:
            sentence = f"It is kept for {granted_s / 3600:.3g} h: {words}"
            stands = max((k for k in (keep, stands) if k is not None), key=lambda k: k.until_s)
        elif stands is not None:
            sentence = f"{_OWN_KEEP} for {(stands.until_s - now_s) / 60:.0f} min: {words}"
        else:
            sentence = f"It is kept no longer: {words}"
        outcome: Outcome = "done" if keep is not None or stands is None else "failed"
        await self._journal.write(
            AuditRow(clock.utc_now(), holder_id, _path(sight), "keep", by or "somebody", outcome, sentence)
        )
        return {
            "holder_id": holder_id,
            "keep": keep_json(stands, now_s),
            "ended": stands is None,
            "asked_s": asked_s,
            "granted_s": granted_s,
        }

    async def release(self, holder_id: str, action: str = "free", by: str = "") -> Json:
        """See `protocol.Monitor.release`."""
        if action not in _ACTIONS:
            raise OptionError(f"A device is released by {', '.join(_ACTIONS)}, not by {action!r}.")
        sight = self._kernel(holder_id)
        feed = self._kernels.feeds.get(holder_id)
        if feed is None or feed.remote:
            raise ReleaseRefused("The kernel is not on this machine.")
        use, _ = feed.count()
        if isinstance(use, Missing) or use or sight.facts.training is True:
            why = use.reason if isinstance(use, Missing) else "a cell runs" if use else "it trains"
            raise ReleaseRefused(f"The device of {_name(sight)} is not freed: {why}.")
        decision = _asked_for(sight.decision, action, by, feed.requests.version)
        result = await self._actions.on_kernel(replace(sight, decision=decision), by or "somebody")
        return {"holder_id": holder_id, "action": action, **_result(result)} | {
            "still_held": [{"name": name, "bytes": size} for name, size in result.still_held]
        }

    async def end_orphan(self, orphan_id: str, by: str = "") -> Json:
        """See `protocol.Monitor.end_orphan`."""
        sight = self._orphan(orphan_id)
        facts = sight.facts
        if facts.recorded != facts.process or facts.process.uid != facts.own_uid:
            raise ReleaseRefused(f"Process {facts.process.pid} is not ended: it is not certainly ours.")
        decision = _asked_for(sight.decision, "end orphan", by, 0)
        result = await self._actions.on_orphan(replace(sight, decision=decision), by or "somebody")
        return {"orphan_id": orphan_id, **_result(result)}

    # Looking -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        assert self._wanted is not None
        while True:
            if not self._awake():
                self._wanted.clear()
                await self._wanted.wait()
            begun_s = self._now_s()
            await self._look()
            await asyncio.sleep(max(self._monitor.interval_s - (self._now_s() - begun_s), 0.01))

    async def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            seen = await self._kernels.look()
            sighting: Sighting = await self._in_thread(self._monitor.tick, seen)
        except asyncio.CancelledError:
            for future in waiting:
                future.cancel()
            raise
        except Exception as error:
            self._waiting += waiting
            said = f"{type(error).__name__}: {error}"
            if said != self._failing:  # once, not every second
                self._log.error("gpuprof: the devices cannot be looked at: %s", said)
            self._failing = said
            return
        self._failing = ""
        self._sighting = sighting
        self._looks += 1
        for future in waiting:
            if not future.done():
                future.set_result(sighting)
        self._say_trouble()
        self._actions.begin(sighting)
        if self._flushing is None or self._flushing.done():  # a locked file is not to make looks late
            self._flushing = asyncio.ensure_future(self._journal.flush())

    def _say_trouble(self) -> None:
        """What is wrong with the ledger, once, and again when it changes."""
        writer = self._monitor.writer
        if writer is None:
            return
        for remark in writer.remarks[self._remarks :]:
            self._log.warning("gpuprof: %s", remark)
        self._remarks = len(writer.remarks)
        trouble = writer.trouble.partition(";")[0]  # what follows is a number that grows
        if trouble and trouble != self._trouble:
            self._log.warning("gpuprof: %s; what waits is written later.", trouble)
        self._trouble = trouble

    async def _next_look(self) -> Sighting:
        future: asyncio.Future[Sighting] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._touch()
        return await future

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="gpuprof")
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)

    def _read(self) -> Sighting:
        self._touch()
        return self._sighting

    def _touch(self) -> None:
        """Somebody reads; may be called from any thread."""
        self._read_s = self._now_s()
        if self._loop is not None and self._wanted is not None and not self._wanted.is_set():
            self._loop.call_soon_threadsafe(self._wanted.set)

    def _awake(self) -> bool:
        busy = self._monitor.policy.enabled or self._waiting or self._actions.acting
        return bool(busy) or self._now_s() - self._read_s < AWAKE_S

    def _now_s(self) -> float:
        return self._clock() * 1e-9

    def _kernel(self, holder_id: str) -> KernelSight:
        for sight in self._read().kernels:
            if sight.facts.kernel_id == holder_id:
                return sight
        raise HolderNotFound(f"This server has no kernel {holder_id!r}.")

    def _orphan(self, orphan_id: str) -> OrphanSight:
        for sight in self._read().orphans:
            if sight.orphan_id == orphan_id:
                return sight
        raise HolderNotFound(f"There is no orphan {orphan_id!r} (any more).")


def _asked_for(decision: Decision, action: Any, by: str, version: int) -> Decision:
    """The decision of a person, about the holder as it is now."""
    sentence = f"Asked for by {by or 'somebody'}."
    return replace(decision, action=action, sentence=sentence, version=version, dry_run=False)


def _result(result: Result) -> Json:
    return {"outcome": result.outcome, "sentence": result.sentence, "freed_bytes": encode(result.freed_bytes)}


def _path(sight: KernelSight) -> str:
    return "" if isinstance(sight.facts.notebook, Missing) else sight.facts.notebook


def _name(sight: KernelSight) -> str:
    return _path(sight) or f"kernel {sight.facts.kernel_id}"
