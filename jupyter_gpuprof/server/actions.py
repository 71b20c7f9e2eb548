"""Acts on decisions: as little as will do, in order, each step checked again just before it is taken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import ReleaseRefused
from jupyter_gpuprof.records.audit import AuditRow, Outcome
from jupyter_gpuprof.records.idleness import Action, Decision, Process
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.processes import ProcessId
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sighting import KernelSight, OrphanSight, Sighting
from jupyter_gpuprof.server.feed import KernelFeed, NoAnswer
from jupyter_gpuprof.server.freed import freed_bytes, used_bytes, why_not_free
from jupyter_gpuprof.server.journal import InThread, Journal
from jupyter_gpuprof.server.kernels import Kernels
from jupyter_gpuprof.session.devices.ending import Endings, end_recorded
from jupyter_gpuprof.session.devices.monitor import DeviceMonitor

REAPER = "reaper"
#: How long a kernel may take to free its device, to save state before a shutdown, and to shut down.
FREE_LIMIT_S, SAVE_LIMIT_S, SHUTDOWN_LIMIT_S = 60.0, 60.0, 60.0
#: All memory of a device to the host and, if that fails, back.
SUSPEND_LIMIT_S = 300.0
#: How long the kernel may take to show a warning.
SAY_LIMIT_S = 3.0
#: A kernel that takes up nothing for so long between two cells is at work.
CAUGHT_UP_LIMIT_S = 3.0
#: How long to wait for the driver to give memory back after the last process is gone.
VERIFY_S = 15.0
_ASK = '__import__("jupyter_gpuprof.notebook.asked", fromlist=["asked"]).asked("{action}", {until})'
#: For a kernel whose environment lacks us: the framework's cache, if it has touched a device.
_ASK_BARE = (
    "(lambda gc, torch: (gc.collect(),"
    ' torch and torch.cuda.is_initialized() and torch.cuda.empty_cache(), "{}")[2])'
    '(__import__("gc"), __import__("sys").modules.get("torch"))'
)
_NOTHING: tuple[Action, Number] = ("none", Missing("nothing follows"))


@dataclass(frozen=True)
class Result:
    """How an action ended.

    Args:
        still_held: what the kernel says that still holds memory, as (name, bytes).
    """

    outcome: Outcome
    sentence: str
    freed_bytes: Number = Missing("not measured")
    still_held: tuple[tuple[str, int], ...] = ()


class Actions:
    """Carries out decisions and requests, one at a time for each holder.

    Args:
        kernel_manager: the server's; its own shutdown is used, so that sessions are cleaned.
        kernels: the feeds.
        monitor: told which steps were taken.
        journal: where everything is written down.
        next_look: waits for a look at the devices that begins after now.
        in_thread: for what blocks.
    """

    def __init__(
        self,
        kernel_manager: Any,
        kernels: Kernels,
        monitor: DeviceMonitor,
        journal: Journal,
        *,
        next_look: Callable[[], Awaitable[Sighting]],
        in_thread: InThread,
        log: logging.Logger,
    ) -> None:
        self.acting: dict[str, str] = {}  # what is being done, by holder
        self._manager = kernel_manager
        self._kernels = kernels
        self._monitor = monitor
        self._journal = journal
        self._next_look = next_look
        self._in_thread = in_thread
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unsaved: dict[str, tuple[Process | None, int]] = {}  # whose hooks failed, after which message

    def begin(self, sighting: Sighting) -> None:
        """Start what is due at this look; returns at once."""
        for kernel in sighting.kernels:
            if kernel.decision.action != "none" and kernel.facts.kernel_id not in self.acting:
                self._start(self.on_kernel(kernel, REAPER))
        for orphan in sighting.orphans:
            if orphan.decision.action != "none" and orphan.orphan_id not in self.acting:
                self._start(self.on_orphan(orphan, REAPER))

    async def close(self) -> None:
        """Stop what is in progress."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def on_kernel(self, sight: KernelSight, by: str) -> Result:
        """The step of its decision, if it still holds."""
        decision, kernel_id = sight.decision, sight.facts.kernel_id
        with self._busy_with(kernel_id, decision.action):
            result = await _known(self._done(sight, by), decision)
            devices = tuple(h.device_uuid for h in sight.holdings)
            policy = self._monitor.policy.for_kernelspec(sight.facts.kernelspec)
            next_action, due_s = _after_warning(policy) if decision.action == "warn" else _NOTHING
            await self._tell(
                kernel_id, sight.facts.notebook, decision, by, result, devices, next_action, due_s
            )
            return result

    async def _done(self, sight: KernelSight, by: str) -> Result:
        decision = sight.decision
        if why := self._why_void(decision, by):
            return Result("cancelled", f"{decision.sentence} But {why}.")
        if by == REAPER:
            self._monitor.acted(sight.facts.kernel_id, decision)
        if decision.dry_run:
            return Result("would be done", decision.sentence)
        if decision.action == "warn":
            await self._warn(sight)
            return Result("done", decision.sentence)
        if decision.action == "shutdown":
            return await self._shutdown(sight, by)
        return await self._free(sight, by)

    async def _warn(self, sight: KernelSight) -> None:
        """Below the notebook's last cell, too, where that can be; the event tells everybody else."""
        # Not before the server serves.
        from jupyter_gpuprof.records.release import ReaperNote
        from jupyter_gpuprof.views.release_text import note_line

        policy = self._monitor.policy.for_kernelspec(sight.facts.kernelspec)
        note = note_line(ReaperNote("warn", sight.decision.sentence, *_after_warning(policy)))
        try:
            await self._kernels.feeds[sight.facts.kernel_id].say(note, SAY_LIMIT_S)
        except NoAnswer as error:
            self._log.debug("gpuprof: kernel %s shows no warning: %s", sight.facts.kernel_id, error)

    async def on_orphan(self, sight: OrphanSight, by: str) -> Result:
        """End it, and see whether its memory is free."""
        decision, process = sight.decision, sight.facts.process
        devices = tuple(uuid for uuid, _ in sight.held)
        with self._busy_with(sight.orphan_id, "end orphan"):
            if by == REAPER:
                self._monitor.acted(sight.orphan_id, decision)
            if decision.dry_run:
                result = Result("would be done", decision.sentence)
            else:
                id = ProcessId(process.pid, process.started_s)
                result = await _known(self._orphan_ended(decision, id, devices), decision)
            await self._tell(sight.orphan_id, sight.facts.notebook, decision, by, result, devices)
            return result

    async def _orphan_ended(self, decision: Decision, id: ProcessId, devices: tuple[str, ...]) -> Result:
        before = await self._used(devices)
        endings = await self._end([id])
        return await self._verified(decision.sentence, devices, before, {id.pid}, endings)

    async def _shutdown(self, sight: KernelSight, by: str) -> Result:
        decision, kernel_id = sight.decision, sight.facts.kernel_id
        devices = tuple(h.device_uuid for h in sight.holdings)
        before = await self._used(devices)
        refused = remarks = ""
        if decision.reason != "stalled":
            refused, remarks = await self._saved(self._kernels.feeds.get(kernel_id))
        if refused:
            if by == REAPER:
                self._monitor.postponed(kernel_id)
            return Result("cancelled", f"{decision.sentence} {refused}")
        why = await self._why_not_now(decision, by, remarks)
        recorded = self._monitor.descendants(kernel_id)
        pids = {pid for h in sight.holdings for pid in h.pids} | {id.pid for id in recorded}
        # From here to the first message of the shutdown the event loop does nothing else.
        if why := self._why_void(decision, by) or why:
            if by == REAPER:
                self._monitor.postponed(kernel_id)
            return Result("cancelled", f"{decision.sentence} But {why}.")
        self._unsaved.pop(kernel_id, None)
        try:
            await _within(SHUTDOWN_LIMIT_S, self._manager.shutdown_kernel(kernel_id))
        except asyncio.TimeoutError:
            return Result("failed", f"The kernel did not shut down within {SHUTDOWN_LIMIT_S:g} s.")
        except Exception as error:  # gone by itself: the server answers 404
            if self._kernels.seen(kernel_id):
                return Result("failed", f"The kernel did not shut down ({error}).")
        endings = await self._end(recorded | self._monitor.descendants(kernel_id))
        sentence = decision.sentence + remarks
        if endings.ended:
            sentence += f" What it had started was ended, too (process {_named(endings.ended)})."
        return await self._verified(sentence, devices, before, pids, endings)

    async def _why_not_now(self, decision: Decision, by: str, unsaved: str) -> str | None:
        """Why a shutdown is put off: a cell that waited while we asked, or a save that failed just once."""
        if decision.reason == "stalled":
            return None
        if why := self._why_void(decision, by):
            return why
        try:
            await self._kernels.feeds[decision.holder].caught_up(CAUGHT_UP_LIMIT_S)
        except NoAnswer as error:
            return str(error)
        key = (decision.process, decision.version)
        if not unsaved or self._unsaved.get(decision.holder) == key:
            return None
        self._unsaved = {id: key for id, key in self._unsaved.items() if id in self._kernels.feeds}
        self._unsaved[decision.holder] = key
        again = "after another idle timeout" if by == REAPER else "when it is asked for again"
        return f"what should be saved before was not:{unsaved} It is shut down all the same {again}"

    async def _saved(self, feed: KernelFeed | None) -> tuple[str, str]:
        """Let the kernel call what the person registered: why it must not end, and what went wrong."""
        if feed is None:
            return "", ""
        try:
            said = await feed.ask(_asking("shutdown", SAVE_LIMIT_S), SAVE_LIMIT_S)
        except NoAnswer as error:
            self._log.debug("gpuprof: kernel %s saved nothing: %s", feed.kernel_id, error)
            return "", "" if error.not_installed else f" Whether anything was saved is not known: {error}."
        return str(said.get("refused", "")), _words(said)

    async def _free(self, sight: KernelSight, by: str) -> Result:
        """Let the kernel free its device between two cells."""
        decision = sight.decision
        devices = tuple(h.device_uuid for h in sight.holdings)
        before = await self._used(devices)
        if why := self._why_void(decision, by):
            return Result("cancelled", f"{decision.sentence} But {why}.")
        feed = self._kernels.feeds[sight.facts.kernel_id]
        limit_s = SUSPEND_LIMIT_S if decision.action == "suspend" else FREE_LIMIT_S
        try:
            try:
                said = await feed.ask(_asking(decision.action, limit_s), limit_s)
            except NoAnswer as error:
                if decision.action != "free" or not error.not_installed:
                    raise
                said = await feed.ask(_ASK_BARE, FREE_LIMIT_S)
        except NoAnswer as error:
            return Result("failed", f"{decision.sentence} But {error}.")
        if "refused" in said:
            return Result("failed", f"{decision.sentence} {said['refused']}")
        freed = freed_bytes(before, await self._used(devices))
        if isinstance(freed, Missing) and "freed_bytes" in said:
            freed = int(said["freed_bytes"])
        held = tuple((str(h["name"]), int(h["size_bytes"])) for h in said.get("still_held", []))
        return Result("done", decision.sentence + _words(said), freed, held)

    async def _end(self, ids: Iterable[ProcessId]) -> Endings:
        endings: Endings = await self._in_thread(end_recorded, ids)
        for id in endings.stuck:
            self._monitor.stuck(id)
        return endings

    async def _used(self, uuids: tuple[str, ...]) -> Number:
        """What is in use of the devices, as of a look that begins now."""
        if not uuids:
            return Missing("it is not known which device it holds")
        return used_bytes(await self._next_look(), uuids)

    async def _verified(
        self, sentence: str, uuids: tuple[str, ...], before: Number, pids: set[int], endings: Endings
    ) -> Result:
        """Look until the driver lists none of them any more; if it goes on to do so, say whom."""
        if endings.stuck:
            sentence += (
                f" Process {_named(endings.stuck)} is stuck in the operating system and cannot be ended."
            )
        if endings.refused:
            sentence += f" Process {_named(endings.refused)} belongs to another user."
        until_s = clock.now_s() + VERIFY_S
        while True:
            sighting = await self._next_look()
            freed = freed_bytes(before, used_bytes(sighting, uuids))
            why = why_not_free(sighting, uuids, pids, freed)
            if not why:
                return Result("released", sentence, freed)
            if clock.now_s() >= until_s:
                return Result("not released", f"{sentence} {why}", freed)

    def _why_void(self, decision: Decision, by: str) -> str | None:
        feed = self._kernels.feeds.get(decision.holder)
        if feed is None or not self._kernels.seen(decision.holder):
            return "the kernel is gone"
        keep = self._kernels.keeps.get(decision.holder)
        if by == REAPER and keep is not None and keep.until_s > clock.now_s():
            return "it is kept"
        return feed.why_void(decision)

    @contextlib.contextmanager
    def _busy_with(self, holder_id: str, action: str) -> Iterator[None]:
        if holder_id in self.acting:
            raise ReleaseRefused(f"{self.acting[holder_id].capitalize()} is in progress for it already.")
        self.acting[holder_id] = action
        try:
            yield
        finally:
            del self.acting[holder_id]

    async def _tell(
        self, holder_id: str, notebook: str | Missing, decision: Decision, by: str, result: Result,
        devices: tuple[str, ...], next_action: Action = "none", due_s: Number = _NOTHING[1],
    ) -> None:  # fmt: skip
        path = "" if isinstance(notebook, Missing) else notebook
        row = AuditRow(
            clock.utc_now(), holder_id, path, decision.action, by, result.outcome, result.sentence,
            decision.evidence, devices, result.freed_bytes,
        )  # fmt: skip
        await self._journal.write(row, next_action, due_s)

    def _start(self, action: Any) -> None:
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("gpuprof: an action failed: %s: %s", type(error).__name__, error)


def _after_warning(policy: Policy) -> tuple[Action, Number]:
    """What follows on a warning, and in how many seconds."""
    if policy.action == "warn":
        return _NOTHING
    return "free" if policy.action == "shutdown" else policy.action, policy.warn_before_s


def _asking(action: str, limit_s: float) -> str:
    """The expression for a kernel that has us; one that comes to it too late does nothing."""
    return _ASK.format(action=action, until=clock.unix_ns() * 1e-9 + limit_s)


def _words(said: dict[str, Any]) -> str:
    return "".join(f" {remark}" for remark in said.get("remarks", []))


async def _known(work: Awaitable[Result], decision: Decision) -> Result:
    """What came of it; a server that ends meanwhile still writes down what it had begun."""
    try:
        return await work
    except asyncio.CancelledError:
        return Result("failed", f"{decision.sentence} The server ended before it saw what came of it.")


async def _within(limit_s: float, call: Awaitable[Any]) -> Any:
    """Await the call for so long at most; unlike `asyncio.wait_for` it begins in this turn of the loop."""
    task, late = asyncio.current_task(), False

    def give_up() -> None:
        nonlocal late
        late = True
        if task is not None:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(limit_s, give_up)
    try:
        return await call
    except asyncio.CancelledError:
        if late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


def _named(ids: Iterable[ProcessId]) -> str:
    return ", ".join(str(id.pid) for id in ids)
