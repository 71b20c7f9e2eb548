"""The reaper inside a kernel, for front ends whose server knows nothing of us.

A daemon thread looks at the kernel every few seconds, lets the same pure function decide as the server
does, and acts. It holds a gate while it looks and acts; a cell that begins waits at the gate for the step
in progress, and while a cell runs the thread does not touch the device. What only a server can see, such
as widgets' messages, it sees as work of the processor.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof import clock
from jupyter_gpuprof.analysis.idleness import acted, decide
from jupyter_gpuprof.analysis.processtree import ProcessTree
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.probes import owndevice, processes
from jupyter_gpuprof.records.idleness import Decision, KernelFacts, Process, Tick, Watch, Work
from jupyter_gpuprof.records.policy import SERVER_REAPER, Policy
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.release import ReaperNote, ReaperStatus, ReleaseReport
from jupyter_gpuprof.records.suspension import SuspendReport
from jupyter_gpuprof.session.devices.keep import current_keep
from jupyter_gpuprof.session.devices.release import offload_device, release_device
from jupyter_gpuprof.session.devices.releasehooks import call_release_hooks
from jupyter_gpuprof.session.devices.suspend import came_back, suspend_device, suspended

ACTIONS = ("warn", "free", "offload", "suspend", "shutdown")
#: How often the kernel is looked at: a tenth of the time-out, within these seconds.
SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 1.0, 30.0
_THREAD_NAME = "gpuprof reaper"
_NAME = "of this notebook"  # the kernel's, in sentences

Tell = Callable[[ReaperNote], None]


def server_reaps() -> str:
    """Why the server's reaper has the say, or "": the environment tells."""
    on = os.environ.get(SERVER_REAPER, "") not in ("", "0")
    return "the reaper of the Jupyter server is on" if on else ""


def kernel_policy(after_s: float, action: str = "warn") -> Policy:
    """What a kernel's own reaper may do.

    Args:
        after_s: idle for so long.
        action: the most that may be done.

    Raises:
        OptionError: a value makes no sense, or only a server can do it.
    """
    if action not in ACTIONS:
        raise OptionError(f"--action takes {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, not {action!r}.")
    if not after_s > 0:
        raise OptionError(f"--after takes a time above 0, not {after_s:g} s.")
    usual = Policy()
    return Policy(
        idle_timeout_s=after_s,
        action=action,  # type: ignore[arg-type]
        warn_before_s=min(usual.warn_before_s, after_s / 2),
        step_wait_s=min(usual.step_wait_s, after_s / 10),
        start_grace_s=0.0,
    )


class OwnWork:
    """What this kernel's processes use, read again and again."""

    def __init__(self) -> None:
        self._table = processes.ProcessTable()

    def __call__(self, quiet: bool) -> Work:
        """Now; the device is asked only if `quiet`, that is, while no cell runs."""
        me = processes.process_id()
        if me is None:
            return Work(Missing("this process cannot be read"))
        tree = ProcessTree(self._table.look([me.pid]))
        cpu_s = tree.cpu_s({me, *tree.descendants(me)})
        if not quiet:
            return Work(cpu_s, Missing("a cell runs"), Missing("a cell runs"), Missing("a cell runs"))
        held = sum(map(owndevice.reserved_bytes, owndevice.used_devices()))
        return Work(cpu_s, owndevice.busy_ratio(), reported_bytes=held)


class KernelReaper:
    """Frees the devices of this kernel when it has been idle for long enough.

    Args:
        policy: what it may do; see `kernel_policy`.
        shell: the IPython shell.
        tell: is told each step.
        returned: is told when offloaded tensors come back; see `release.offload_device`.
        restored: is told when a suspended kernel is back; see `suspend.suspend_device`.
        work: what the kernel's processes use.
        now_s: the monotonic clock.
        wall_s: the clock of dates.
        steps_back: why the server's reaper has the say, or "".
        end: ends the kernel; by default by its own event loop.
    """

    def __init__(
        self, policy: Policy, shell: Any, *, tell: Tell,
        returned: Callable[[ReleaseReport], None] = lambda report: None,
        restored: Callable[[SuspendReport], None] = lambda report: None,
        work: Callable[[bool], Work] | None = None,
        now_s: Callable[[], float] = clock.now_s,
        wall_s: Callable[[], float] = lambda: clock.unix_ns() * 1e-9,
        steps_back: Callable[[], str] = server_reaps,
        end: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.policy = policy
        self.interval_s = min(max(policy.idle_timeout_s / 10, SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)
        self._shell = shell
        self._tell = tell
        self._returned = returned
        self._restored = restored
        self._work = work or OwnWork()
        self._now_s = now_s
        self._wall_s = wall_s
        self._steps_back = steps_back
        self._end = end or (lambda: end_kernel(shell))
        self._gate = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._running = 0  # cells
        self._version = 0
        self._began_s = self._last_end_s = now_s()
        self._watch: Watch | None = None
        self._decision: Decision | None = None
        self._trouble = ""
        me = processes.process_id()
        uid = os.getuid() if hasattr(os, "getuid") else 0
        self._process = Process(os.getpid(), me.started_s if me else 0.0, uid)

    def start(self, *, inside_cell: bool = True, thread: bool = True) -> None:
        """Begin.

        Args:
            inside_cell: a cell is running, whose beginning was not seen.
            thread: look by itself; otherwise somebody calls `tick`.
        """
        self._running = int(inside_cell)
        self._shell.events.register("pre_execute", self._before_cell)
        self._shell.events.register("post_execute", self._after_cell)
        if thread:
            self._thread = threading.Thread(target=self._look, name=_THREAD_NAME, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, when a step in progress has ended."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._shell.events.unregister("pre_execute", self._before_cell)
        self._shell.events.unregister("post_execute", self._after_cell)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def status(self) -> ReaperStatus:
        """How it stands."""
        return ReaperStatus(self.policy, self._steps_back(), self._decision, self._trouble)

    def tick(self) -> Decision | None:
        """One look, and the step that is due; None where the server's reaper has the say."""
        if self._steps_back() or suspended():  # while suspended, whatever asks the device waits for ever
            self._watch = None
            return None
        with self._gate:
            tick = Tick(self._now_s(), self._wall_s(), self.interval_s)
            facts = self._facts()
            self._watch, decision = decide(facts, self._watch, self.policy, tick)
            self._decision = decision
            if decision.action == "none":
                return decision
            self._watch = acted(self._watch, decision, tick.now_s)
            _, ahead = decide(facts, self._watch, self.policy, tick)
            if decision.action == "suspend":
                done = suspend_device(self._shell, told=self._restored)
                missing = (f"Not so: {one.name} ({one.found})." for one in done.conditions if not one.holds)
                words = (f"Suspend (experimental): {done.sentence}", *missing)
                self._note(decision, ahead, None, words)
            elif decision.action != "shutdown":
                self._note(decision, ahead, self._step(decision))
        if decision.action == "shutdown":
            self._shut_down(decision, ahead)
        return decision

    def _facts(self) -> KernelFacts:
        keep = current_keep()
        return KernelFacts(
            kernel_id=_NAME,
            notebook=Missing("a kernel does not know its notebook"),
            kernelspec="",
            process=self._process,
            began_s=self._began_s,
            version=self._version,
            open_requests=self._running,
            open_messages=0,
            last_end_s=self._last_end_s,
            training=owndevice.training(),
            work=self._work(not self._running),
            keep=keep,
        )

    def _step(self, decision: Decision) -> ReleaseReport | None:
        """Free or offload, while cells wait at the gate; the report, if that is what is due."""
        names = self._shell.user_ns
        if decision.action == "free":
            return release_device(names, self._shell)
        if decision.action == "offload":
            return offload_device(names, self._shell, returned=self._returned, stop=lambda: self._running > 0)
        return None

    def _shut_down(self, decision: Decision, ahead: Decision) -> None:
        if came_back():
            self._note(decision, ahead, None, ("It is not ended: it was suspended once (experimental).",))
            return
        remarks = call_release_hooks()
        with self._gate:
            if self._version == decision.version:  # else a cell began meanwhile
                self._note(decision, ahead, None, remarks)
                self._end()

    def _note(
        self, decision: Decision, ahead: Decision, report: ReleaseReport | None, remarks: tuple[str, ...] = ()
    ) -> None:
        note = ReaperNote(decision.action, decision.sentence, ahead.next_action, ahead.due_s, report, remarks)
        self._tell(note)

    def _before_cell(self) -> None:
        self._running += 1  # first: an offload that is on its way stops at the next storage
        self._version += 1
        with self._gate:
            pass

    def _after_cell(self) -> None:
        self._running = max(self._running - 1, 0)
        self._version += 1
        self._last_end_s = self._now_s()

    def _look(self) -> None:
        while not self._ended.wait(self.interval_s):
            try:
                self.tick()
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"


def end_kernel(shell: Any) -> None:
    """End the kernel of a shell as ``exit()`` does, from any thread; its server may start a new one."""
    loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    if loop is None:
        raise RuntimeError("this shell has no kernel that could be ended")
    loop.add_callback(setattr, shell, "exit_now", True)


_current: KernelReaper | None = None


def turn_on(reaper: KernelReaper, *, inside_cell: bool = True) -> None:
    """Begin with this one; one that was on ends."""
    global _current
    turn_off()
    _current = reaper
    reaper.start(inside_cell=inside_cell)


def turn_off() -> bool:
    """End the reaper that is on; whether there was one."""
    global _current
    reaper, _current = _current, None
    if reaper is not None:
        reaper.stop()
    return reaper is not None


def reaper_status() -> ReaperStatus:
    """How the kernel's reaper stands, on or off."""
    return _current.status if _current is not None else ReaperStatus(None, server_reaps())
