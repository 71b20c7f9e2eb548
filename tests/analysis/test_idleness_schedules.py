"""Random courses of events: no kernel with work in progress is ended, every idle one is ended in time.

The truth is kept apart from what the reaper sees: a kernel's real cells and work, and since when it has
really been idle with everything known.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from jupyter_gpuprof.analysis.idleness import acted, decide, void
from jupyter_gpuprof.records.idleness import Keep, Tick
from tests.analysis.idle_world import GIB, INTERVAL_S, SHUTDOWN, UNREAD, World

TIMEOUT_S = SHUTDOWN.idle_timeout_s


class Course:
    """Events in a kernel's life, with looks every `INTERVAL_S`, and what must hold at each look."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.ended = 0
        self.world = World()
        self._new_kernel()

    def _new_kernel(self) -> None:
        """A kernel that has just been started, in the world as it is."""
        old = self.world
        self.world = World(now_s=old.now_s, wall_s=old.wall_s, pid=old.pid + 1)
        self.cells: list[str] = []
        self.messages: list[str] = []
        self.next_look_s = self.world.now_s + INTERVAL_S
        self.worked = False  # since the last look
        self.last_use_s = self.world.now_s  # a cell was open, or something worked and was not ours
        self.idle_since_s = self.world.now_s  # nothing at all was in the way
        self.freed_s = -1e9

    # -- events --

    def begin_cell(self) -> None:
        self.cells.append(self.world.busy())

    def end_cell(self) -> None:
        if self.cells:
            self.world.idle(self.cells.pop(0))
            self.last_use_s = self.idle_since_s = self.world.now_s

    def chatter(self) -> None:
        self.world.idle(self.world.busy("comm_msg"), "comm_msg")

    def begin_message(self) -> None:
        self.messages.append(self.world.busy("comm_msg"))

    def end_message(self) -> None:
        if self.messages:
            self.world.idle(self.messages.pop(), "comm_msg")
            self.idle_since_s = self.world.now_s

    def work(self, cores: float) -> None:
        self.world.cores = cores

    def device(self, ratio: object) -> None:
        self.world.device = ratio

    def training(self, state: object) -> None:
        self.world.training = state

    def hold(self, held: object) -> None:
        self.world.held = held

    def unread_cpu(self, state: bool) -> None:
        self.world.unread_cpu = state

    def forget_messages(self) -> None:
        """Our connection broke; what was open is not known any more."""
        self.world.requests.known = False

    def confirm(self) -> None:
        """A kernel is only free to answer our request on the shell channel if no cell runs."""
        if not self.cells:
            self.world.requests.confirm()

    def keep(self, seconds: float) -> None:
        self.world.keep = Keep(self.world.now_s, self.world.now_s + seconds)

    def crash(self) -> None:
        """The process died with all it did, and another one began under the same kernel id."""
        world = self.world
        world.pid += 1
        world.cores = world.cpu_s = 0.0
        world.began_s = world.now_s
        world.requests.status("starting", "", "", world.now_s)
        self.cells.clear()
        self.messages.clear()
        self.last_use_s = self.idle_since_s = world.now_s

    def jump(self, seconds: float) -> None:
        """Somebody set the clock, or the machine slept."""
        self.world.wall_s += seconds
        self.look()

    def hang(self, seconds: float) -> None:
        """The server could not look."""
        self._live(seconds)
        self.look()
        self.next_look_s = self.world.now_s + INTERVAL_S

    def live(self, seconds: float) -> None:
        """Time goes by, with looks."""
        until_s = self.world.now_s + seconds
        while self.next_look_s <= until_s:
            self._live(self.next_look_s - self.world.now_s)
            self.next_look_s += INTERVAL_S
            self.look()
        self._live(until_s - self.world.now_s)

    def _live(self, seconds: float) -> None:
        world = self.world
        if seconds > 0 and world.cores:
            self.worked = True
        world.sleep(max(seconds, 0.0))

    # -- what must hold --

    def look(self, race: bool = False) -> None:
        world = self.world
        tick = Tick(world.now_s, world.wall_s, INTERVAL_S)
        new = world.watch is None or world.watch.process != world.process
        passed_s = 0.0 if new else world.now_s - world.watch.tick.now_s
        gap = new or passed_s > 3 * INTERVAL_S
        jumped = not new and abs(world.wall_s - world.watch.tick.wall_s - passed_s) > 3 * INTERVAL_S
        works = world.device is not UNREAD and world.device > 0
        worked = self.worked or works or world.training is True
        unread = world.unread_cpu or world.training is UNREAD or not world.requests.known
        unread = unread or (world.device is UNREAD and world.held != 0)
        self.worked = False
        echo = world.watch is not None and world.watch.tick.now_s < self.freed_s + SHUTDOWN.step_wait_s
        if self.cells or unread or (worked and not echo):
            self.last_use_s = world.now_s
        in_the_way = (
            gap, jumped, worked, unread, self.cells, self.messages, world.held is UNREAD or not world.held,
            world.keep and world.keep.until_s > world.now_s,
        )  # fmt: skip
        if any(in_the_way):
            self.idle_since_s = world.now_s
        if world.keep:
            self.idle_since_s = max(self.idle_since_s, min(world.keep.until_s, world.now_s))

        watch, decision = decide(world.facts(), world.watch, world.policy, tick)
        world.watch = watch
        if race and decision.action != "none":
            self.begin_cell()
            fresh = world.facts()
            assert void(decision, fresh.version, fresh.process, fresh.open_requests)
            return
        if decision.action == "none":
            if self.idle_since_s + TIMEOUT_S + INTERVAL_S <= world.now_s:
                raise AssertionError(f"still there after {world.now_s - self.idle_since_s} s: {decision}")
            return
        world.watch = acted(watch, decision, world.now_s)
        assert not self.cells, decision
        assert not (worked and not echo), decision
        assert not unread, decision
        assert world.held is not UNREAD, decision
        if decision.action == "free":
            self.freed_s = world.now_s
        if decision.action == "shutdown":
            assert not worked, decision
            assert world.now_s - self.last_use_s >= TIMEOUT_S, decision
            assert not self.messages
            self.ended += 1
            self._new_kernel()


class Schedules(RuleBasedStateMachine):
    """The same events as rules, so that a failing course is told in as few of them as possible."""

    def __init__(self) -> None:
        super().__init__()
        self.course = Course()

    seconds = st.sampled_from([0.5, 3.0, 10.0, 35.0, 130.0])

    @rule(
        name=st.sampled_from(["begin_cell", "end_cell", "chatter", "begin_message", "end_message", "crash"])
    )
    def event(self, name: str) -> None:
        getattr(self.course, name)()

    @rule(name=st.sampled_from(["forget_messages", "confirm"]))
    def connection(self, name: str) -> None:
        getattr(self.course, name)()

    @rule(cores=st.sampled_from([0.0, 0.0, 2.0, 4.0]))
    def work(self, cores: float) -> None:
        self.course.work(cores)

    @rule(ratio=st.sampled_from([0.0, 0.0, 0.9, UNREAD]), state=st.sampled_from([False, False, True, UNREAD]))
    def device(self, ratio: object, state: object) -> None:
        self.course.device(ratio)
        self.course.training(state)

    @rule(held=st.sampled_from([GIB, GIB, 0, UNREAD]), cpu=st.sampled_from([False, False, True]))
    def reading(self, held: object, cpu: bool) -> None:
        self.course.hold(held)
        self.course.unread_cpu(cpu)

    @rule(seconds=st.sampled_from([5.0, 60.0, 1000.0]))
    def keep(self, seconds: float) -> None:
        self.course.keep(seconds)

    @rule(seconds=st.sampled_from([-3600.0, 5.0, 1e5]))
    def jump(self, seconds: float) -> None:
        self.course.jump(seconds)

    @rule(seconds=st.sampled_from([31.0, 500.0]))
    def hang(self, seconds: float) -> None:
        self.course.hang(seconds)

    @rule(seconds=seconds)
    def live(self, seconds: float) -> None:
        self.course.live(seconds)

    @rule()
    def race(self) -> None:
        self.course.look(race=True)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_ten_thousand_random_schedules():
    rng = random.Random(20261201)
    ended = 0
    for _ in range(10_000):
        course = Course()
        for _ in range(14):
            _any_event(course, rng)
        # At last everything is known and nothing works: the kernel must go.
        before = course.ended
        while course.cells:
            course.end_cell()
        while course.messages:
            course.end_message()
        for calm in (course.confirm, lambda c=course: c.work(0.0), lambda c=course: c.device(0.0)):
            calm()
        course.training(False)
        course.hold(GIB)
        course.unread_cpu(False)
        course.world.keep = None
        course.live(TIMEOUT_S + 2 * INTERVAL_S)
        assert course.ended > before
        ended += course.ended
    assert ended >= 10_000


def _any_event(course: Course, rng: random.Random) -> None:
    draw = rng.random()
    if draw < 0.45:
        course.live(rng.choice((0.5, 3.0, 10.0, 35.0, 130.0)))
    elif draw < 0.75:
        names = ("begin_cell", "end_cell", "end_cell", "chatter", "begin_message", "end_message", "crash",
                 "forget_messages", "confirm", "confirm")  # fmt: skip
        getattr(course, rng.choice(names))()
    elif draw < 0.85:
        course.work(rng.choice((0.0, 0.0, 2.0, 4.0)))
    elif draw < 0.9:
        course.device(rng.choice((0.0, 0.0, 0.9, UNREAD)))
        course.training(rng.choice((False, False, True, UNREAD)))
    elif draw < 0.94:
        course.hold(rng.choice((GIB, GIB, 0, UNREAD)))
        course.unread_cpu(rng.choice((False, False, True)))
    elif draw < 0.96:
        course.keep(rng.choice((5.0, 60.0, 1000.0)))
    elif draw < 0.98:
        course.jump(rng.choice((-3600.0, 5.0, 1e5)))
    elif draw < 0.99:
        course.hang(rng.choice((31.0, 500.0)))
    else:
        course.look(race=True)


def test_the_course_itself_ends_idle_kernels():
    course = Course()
    course.live(1000)
    assert course.ended >= 8
    assert replace(SHUTDOWN).action == "shutdown"
