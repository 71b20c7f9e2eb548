"""Marks and the device's clock: what the device waited for, without ever waiting for the device."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.lanes import PARTS
from jupyter_gpuprof.analysis.steps import StepAssembler
from jupyter_gpuprof.probes import recorder as module
from jupyter_gpuprof.probes.recorder import DRAIN_AT, RING, Recorder
from jupyter_gpuprof.probes.sources import Source
from jupyter_gpuprof.records.timing import Part
from jupyter_gpuprof.testing import FakeClock, FakeDevice, FakeEvent

INPUT, EPOCH, COMPUTE = Part.INPUT, Part.EPOCH_START, Part.COMPUTE


class Device(FakeDevice):
    """Its seconds are floats, the clock's nanoseconds are whole: an event is reached within a nanosecond."""

    def query(self, event: FakeEvent) -> bool:
        self.calls.append("query")
        return event.reached_s <= (self.host.ns + 1) * 1e-9


class Loop:
    """A training loop on a scripted device; the host does nothing but fetch and launch."""

    def __init__(self, *, device: bool = True) -> None:
        self.clock = FakeClock(10**12)
        self.device = Device(self.clock) if device else None
        self.assembler = StepAssembler()
        self.recorder = Recorder(self.assembler, lambda: True, self.device)
        self.loader = self.source("loader")
        self.exposed_s: list[float] = []

    def source(self, origin: str, workers: int = 0) -> Source:
        source = self.recorder.sources.of_site((origin, len(self.recorder.sources.all)), origin, origin)
        source.workers = workers
        return source

    def fetch(self, seconds: float, source: Source | None = None, outcome: str = "batch") -> None:
        called = self.clock.ns * 1e-9
        self.recorder.begin_fetch(source or self.loader)
        self.clock.advance(seconds)
        self.recorder.end_fetch(outcome)
        drained = self.device.free_at_s if self.device is not None else 0.0
        self.exposed_s.append(max(0.0, self.clock.ns * 1e-9 - max(called, drained)))

    def work(self, seconds: float, *, sync: bool = False) -> None:
        if self.device is None:
            self.clock.advance(seconds)
        else:
            self.device.launch(seconds)
        self.recorder.backward(None)
        if sync and self.device is not None:
            self.device.wait()
        self.recorder.optimizer()

    def finish(self) -> StepAssembler:
        self.recorder.finish()
        self.assembler.finish(self.recorder._t)
        return self.assembler

    def part(self, *parts: Part) -> float:
        return float(self.assembler.training.total()[list(parts)].sum())


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(module, "now_ns", loop.clock)
    return loop


@pytest.fixture
def host_loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop(device=False)
    monkeypatch.setattr(module, "now_ns", loop.clock)
    return loop


_MS = st.integers(0, 80).map(lambda ms: ms * 1e-3)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(_MS, _MS, st.booleans()), min_size=2, max_size=60))
def test_the_exposed_stall_is_what_the_device_waited(steps: list[tuple[float, float, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        loop = Loop()
        patch.setattr(module, "now_ns", loop.clock)
        for load_s, work_s, sync in steps:
            loop.fetch(load_s)
            loop.work(work_s, sync=sync)
        begun, ended = 10**12 * 1e-9, max(loop.device.free_at_s, loop.clock.ns * 1e-9)
        a = loop.finish()
    assert a.training.steps == len(steps)
    assert loop.part(INPUT) == pytest.approx(sum(loop.exposed_s), abs=1e-6)
    total = a.training.total()[:PARTS].sum() + sum(a.tail[:PARTS]) + a.before_s
    assert total == pytest.approx(ended - begun, abs=1e-6)


@pytest.mark.parametrize(
    ("work_ms", "load_ms", "exposed_ms", "exposed_with_sync_ms"),
    [(20, 5, 0, 5), (20, 15, 0, 15), (20, 25, 5, 25), (20, 60, 40, 60), (5, 50, 45, 50)],
)
@pytest.mark.parametrize("sync", [False, True])
def test_known_stalls(
    loop: Loop, work_ms: int, load_ms: int, exposed_ms: int, exposed_with_sync_ms: int, sync: bool
) -> None:
    """The table of the reference, measured on a device that works by itself."""
    loop.fetch(0.0)
    loop.work(work_ms * 1e-3, sync=sync)
    for _ in range(30):
        loop.fetch(load_ms * 1e-3)
        loop.work(work_ms * 1e-3, sync=sync)
    loop.finish()
    expected_ms = exposed_with_sync_ms if sync else exposed_ms
    assert loop.part(INPUT) / 30 == pytest.approx(expected_ms * 1e-3, abs=1e-6)
    assert loop.loader.wait_ns == pytest.approx(30 * load_ms * 1e6, abs=1000)  # host time is another thing


def test_bursts_of_workers_add_up(loop: Loop) -> None:
    for i in range(40):
        loop.fetch(0.039 if i % 4 == 0 else 0.0)
        loop.work(0.005, sync=True)
    loop.finish()
    assert loop.part(INPUT) == pytest.approx(10 * 0.039, abs=1e-6)


# -- what must not be done to a device --------------------------------------------------------------


def test_nothing_waits_or_synchronizes_inside_the_loop(loop: Loop) -> None:
    assert loop.device is not None
    loop.device.synchronize = None  # type: ignore[assignment,method-assign]  # calling it raises
    for _ in range(500):
        before = loop.clock.ns
        loop.fetch(0.0)
        loop.work(0.5)
        assert loop.clock.ns == before
    del loop.device.synchronize  # type: ignore[attr-defined]
    assert loop.finish().training.steps > 0


@pytest.mark.parametrize("drain_at", [1, DRAIN_AT])
def test_a_capture_is_left_alone(loop: Loop, drain_at: int) -> None:
    assert loop.device is not None
    loop.recorder.drain_at = drain_at
    calls: dict[bool, int] = {True: 0, False: 0}
    for i in range(300):
        loop.device.is_capturing = i % 10 in (3, 4, 5)
        loop.device.calls.clear()
        loop.fetch(0.01)
        loop.recorder.simple("begin_save")
        loop.recorder.simple("end_save")
        loop.work(0.02, sync=not loop.device.is_capturing)
        calls[loop.device.is_capturing] += len(loop.device.calls)
    assert calls[True] == 0
    assert calls[False] > 0
    assert loop.recorder.capture_marks > 0
    loop.device.is_capturing = False
    a = loop.finish()
    assert 180 <= a.training.steps <= 300


def test_a_capture_that_is_never_ended(loop: Loop) -> None:
    assert loop.device is not None
    for _ in range(5):
        loop.fetch(0.01)
        loop.work(0.02)
    loop.device.is_capturing = True
    loop.device.calls.clear()
    loop.finish()
    assert not loop.device.calls


def test_marks_wait_in_a_ring_when_the_device_lags(loop: Loop) -> None:
    assert loop.device is not None
    for _ in range(5_000):  # the host runs 5000 s of work ahead
        loop.fetch(0.0)
        loop.work(1.0)
        if loop.recorder.simple("begin_save"):
            loop.recorder.simple("end_save")
        assert len(loop.recorder.pending) <= RING + 2
    assert loop.recorder.lost_marks > 0
    a = loop.finish()
    total = a.training.total()[:PARTS].sum() + sum(a.tail[:PARTS]) + a.before_s
    assert total == pytest.approx(5_000.0, rel=1e-3)  # marks are lost, seconds are not


def test_a_pause_ends_however_far_the_device_lags(loop: Loop) -> None:
    for i in range(2_000):
        loop.fetch(0.0)
        loop.work(1.0)
        if len(loop.recorder.pending) == RING - 1 or i % 100 == 0:
            loop.recorder.simple("pause")
            loop.recorder.simple("resume")
    assert loop.finish().paused_s == pytest.approx(0.0, abs=1e-9)


def test_an_event_of_another_stream_never_turns_time_back(loop: Loop) -> None:
    assert loop.device is not None
    for i in range(60):
        loop.fetch(0.0)
        loop.device.launch(0.02)
        queue = loop.device.free_at_s
        if i % 3 == 0:
            loop.device.free_at_s = 0.0  # a side stream, whose events are reached at once
        loop.recorder.backward(None)
        loop.recorder.optimizer()
        loop.device.free_at_s = queue
    a = loop.finish()
    assert (a.training.blocks() >= 0).all()
    total = a.training.total()[:PARTS].sum() + sum(a.tail[:PARTS]) + a.before_s
    assert total == pytest.approx(60 * 0.02, abs=1e-6)


def test_the_device_turns_up_in_the_first_backward_pass(loop: Loop) -> None:
    """Whatever was recorded by the host's clock goes; the open step counts from the next batch on."""
    host, device = loop.recorder, loop.device
    assert device is not None
    fresh = StepAssembler()
    recorder = loop.recorder = Recorder(host.sink, lambda: True)

    class Tensor:
        device = "somewhere"

    recorder.on_device = lambda where: recorder.use(fresh, device)
    loop.loader = loop.source("loader")
    for _ in range(10):
        loop.fetch(0.05)
        for _ in range(2):  # a second optimizer: no step of its own, although the batch was not seen
            device.launch(0.01)
            recorder.backward([Tensor()])
            recorder.optimizer()
    loop.assembler = fresh
    a = loop.finish()
    assert recorder.optimizer_steps == 20
    assert (a.training.steps, a.failed) == (9, 0)
    assert loop.part(INPUT) == pytest.approx(sum(loop.exposed_s[1:]), abs=1e-6)


# -- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [False, True])
def test_long_runs_take_no_memory(monkeypatch: pytest.MonkeyPatch, device: bool) -> None:
    loop = Loop(device=device)
    monkeypatch.setattr(module, "now_ns", loop.clock)

    def go_on(steps: int) -> None:
        for _ in range(steps):
            loop.recorder.begin_fetch(loop.loader)
            loop.clock.advance(0.001)
            loop.recorder.end_fetch("batch")
            loop.work(0.001)
            loop.recorder.simple("begin_save")
            loop.recorder.simple("end_save")
            assert len(loop.recorder.pending) <= 5 * DRAIN_AT

    go_on(20_000)
    tracemalloc.start()
    try:
        go_on(5_000)
        grown = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert grown < 600_000  # the blocks of the series
    assert loop.finish().training.steps == 25_000


@pytest.mark.parametrize("what", ["backward", "optimizer", "saves"])
def test_loops_without_batches_are_bounded_too(host_loop: Loop, what: str) -> None:
    r = host_loop.recorder
    for _ in range(20 * RING):
        host_loop.clock.advance(0.001)
        if what == "backward":
            r.backward(None)
        elif what == "optimizer":
            r.optimizer()
        else:
            r.simple("begin_save")
            r.simple("end_save")
        assert len(r.pending) <= 5 * DRAIN_AT


# -- loops of the cell around loaders, and generators that train ------------------------------------


def test_a_loop_around_a_loader_is_one_fetch(host_loop: Loop) -> None:
    line, r = host_loop.source("for"), host_loop.recorder
    for _ in range(20):  # for i, batch in enumerate(loader)
        r.begin_fetch(line)
        host_loop.fetch(0.03)
        r.end_fetch("batch")
        host_loop.work(0.01)
    a = host_loop.finish()
    assert (a.training.steps, a.failed) == (20, 0)
    assert host_loop.part(INPUT) == pytest.approx(20 * 0.03)
    assert a.roles == {host_loop.loader.key: "training"}


def test_workers_started_inside_the_loops_first_next(host_loop: Loop) -> None:
    line, r = host_loop.source("for"), host_loop.recorder
    host_loop.loader.workers = 2
    for i in range(20):  # for batch in tqdm(loader): iter(loader) is called inside
        r.begin_fetch(line)
        if i == 0:
            assert r._look_through(host_loop.clock())
            r._mark("begin_iter", host_loop.clock())
            host_loop.clock.advance(0.4)
            r._mark("end_iter", host_loop.clock(), host_loop.loader.key)
            host_loop.loader.fresh = True
        host_loop.fetch(0.2 if i == 0 else 0.03)
        r.end_fetch("batch")
        host_loop.work(0.01)
    a = host_loop.finish()
    assert host_loop.part(EPOCH) == pytest.approx(0.4 + 0.2)
    assert host_loop.part(INPUT) == pytest.approx(19 * 0.03)
    assert a.training.steps == 20


@pytest.mark.parametrize("per_result", [1, 5])
@pytest.mark.parametrize("around", ["nothing", "enumerate"])
def test_a_generator_that_trains_gives_results_not_batches(
    host_loop: Loop, per_result: int, around: str
) -> None:
    line, inner, r = host_loop.source("for"), host_loop.source("for"), host_loop.recorder
    for _ in range(8):  # for loss in train(loader)
        r.begin_fetch(line)
        host_loop.clock.advance(0.002)  # what the generator does after its yield
        for _ in range(per_result):
            if around == "enumerate":
                r.begin_fetch(inner)
            host_loop.fetch(0.01)
            if around == "enumerate":
                r.end_fetch("batch")
            host_loop.work(0.03)
        r.end_fetch("batch")
    a = host_loop.finish()
    assert (a.training.steps, a.failed) == (8 * per_result, 0)
    # That the loop's own next() trains shows in its first one, which began with its 2 ms.
    assert host_loop.part(INPUT) == pytest.approx(8 * per_result * 0.01 + 0.002)


def test_a_generator_that_trains_without_a_loader(host_loop: Loop) -> None:
    line, r = host_loop.source("for"), host_loop.recorder
    for _ in range(10):
        r.begin_fetch(line)
        host_loop.work(0.03)
        r.end_fetch("batch")
    a = host_loop.finish()
    assert not a.loader_seen  # and so nothing is said about input
    assert host_loop.part(INPUT) == 0
    assert a.training.steps == 9


def test_gradients_taken_while_a_batch_is_made_are_no_training(host_loop: Loop) -> None:
    r = host_loop.recorder
    for _ in range(10):
        r.begin_fetch(host_loop.loader)
        host_loop.clock.advance(0.01)
        r.backward(None)  # adversarial examples
        r.optimizer()
        r.end_fetch("batch")
        host_loop.work(0.03)
    a = host_loop.finish()
    assert (a.training.steps, a.backwards) == (10, 10)
    assert r.optimizer_steps == 10
    assert host_loop.part(INPUT) == pytest.approx(10 * 0.01)


def test_a_loader_inside_a_loader_is_one_fetch(host_loop: Loop) -> None:
    outer, r = host_loop.source("watch"), host_loop.recorder
    for _ in range(10):
        r.begin_fetch(outer)
        host_loop.fetch(0.01)
        host_loop.fetch(0.01)
        r.end_fetch("batch")
        host_loop.work(0.03)
    a = host_loop.finish()
    assert (a.training.steps, a.failed) == (10, 0)
    assert host_loop.part(INPUT) == pytest.approx(10 * 0.02)
    assert set(a.exposed_s) == {outer.key}
    assert (outer.fetches, host_loop.loader.fetches) == (10, 20)


# -- what is not recorded ---------------------------------------------------------------------------


@pytest.mark.parametrize("per_step", [1, 4])
@pytest.mark.parametrize("opens", range(40, 48))
@pytest.mark.parametrize("lasts", [5, 6, 9])
def test_steps_hidden_in_a_window_fail_none(host_loop: Loop, per_step: int, opens: int, lasts: int) -> None:
    """Batches are fetched ahead of their passes, so a window may hide more of the one than of the other."""
    r = host_loop.recorder
    for i in range(30 * per_step):
        for _ in range(per_step if i % per_step == 0 else 0):
            if len(host_loop.exposed_s) == opens:
                r.simple("pause")
                r.muted = True
            if len(host_loop.exposed_s) == opens + lasts:
                r.muted = False
                r.simple("resume")
            host_loop.fetch(0.01)
        host_loop.clock.advance(0.03)
        r.backward(None)
        if i % per_step == per_step - 1:
            r.optimizer()
    r.muted = False
    a = host_loop.finish()
    assert a.failed == 0
    assert a.paused_s > 0 or opens + lasts > 30


def test_a_muted_recorder_records_nothing(host_loop: Loop) -> None:
    r = host_loop.recorder
    for i in range(30):
        if i in (10, 20):
            r.muted = i == 10
        marks = len(r.pending)
        host_loop.fetch(0.01)
        host_loop.work(0.01)
        assert (len(r.pending) == marks) == r.muted or len(r.pending) < marks


# -- the end of a step ------------------------------------------------------------------------------


def test_every_fetch_reads_back_when_asked(host_loop: Loop) -> None:
    """What ``--steps N`` relies on: the count is right at every boundary."""
    r, seen = host_loop.recorder, []
    r.drain_at = 1
    r.on_drain = lambda: seen.append(host_loop.assembler.training.steps)
    for _ in range(20):
        host_loop.fetch(0.01)
        host_loop.work(0.01)
    assert seen == list(range(20))  # the last one is open until the next batch


def test_the_boundary_of_a_step(host_loop: Loop) -> None:
    line, watched, r = host_loop.source("for"), host_loop.source("watch"), host_loop.recorder
    assert not r.at_boundary
    r.begin_fetch(line)
    assert r.at_boundary
    r.begin_fetch(watched)
    assert not r.at_boundary  # within the loop's own next(), which said so already
    r.begin_fetch(host_loop.loader)
    assert not r.at_boundary  # but not the watched one's
    for _ in range(3):
        r.end_fetch("batch")
    assert not r.at_boundary


def test_own_cost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(device=False)
    reads = iter(range(0, 10**9, 1000))  # every reading of the clock takes a microsecond
    monkeypatch.setattr(module, "now_ns", lambda: next(reads))
    for _ in range(10):
        loop.recorder.begin_fetch(loop.loader)
        loop.recorder.end_fetch("batch")
        loop.recorder.backward(None)
        loop.recorder.optimizer()
    assert 30_000 <= loop.recorder.cost_ns <= 80_000
