"""A kernel as it really is, and the facts that a server would read of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jupyter_gpuprof.analysis.idleness import acted, decide
from jupyter_gpuprof.analysis.openrequests import OpenRequests
from jupyter_gpuprof.records.idleness import Decision, Keep, KernelFacts, Process, Tick, Watch, Work
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing

GIB = 2**30
#: Idle for 100 s, looked at every 10 s; warned 20 s before, freed 10 s before.
SHUTDOWN = Policy(idle_timeout_s=100, warn_before_s=20, step_wait_s=10, start_grace_s=0, action="shutdown")
INTERVAL_S = 10.0
UNREAD = Missing("cannot be read")


@dataclass
class World:
    """One kernel, its true state, the tracker on its messages and the reaper that looks at it."""

    policy: Policy = SHUTDOWN
    interval_s: float = INTERVAL_S
    now_s: float = 1000.0
    wall_s: float = 1.7e9
    pid: int = 100
    cpu_s: float = 1.0
    cores: float = 0.0  # what its processes use of the processor
    device: object = 0.0
    held: object = GIB
    notebook: object = "work/a.ipynb"
    training: object = False
    keep: Keep | None = None
    remote: bool = False
    unread_cpu: bool = False
    requests: OpenRequests = field(default_factory=OpenRequests)
    watch: Watch | None = None
    actions: list[tuple[str, float]] = field(default_factory=list)
    ids: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        self.began_s = self.now_s
        self.requests.status("starting", "", "", self.now_s)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds
        self.cpu_s += self.cores * seconds

    def busy(self, kind: str = "execute_request") -> str:
        self.ids += 1
        self.requests.status("busy", f"m{self.ids}", kind, self.now_s)
        return f"m{self.ids}"

    def idle(self, message: str, kind: str = "execute_request") -> None:
        self.requests.status("idle", message, kind, self.now_s)

    def cell(self, seconds: float = 0.0) -> None:
        message = self.busy()
        self.sleep(seconds)
        self.idle(message)

    @property
    def process(self) -> Process | None:
        return None if self.remote else Process(self.pid, 5.0, 1000)

    def facts(self) -> KernelFacts:
        use, others = self.requests.count(self.now_s)
        work = Work(
            cpu_s=UNREAD if self.unread_cpu else self.cpu_s,
            process_busy_ratio=self.device,
            device_busy_ratio=UNREAD,
            driver_bytes=self.held,
        )
        return KernelFacts(
            kernel_id="k", notebook=self.notebook, kernelspec="python3", process=self.process,
            began_s=self.began_s, version=self.requests.version, open_requests=use, open_messages=others,
            last_end_s=self.requests.last_end_s, training=self.training, work=work, keep=self.keep,
        )  # fmt: skip

    def look(self, **changes: object) -> Decision:
        """One tick, acting as told."""
        self.looks += 1
        assert self.looks < 5000, "what a test waits for does not come"
        tick = Tick(self.now_s, self.wall_s, self.interval_s)
        self.watch, decision = decide(replace(self.facts(), **changes), self.watch, self.policy, tick)
        if decision.action != "none":
            self.watch = acted(self.watch, decision, self.now_s)
            self.actions.append((decision.action, self.now_s))
        return decision

    def run(self, seconds: float) -> Decision:
        """Ticks for so long; the last decision."""
        decision = None
        for _ in range(round(seconds / self.interval_s)):
            self.sleep(self.interval_s)
            decision = self.look()
        assert decision is not None
        return decision
