"""The replay once more, by brute force: second after second, everything counted anew from lists."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, PriorityClass, Team


@dataclass
class TwinJob:
    index: int
    work: Work
    state: str = "future"  # future, waiting, claiming, running, draining, spot, done, never
    left: float = 0.0
    wait: float = 0.0
    attempts: int = 0
    began: int = 0
    first: float = math.nan
    end: float = math.nan
    stopped: int = 0
    places: dict[int, int] = field(default_factory=dict)
    victims: list[TwinJob] = field(default_factory=list)
    owed: dict[int, int] = field(default_factory=dict)
    decided: int = 0
    claimed_by: TwinJob | None = None
    signal: int = 0  # when it stops working
    gone: int = 0  # when it is stopped


class Twin:
    """Runs to the end, or for `most_s` seconds; `seen` is called with the twin after each second."""

    def __init__(self, works: list[Work], policy: FleetPolicy, seed: int = 0, most_s: int = 4000) -> None:
        self.policy, self.seed = policy, seed
        self.teams, self.classes = dict(policy.teams), dict(policy.classes)
        self.sizes = list(policy.nodes or (policy.gpus,))
        self.jobs = [TwinJob(i, work, left=work.run_s) for i, work in enumerate(works)]
        self.claims: list[float] = []
        self.lost = 0.0
        self.most_s = most_s
        self.now = 0

    def run(self, seen: object = None) -> Twin:
        for now in range(self.most_s):
            self.now = now
            for job in self.jobs:
                if job.state == "waiting":
                    job.wait += 1 if self.now else 0
                elif job.state == "claiming":
                    job.wait += 1
            while self.happen():
                pass
            if seen:
                seen(self)
            if all(job.state in ("done", "never") for job in self.jobs):
                break
        return self

    # What is counted anew each time.
    def kind(self, job: TwinJob) -> PriorityClass:
        return self.classes.get(job.work.priority_class, PriorityClass())

    def team(self, job: TwinJob) -> Team:
        return self.teams.get(job.work.team, Team())

    def used(self, team: str) -> int:
        return sum(
            job.work.gpus
            for job in self.jobs
            if job.work.team == team and job.state in ("running", "claiming")
        )

    def free(self) -> list[int]:
        room = list(self.sizes)
        for job in self.jobs:
            if job.state in ("running", "draining", "claiming"):
                for node, gpus in job.places.items():
                    room[node] -= gpus - (job.owed.get(node, 0) if job.state == "claiming" else 0)
        assert min(room) >= 0, "more GPUs in use than there are"
        return room

    def spot_free(self) -> int:
        return self.policy.spot.gpus - sum(job.work.gpus for job in self.jobs if job.state == "spot")

    def place_of(self, job: TwinJob) -> tuple[float, float, int]:
        priority = self.kind(job).priority
        if math.isinf(self.policy.aging_s):
            return (-priority, job.work.submit_s, job.index)
        return (job.work.submit_s - self.policy.aging_s * priority, 0, job.index)

    def resume(self, job: TwinJob) -> float:
        return self.policy.checkpoint.resume_s if job.attempts > 1 else 0

    def parts(self, job: TwinJob) -> list[int]:
        gpus = job.work.gpus
        if len(self.sizes) == 1:
            return [gpus]
        count = min(max(job.work.nodes, math.ceil(gpus / max(self.sizes))), gpus)
        return sorted((gpus // count + (1 if i < gpus % count else 0) for i in range(count)), reverse=True)

    def fit(self, room: list[int], job: TwinJob) -> dict[int, int] | None:
        places: dict[int, int] = {}
        for part in self.parts(job):
            open_nodes = [(room[n], n) for n in range(len(room)) if n not in places and room[n] >= part]
            if not open_nodes:
                return None
            places[min(open_nodes)[1]] = part
        return places

    # One moment.
    def happen(self) -> bool:
        now, happened = self.now, False
        for job in self.jobs:
            if job.state in ("running", "draining", "spot") and job.end == now and not job.gone:
                happened = True
                job.state = "done"
                self.let_go(job)
        for job in self.jobs:
            if job.gone and job.gone == now and job.state in ("draining", "spot"):
                happened = True
                self.stop(job)
        for job in self.jobs:
            if job.state == "future" and job.work.submit_s <= now:
                job.state = "waiting" if self.can_ever(job) else "never"
                happened = happened or job.state == "waiting"
        if happened:
            self.look()
        return happened

    def can_ever(self, job: TwinJob) -> bool:
        team = self.team(job)
        allowed = team.borrow is None or job.work.gpus <= team.guarantee + team.borrow
        if allowed and self.fit(self.sizes, job):
            return True
        return self.kind(job).preemptible and job.work.gpus <= self.policy.spot.gpus

    def stop(self, job: TwinJob) -> None:
        rules = self.policy.checkpoint
        warned = self.policy.spot.notice_s if job.state == "spot" else self.policy.reclaim.grace_s
        worked = max(job.signal - job.began - self.resume(job), 0)
        if not isinstance(rules.save_s, (int, float)) or rules.save_s > warned:
            kept = worked // rules.interval_s * rules.interval_s if rules.interval_s else 0
        else:
            kept = worked
        job.left -= kept
        self.lost += (worked - kept) * job.work.gpus
        job.stopped += 1
        self.let_go(job)
        job.state, job.end, job.gone = "waiting", math.nan, 0

    def let_go(self, job: TwinJob) -> None:
        claim, job.claimed_by = job.claimed_by, None
        if claim is not None:
            for node, gpus in job.places.items():
                claim.owed[node] = max(claim.owed.get(node, 0) - gpus, 0)
            claim.victims.remove(job)
            if not claim.victims:
                self.claims.append(self.now + self.policy.reclaim.start_s - claim.decided)
                self.start(claim, claim.places)
        job.places = {}

    def start(self, job: TwinJob, places: dict[int, int], state: str = "running") -> None:
        job.places, job.state, job.owed = places, state, {}
        job.attempts += 1
        if job.attempts == 1:
            job.first = self.now
        job.began, job.gone = self.now, 0
        job.end = self.now + job.left + self.resume(job)
        if state == "spot" and math.isfinite(self.policy.spot.between_s):
            draw = random.Random(f"{self.seed} {job.index} {job.attempts}")
            at = self.now + math.ceil(draw.expovariate(1 / self.policy.spot.between_s))
            if at < job.end:
                job.signal, job.gone = at, int(at + self.policy.spot.notice_s)

    # The queue.
    def alike(self, job: TwinJob) -> object:
        if self.policy.line == "fifo":
            return job.work.team
        kind = self.kind(job)
        limit = job.work.limit_s if self.policy.line == "backfill" else 0
        return (job.work.team, tuple(self.parts(job)), kind.priority, kind.preemptible, limit)

    def line(self) -> list[TwinJob]:
        return sorted((job for job in self.jobs if job.state == "waiting"), key=self.place_of)

    def look(self) -> None:
        claimed = True
        while claimed:
            claimed, failed = False, set()
            for job in self.line():
                blocked = self.alike(job) in failed
                if self.policy.line == "backfill":
                    blocked = blocked or job.work.team in failed
                if blocked:
                    continue
                how = self.claim(job)
                claimed = claimed or how == "claimed"
                if not how:
                    failed.add(self.alike(job))
                    failed.add(job.work.team)
        self.lend()

    def claim(self, job: TwinJob) -> str:
        guarantee, gpus = self.team(job).guarantee, job.work.gpus
        if gpus > guarantee:
            return ""
        if self.used(job.work.team) + gpus <= guarantee:
            places = self.fit(self.free(), job)
            if places is not None:
                self.start(job, places)
                return "started"
        victims = self.victims(job)
        if not victims:
            return ""
        room = self.free()
        before = list(room)
        for victim in victims:
            for node, n in victim.places.items():
                room[node] += n
        job.places = self.fit(room, job) or {}
        job.owed = {node: max(n - before[node], 0) for node, n in job.places.items()}
        job.state, job.decided, job.victims = "claiming", self.now, victims
        reclaim = self.policy.reclaim
        for victim in victims:
            victim.state, victim.claimed_by = "draining", job
            if victim.end > self.now + reclaim.signal_s:
                victim.signal = int(self.now + reclaim.signal_s)
                victim.gone = int(self.now + reclaim.release_s)
        return "claimed"

    def victims(self, job: TwinJob) -> list[TwinJob]:
        def order(other: TwinJob) -> tuple[int, int, int]:
            return (self.kind(other).priority, -other.began, -other.index)

        def good(victims: list[TwinJob]) -> bool:
            room = self.free()
            for victim in victims:
                for node, n in victim.places.items():
                    room[node] += n
            mine = sum(v.work.gpus for v in victims if v.work.team == job.work.team)
            used = self.used(job.work.team) - mine + job.work.gpus
            return used <= self.team(job).guarantee and self.fit(room, job) is not None

        running = [o for o in self.jobs if o.state == "running" and self.kind(o).preemptible]
        own = sorted((o for o in running if o.work.team == job.work.team
                      and self.kind(o).priority < self.kind(job).priority), key=order)  # fmt: skip
        others = sorted((o for o in running if o.work.team != job.work.team
                         and self.used(o.work.team) > self.team(o).guarantee), key=order)  # fmt: skip
        chosen: list[TwinJob] = []
        used = self.used(job.work.team)
        while own and used + job.work.gpus > self.team(job).guarantee:
            used -= own[0].work.gpus
            chosen.append(own.pop(0))
        for other in others + own:
            if good(chosen):
                break
            taken = sum(c.work.gpus for c in chosen if c.work.team == other.work.team)
            if (
                other.work.team == job.work.team
                or self.used(other.work.team) - taken > self.team(other).guarantee
            ):
                chosen.append(other)
        if not good(chosen):
            return []
        for victim in list(reversed(chosen)):
            without = [c for c in chosen if c is not victim]
            if good(without):
                chosen = without
        return chosen

    def lend(self) -> None:
        failed: set[object] = set()
        first: list[int | float] | None = None  # the date and what is spare then
        quota: dict[str, list[int | float]] = {}
        for job in self.line():
            gpus, name = job.work.gpus, job.work.team
            if self.alike(job) in failed:
                continue
            if self.kind(job).preemptible and gpus <= self.spot_free():
                self.start(job, {}, "spot")
                continue
            team = self.team(job)
            left = math.inf if team.borrow is None else team.guarantee + team.borrow - self.used(name)
            if gpus > left:
                if self.policy.line == "backfill" and name not in quota:
                    quota[name] = self.date_of_quota(job, left)
                failed.add(self.alike(job))
                continue
            places = self.fit(self.free(), job)
            dates = [d for d in (first, quota.get(name)) if d is not None]
            may = all(
                d[0] < math.inf and (self.now + job.work.limit_s <= d[0] or gpus <= d[1]) for d in dates
            )
            if places is not None and may:
                for date in dates:
                    if self.now + job.work.limit_s > date[0]:
                        date[1] -= gpus
                self.start(job, places)
                continue
            if self.policy.line == "fifo":
                return
            failed.add(self.alike(job))
            if self.policy.line == "backfill" and first is None:
                first = self.date(job)

    def expected(self, job: TwinJob) -> float:
        if job.state == "claiming":
            return job.decided + self.policy.reclaim.release_s + job.work.limit_s
        return job.began + job.work.limit_s

    def date(self, job: TwinJob) -> list[int | float]:
        """By trying all dates at which something is expected to end."""
        busy = [o for o in self.jobs if o.state in ("running", "claiming")]
        for at in sorted({self.expected(o) for o in busy}):
            if math.isinf(at):
                break
            room = self.free()
            for other in busy:
                if self.expected(other) <= at:
                    for node, n in other.places.items():
                        room[node] += n
            if self.fit(room, job):
                return [max(at, self.now), self.spare(job, busy, at)]
        return [math.inf, 0]

    def spare(self, job: TwinJob, busy: list[TwinJob], at: float) -> int:
        if len(self.sizes) > 1:
            return 0
        return self.free()[0] + sum(o.work.gpus for o in busy if self.expected(o) <= at) - job.work.gpus

    def date_of_quota(self, job: TwinJob, left: float) -> list[int | float]:
        busy = [o for o in self.jobs if o.state in ("running", "claiming") and o.work.team == job.work.team]
        for at in sorted({self.expected(o) for o in busy}):
            if math.isinf(at):
                break
            room = left + sum(o.work.gpus for o in busy if self.expected(o) <= at)
            if room >= job.work.gpus:
                return [max(at, self.now), int(room - job.work.gpus)]
        return [math.inf, 0]
