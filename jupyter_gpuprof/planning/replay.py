"""Replays recorded jobs under a policy: a heap of events, and one look at the queue after each moment.

At one moment, what ends comes first, then what is handed over, then what is submitted, then the queue.

* The line is by priority, then by submission; waiting for `aging_s` is worth one priority, which makes the
  place in the line (``submitted - aging_s * priority``) fixed, and nobody can be passed for ever.
* A team's stable GPUs up to its guarantee are *claimed*: they come out of free ones, or else of borrowed
  ones. Beyond it they are *borrowed*, if they are free and the limit allows it. Claims go before loans.
* Who must give way: others' loans first, the lowest priority first, the newest first, and afterwards those
  are spared, last chosen first, without whom it fits too (Kueue's order). A higher priority also goes over
  lower ones of its own team, within its guarantee.
* What a claim will be given is set aside at once: a claim once made is served within `Reclaim.bound_s`.
* With "fifo" a team's next in line blocks those behind it, and a loan that waits for GPUs blocks all others;
  with "skip" whoever fits goes; with "backfill" whoever fits and, by the time limits, does not delay the
  first who waits for GPUs, or the first of its own team who waits for quota.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from jupyter_gpuprof.planning.backfill import Expected, Reservation
from jupyter_gpuprof.planning.fleetnodes import Nodes, Places, choose
from jupyter_gpuprof.planning.fleetqueue import Bucket, Heads, Queue
from jupyter_gpuprof.planning.fleetstate import Claim, Placed, Played, Waiting
from jupyter_gpuprof.planning.fleetvictims import victims_for
from jupyter_gpuprof.planning.workload import Work
from jupyter_gpuprof.records.fleetpolicy import FleetPolicy, PriorityClass

_END, _HAND_OVER, _NOTICE, _GONE = range(4)
_NO_CLASS = PriorityClass()


def replay(works: Sequence[Work], policy: FleetPolicy, *, seed: int = 0) -> Played:
    """Place all jobs.

    Args:
        works: by their submission; none asks for more than the pool has.
        policy: how the pool is shared, with ``gang``; see ``planning.gangless`` for without.
        seed: of the interruptions of spot capacity.
    """
    return _Replay(works, policy, seed).run()


class _Replay:
    def __init__(self, works: Sequence[Work], policy: FleetPolicy, seed: int) -> None:
        self.works, self.policy, self.seed = works, policy, seed
        self.stable = Nodes(policy.nodes or (policy.gpus,))
        self.spot = Nodes((policy.spot.gpus,))
        self.classes = dict(policy.classes)
        self.lowest = min((kind.priority for _, kind in policy.classes), default=0)
        self.lowest = min(self.lowest, _NO_CLASS.priority)
        self.guarantees = {name: team.guarantee for name, team in policy.teams}
        #: What a team may have at most, where its loans are limited.
        self.limits = {n: t.guarantee + t.borrow for n, t in policy.teams if t.borrow is not None}
        self.usage: defaultdict[str, int] = defaultdict(int)
        self.running: defaultdict[str, dict[int, Placed]] = defaultdict(dict)
        self.queue = Queue(policy.line)
        self.expected = Expected() if policy.line == "backfill" else None
        self.events: list[tuple[float, int, int, Placed | Claim]] = []
        self.loans = _Loans(self)
        self.number = self.claims_made = 0
        self.now = 0.0
        never = [math.nan] * len(works)
        self.played = Played(never, never[:], never[:], [0] * len(works))

    def run(self) -> Played:
        works, coming = self.works, 0
        while self.events or coming < len(works):
            self.now = self.events[0][0] if self.events else math.inf
            if coming < len(works):
                self.now = min(self.now, works[coming].submit_s)
            only: list[Bucket] | None = []  # None for all
            while self.events and self.events[0][0] <= self.now:
                _, kind, _, what = heapq.heappop(self.events)
                if self._happen(kind, what):
                    only = None
            while coming < len(works) and works[coming].submit_s <= self.now:
                job = self._arrive(coming, works[coming])
                coming += 1
                if job is not None:
                    bucket = self.queue.add(job)
                    # Behind one that fits as little as itself, it changes nothing.
                    if only is not None and bucket.first is job:
                        only.append(bucket)
            if only is None or only:
                self._look(None if only is None or self._concerns_others(only) else only)
        return self.played

    def _happen(self, kind: int, what: Placed | Claim) -> bool:
        """One event; whether GPUs came free, or somebody came back into the line."""
        if isinstance(what, Claim):
            gone = list(what.victims)
            for placed in gone:
                self._stop(placed, what.decided_s + self.policy.reclaim.signal_s, self.policy.reclaim.grace_s)
            return bool(gone)
        if kind == _NOTICE:
            what.end_s = math.inf
            self._push(self.now + self.policy.spot.notice_s, _GONE, what)
            return False
        if kind == _GONE:
            self.played.interruptions += 1
            self._stop(what, self.now - self.policy.spot.notice_s, self.policy.spot.notice_s)
            return True
        if what.end_s != self.now:  # it was stopped, or will be
            return False
        what.end_s = -math.inf
        job, played = what.job, self.played
        played.end_s[job.index], played.wait_s[job.index] = self.now, job.waited_s
        played.overhead_s += self._resume_s(job) * what.gpus
        self._free(what)
        return True

    def _arrive(self, index: int, work: Work) -> Waiting | None:
        """The job as it comes; None if no GPUs could ever be its own."""
        kind = self.classes.get(work.priority_class, _NO_CLASS)
        needs = self.stable.needs(work.gpus, work.nodes)
        on_stable = work.gpus <= self.limits.get(work.team, math.inf) and choose(
            self.policy.nodes or (self.policy.gpus,), needs
        )
        if not on_stable and not (kind.preemptible and work.gpus <= self.policy.spot.gpus):
            return None
        aging_s = self.policy.aging_s
        key = (float(-kind.priority), work.submit_s, index)
        if math.isfinite(aging_s):
            key = (work.submit_s - aging_s * kind.priority, 0.0, index)
        return Waiting(index, work, needs, kind.priority, kind.preemptible, key, work.run_s, work.submit_s)

    def _concerns_others(self, arrived: list[Bucket]) -> bool:
        """Whether those who waited already are to be asked again when nothing but arrivals happened.

        With "skip" nobody else can start. With "backfill" neither, unless one takes over a reservation,
        or has a claim before others of its team.
        """
        if self.expected is None:
            return self.policy.line == "fifo"
        return (
            any(bucket.first.work.team in self.limits for bucket in arrived)
            or any(bucket.first.key < self.loans.first_key for bucket in arrived)
            or self._may_claim(self.queue.heads(arrived))
        )

    def _look(self, only: list[Bucket] | None) -> None:
        """Claims first, then loans, each in the order of the line; what is reserved holds for arrivals."""
        heads = self.queue.heads(only)
        if only is None:
            self.loans = _Loans(self)
        while self._may_claim(heads):
            made = self.claims_made
            heads = self.queue.go_through(heads, partial(self._claim_in_line, set()))
            if self.claims_made == made:
                break
            heads = self.queue.heads()  # who lends less now may have a claim in turn
        heads = self._may_borrow(heads)
        if heads:
            self.queue.go_through(heads, self.loans.lend)

    def _may_claim(self, heads: Heads) -> bool:
        """Whether it is worth asking for claims: most often nobody is within a guarantee, or above others."""
        asked: set[str] = set()
        for _, bucket in heads:
            job = bucket.jobs[0][1]
            team, gpus = job.work.team, job.work.gpus
            if team in asked:
                continue
            guarantee = self.guarantees.get(team, 0)
            if gpus <= guarantee and (job.priority > self.lowest or self.usage[team] + gpus <= guarantee):
                return True
            if self.expected is not None:
                asked.add(team)  # nobody claims what the next in line of its team waits for
        return False

    def _may_borrow(self, heads: Heads) -> Heads:
        """Without those who can neither borrow nor matter to who can: more than is free is refused anyway.

        The first of these stays, since the others must not delay it; and so do teams with limits.
        """
        if self.policy.line == "fifo":
            return heads
        spot, is_waiting, found = self.spot.total_free, False, []
        if not (self.stable.total_free or spot):
            return []
        for head in heads:
            job = head[1].jobs[0][1]
            gpus = job.work.gpus
            if gpus > spot and not self.stable.fits(job.needs) and job.work.team not in self.limits:
                if is_waiting:
                    continue
                is_waiting = True
            found.append(head)
        return found

    def _claim_in_line(self, passed: set[str], job: Waiting) -> bool:
        """With "backfill", nobody claims what the next in line of its team waits for."""
        if job.work.team in passed:
            return False
        started = self._claim(job)
        if not started and self.expected is not None:
            passed.add(job.work.team)
        return started

    def _claim(self, job: Waiting) -> bool:
        """Start it within its team's guarantee, at once or after others gave way."""
        team, gpus = job.work.team, job.work.gpus
        guarantee = self.guarantees.get(team, 0)
        if gpus > guarantee:
            return False
        is_within = self.usage[team] + gpus <= guarantee
        if is_within and self.stable.fits(job.needs):
            self.usage[team] += gpus
            self._place(job, self.stable.take(job.needs))
            return True
        # Asked often, answered in short: with no lower priority of its own, and no loans, nobody yields.
        is_above = job.priority > self.lowest and any(
            placed.job.priority < job.priority for placed in self.running[team].values()
        )
        is_lent = is_within and any(
            used > self.guarantees.get(other, 0) for other, used in self.usage.items()
        )
        if not (is_above or is_lent):
            return False
        victims = victims_for(job, self.stable.free, self.usage, self.guarantees, self.running)
        if not victims:
            return False
        self._set_aside(job, victims)
        return True

    def _set_aside(self, job: Waiting, victims: list[Placed]) -> None:
        room = list(self.stable.free)
        for placed in victims:
            for node, gpus in placed.places:
                room[node] += gpus
        places = choose(room, job.needs)
        assert places is not None
        self.claims_made += 1
        now = [(node, min(gpus, self.stable.free[node])) for node, gpus in places]
        self.stable.add(now, -1)
        due = {node: gpus - taken for (node, gpus), (_, taken) in zip(places, now, strict=True)}
        given = sum(taken for _, taken in now)
        claim = Claim(job, places, self.now, due, victims, (given, given * self.now))
        self.usage[job.work.team] += job.work.gpus
        for placed in victims:
            placed.claim = claim
            self.usage[placed.job.work.team] -= placed.gpus
            del self.running[placed.job.work.team][placed.job.index]
            if placed.end_s > self.now + self.policy.reclaim.signal_s:
                placed.end_s = math.inf
        self._push(self.now + self.policy.reclaim.release_s, _HAND_OVER, claim)
        if self.expected is not None:
            self.expected.set_aside(claim, self.policy.reclaim.release_s)

    def _place(self, job: Waiting, places: Places, *, is_spot: bool = False) -> None:
        job.waited_s += self.now - job.since_s
        job.attempts += 1
        if job.attempts == 1:
            self.played.start_s[job.index] = self.now
        placed = Placed(job, places, is_spot, self.now, self.now + job.left_s + self._resume_s(job))
        self._push(placed.end_s, _END, placed)
        if not is_spot:
            self.running[job.work.team][job.index] = placed
            if self.expected is not None:
                self.expected.add(placed)
        elif math.isfinite(self.policy.spot.between_s):
            draw = random.Random(f"{self.seed} {job.index} {job.attempts}")
            at_s = self.now + math.ceil(draw.expovariate(1 / self.policy.spot.between_s))
            if at_s < placed.end_s:
                self._push(at_s, _NOTICE, placed)

    def _resume_s(self, job: Waiting) -> float:
        return self.policy.checkpoint.resume_s if job.attempts > 1 else 0.0

    def _stop(self, placed: Placed, signal_s: float, warning_s: float) -> None:
        """End it before its time: what is kept, what is lost, and back into the line."""
        job, played, checkpoint = placed.job, self.played, self.policy.checkpoint
        worked_s = max(signal_s - placed.start_s - self._resume_s(job), 0.0)
        kept_s = min(checkpoint.kept_s(worked_s, warning_s), worked_s)
        job.left_s -= kept_s
        played.lost_s += (worked_s - kept_s) * placed.gpus
        played.overhead_s += (self.now - placed.start_s - worked_s) * placed.gpus
        played.preempted[job.index] += 1
        placed.end_s = -math.inf
        self._free(placed)
        job.since_s = self.now
        self.queue.add(job)

    def _free(self, placed: Placed) -> None:
        """Its GPUs go to the claim that it gives way to, or back into the pool."""
        held_s = (self.now - placed.start_s) * placed.gpus
        self.played.held_s += held_s
        if placed.is_spot:
            self.played.spot_s += held_s
            self.spot.add(placed.places)
            return
        if self.expected is not None:
            self.expected.remove(placed)
        claim = placed.claim
        if claim is None:
            team = placed.job.work.team
            self.usage[team] -= placed.gpus
            del self.running[team][placed.job.index]
            self.stable.add(placed.places)
            return
        for node, gpus in placed.places:
            given = min(gpus, claim.due.get(node, 0))
            if given:
                claim.due[node] -= given
                claim.given = (claim.given[0] + given, claim.given[1] + given * self.now)
            self.stable.add([(node, gpus - given)])
        claim.victims.remove(placed)
        if not claim.victims:
            self.played.idle_claimed_s += claim.given[0] * self.now - claim.given[1]
            self.played.claims_s.append(self.now + self.policy.reclaim.start_s - claim.decided_s)
            if self.expected is not None:
                self.expected.remove(claim)
            self._place(claim.job, claim.places)

    def _push(self, at_s: float, kind: int, what: Placed | Claim) -> None:
        self.number += 1
        heapq.heappush(self.events, (at_s, kind, self.number, what))


class _Loans:
    """One look at who may have GPUs beyond its guarantee, with what is reserved meanwhile."""

    def __init__(self, replay: _Replay) -> None:
        self.replay = replay
        self.first: Reservation | None = None
        self.first_key: tuple[float, ...] = ()  # who has it; nobody stands before an empty place
        self.by_team: dict[str, Reservation] = {}

    def lend(self, job: Waiting) -> bool | None:
        """Start it if it may; None if nobody behind it may."""
        replay, gpus, name, now = self.replay, job.work.gpus, job.work.team, self.replay.now
        if job.preemptible and gpus <= replay.spot.total_free:
            replay._place(job, replay.spot.take((gpus,)), is_spot=True)
            return True
        if name in replay.limits:
            left = replay.limits[name] - replay.usage[name]
            if gpus > left:
                if replay.expected is not None and name not in self.by_team:
                    self.by_team[name] = replay.expected.reserve_quota(name, gpus, left)
                return False
        first, own = self.first, self.by_team.get(name)
        is_allowed = (first is None or first.allows(job, now)) and (own is None or own.allows(job, now))
        if is_allowed and replay.stable.fits(job.needs):
            for reservation in (first, own):
                if reservation is not None:
                    reservation.let_by(job, now)
            replay.usage[name] += gpus
            replay._place(job, replay.stable.take(job.needs))
            return True
        if replay.policy.line == "fifo":
            return None
        if replay.expected is not None and first is None:
            self.first, self.first_key = replay.expected.reserve(job.needs, replay.stable), job.key
        return False
