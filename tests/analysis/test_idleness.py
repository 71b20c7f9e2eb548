"""The reaper's decision: every known failure of the stock culler that a decision can show, by number.

The numbers are those of the table in the project's notes on Jupyter's culler.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from jupyter_gpuprof.analysis.idleness import decide, decide_orphan, void
from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.records.idleness import Keep, KernelFacts, OrphanFacts, Process, Tick, Work
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing
from tests.analysis.idle_world import GIB, SHUTDOWN, UNREAD, World


def done(world: World) -> list[str]:
    return [action for action, _ in world.actions]


# -- the plain course of things -----------------------------------------------------------------------


def test_an_idle_kernel_is_warned_freed_and_shut_down_at_the_timeout():
    world = World()
    world.look()
    world.cell(7)
    ended_s = world.now_s
    world.run(150)
    (_, warned), (_, freed), (_, shut) = world.actions
    assert done(world) == ["warn", "free", "shutdown"]
    assert 100 <= shut - ended_s <= 110
    assert freed - warned >= 20
    assert shut - freed >= 10


def test_18_what_was_done_is_verified():
    world = World()
    while "shutdown" not in done(world):
        world.run(10)
    assert world.look().reason == "done"
    late = world.run(20)
    assert late.reason == "not released"
    assert "1.00 GiB" in late.sentence


def test_a_kernel_that_freed_enough_is_not_shut_down():
    world = World()
    while "free" not in done(world):
        world.run(10)
    world.held = 0
    assert world.run(100).reason == "released"
    assert "shutdown" not in done(world)


@pytest.mark.parametrize("action", ["free", "offload", "suspend"])
def test_the_action_is_the_most_that_is_done(action: str):
    world = World(policy=replace(SHUTDOWN, action=action))
    world.run(400)
    assert done(world) == ["warn", action]


def test_by_default_there_are_only_warnings():
    world = World(policy=Policy())
    world.interval_s = 60
    decision = world.run(3 * 3600)
    assert done(world) == ["warn"]
    assert decision.reason == "warned"


def test_work_of_our_own_step_is_not_use_of_the_kernel():
    world = World()
    while "free" not in done(world):
        world.run(10)
    world.cores = 1.0
    world.run(10)
    world.cores = 0.0
    world.run(30)
    assert done(world) == ["warn", "free", "shutdown"]


def test_work_that_outlasts_our_own_step_is_use_of_the_kernel():
    world = World()
    while "free" not in done(world):
        world.run(10)
    world.cores = 1.0
    world.run(300)
    assert done(world) == ["warn", "free"]


def test_a_late_step_waits_for_a_look_that_shows_more_than_our_own_work():
    world = World(policy=replace(SHUTDOWN, warn_before_s=300, step_wait_s=1))
    while "free" not in done(world):
        world.run(10)
    world.cores = 1.0
    world.run(300)
    assert done(world) == ["warn", "free"]


def test_every_use_begins_the_steps_anew():
    world = World()
    while "warn" not in done(world):
        world.run(10)
    world.cell()
    assert world.run(30).action == "none"
    world.run(100)
    assert done(world) == ["warn", "warn", "free", "shutdown"]


def test_a_dry_run_says_what_it_would_do():
    world = World(policy=replace(SHUTDOWN, dry_run=True))
    decisions = []
    for _ in range(12):
        world.sleep(10)
        decisions.append(world.look())
    assert [d.action for d in decisions if d.action != "none"] == ["warn", "free", "shutdown"]
    assert all(d.dry_run for d in decisions)


def test_the_decision_says_when_the_next_step_comes():
    world = World()
    world.look()
    world.run(30)
    decision = world.look()
    assert (decision.next_action, decision.reason) == ("warn", "not idle long enough")
    before = world.now_s
    while not world.actions:
        world.sleep(1)
        world.look()
    assert world.now_s - before == pytest.approx(decision.due_s, abs=1)


# -- failure modes by number --------------------------------------------------------------------------


def test_1_a_subshell_that_goes_idle_does_not_make_a_running_cell_idle():
    world = World()
    world.look()
    world.busy()
    for _ in range(40):
        subshell = world.busy("create_subshell_request")
        world.idle(subshell, "create_subshell_request")
        assert world.run(10).activity in ("running a cell", "waiting for input")
    assert world.actions == []


def test_2_the_idle_clock_begins_when_the_cell_ends():
    world = World()
    world.look()
    message = world.busy()
    world.run(500)
    world.idle(message)
    ended_s = world.now_s
    world.run(200)
    assert dict(world.actions)["shutdown"] - ended_s >= 100


def test_3_a_long_cell_is_not_touched_and_has_a_timeout_of_its_own():
    world = World(policy=replace(SHUTDOWN, busy_timeout_s=50.0))
    world.look()
    world.busy()
    world.cores = 1.0
    assert world.run(1000).reason == "busy"
    assert world.actions == []


@pytest.mark.parametrize(
    ("change", "mode"),
    [({"cores": 1.0}, "4, 6 and 7: a thread or child computes"), ({"device": 0.5}, "5: queued device work")],
)
def test_4_to_7_background_work_is_no_idleness(change: dict, mode: str):
    world = World()
    for name, value in change.items():
        setattr(world, name, value)
    world.look()
    assert world.run(1000).activity == "background work", mode
    assert world.actions == []


def test_5_a_keep_holds_a_pending_task():
    world = World()
    world.keep = Keep(world.now_s, world.now_s + 300, "long eval")
    decision = world.run(290)
    assert decision.reason == "keep"
    assert "long eval" in decision.sentence
    world.run(30)
    assert world.actions == []
    world.run(100)
    assert dict(world.actions)["shutdown"] >= world.keep.until_s + 100


def test_7_output_alone_is_no_fact():
    assert not [f.name for f in fields(KernelFacts) if "output" in f.name or "stream" in f.name]


def test_8_waiting_for_input_is_reported_and_never_ended_by_default():
    world = World()
    world.look()
    world.busy()
    decision = world.run(2000)
    assert (decision.activity, decision.reason) == ("waiting for input", "waiting for input")
    assert world.actions == []


def test_8_with_a_busy_timeout_a_stalled_cell_is_warned_and_shut_down_without_freeing():
    world = World(policy=replace(SHUTDOWN, busy_timeout_s=200.0))
    world.look()
    world.busy()
    begun_s = world.now_s
    world.run(400)
    assert done(world) == ["warn", "shutdown"]
    assert 200 <= world.actions[-1][1] - begun_s <= 220


def test_8_a_busy_timeout_only_warns_where_no_shutdown_is_allowed():
    world = World(policy=replace(SHUTDOWN, action="free", busy_timeout_s=200.0))
    world.look()
    world.busy()
    world.run(1000)
    assert done(world) == ["warn"]


@pytest.mark.parametrize(
    "kind", ["comm_msg", "complete_request", "kernel_info_request", "create_subshell_request"]
)
def test_9_and_10_chatter_of_the_page_is_no_use(kind: str):
    world = World()
    world.look()
    for _ in range(15):
        world.idle(world.busy(kind), kind)
        world.run(10)
    assert done(world) == ["warn", "free", "shutdown"]


def test_10_a_widget_callback_that_takes_long_is_use():
    world = World()
    world.look()
    message = world.busy("comm_msg")
    world.run(500)
    world.idle(message, "comm_msg")
    assert world.run(30).action == "none"
    assert world.actions == []


def test_11_connections_are_no_fact():
    assert not [f.name for f in fields(KernelFacts) if "connect" in f.name]


def test_12_a_warning_comes_in_time_before_the_first_step():
    for warn_before_s in (20, 60, 300):
        world = World(policy=replace(SHUTDOWN, warn_before_s=warn_before_s))
        world.run(600)
        assert world.actions[1][1] - world.actions[0][1] >= warn_before_s


def test_13_a_crash_while_busy_leaves_nothing_open():
    world = World()
    world.look()
    world.busy()
    world.run(50)
    world.pid += 1
    world.requests.reset()
    assert world.run(200).reason == "unknown"
    world.requests.confirm()
    world.run(130)
    assert done(world)[-1] == "shutdown"


def test_14_a_starting_kernel_is_left_alone():
    world = World(policy=replace(SHUTDOWN, start_grace_s=1000))
    assert world.run(900).activity == "starting"
    assert world.actions == []


def test_15_and_16_another_process_under_the_same_kernel_begins_anew():
    world = World()
    world.run(70)
    world.pid += 1
    assert world.run(30).action == "none"
    assert world.watch.idle_since_s > 1070


def test_17_a_newer_message_voids_the_decision():
    world = World()
    world.run(70)
    decision = world.run(10)
    for _ in range(20):
        if decision.action == "shutdown":
            break
        decision = world.run(10)
    fresh = world.facts()
    assert void(decision, fresh.version, fresh.process, fresh.open_requests) is None
    message = world.busy()
    fresh = world.facts()
    assert "message" in void(decision, fresh.version, fresh.process, fresh.open_requests)
    world.idle(message)
    fresh = world.facts()
    assert void(decision, fresh.version, fresh.process, fresh.open_requests)
    assert "process" in void(decision, decision.version, Process(9, 9.0, 9), 0)
    assert "cell" in void(decision, decision.version, decision.process, 1)
    assert void(decision, decision.version, decision.process, UNREAD) == UNREAD.reason


def test_17_a_step_that_was_not_taken_comes_again():
    world = World()
    world.run(40)
    tick = Tick(world.now_s + 10, world.wall_s + 10, 10)
    world.sleep(10)
    _, first = decide(world.facts(), world.watch, world.policy, tick)
    watch, _ = decide(world.facts(), world.watch, world.policy, tick)
    _, again = decide(world.facts(), watch, world.policy, Tick(tick.now_s + 10, tick.wall_s + 10, 10))
    assert first.action == again.action == "warn"


ORPHAN = OrphanFacts(
    kernel_id="k", notebook="a.ipynb", process=Process(7, 5.0, 1000), recorded=Process(7, 5.0, 1000),
    own_uid=1000, gone_s=0.0, work=Work(cpu_s=1.0, process_busy_ratio=0.0, driver_bytes=GIB),
)  # fmt: skip
END = replace(SHUTDOWN, orphans="end")


def orphan_after(seconds: float, facts: OrphanFacts, policy: Policy = END):
    watch, decision = None, None
    for i in range(int(seconds // 10) + 1):
        watch, decision = decide_orphan(facts, watch, policy, Tick(10.0 * i, 10.0 * i, 10))
    return decision


def test_19_and_20_a_recorded_child_of_a_dead_kernel_is_ended():
    assert orphan_after(90, ORPHAN).action == "none"
    decision = orphan_after(100, ORPHAN)
    assert (decision.action, decision.holder) == ("end orphan", "pid 7")


def test_20_orphans_are_only_reported_by_default():
    decision = orphan_after(500, ORPHAN, SHUTDOWN)
    assert (decision.action, decision.reason) == ("none", "orphans are only reported")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"recorded": None}, "not certainly ours"),  # 22, 24, 27: a server of before, the driver, a terminal
        ({"recorded": Process(7, 4.0, 1000)}, "not certainly ours"),  # 24: the number was given again
        ({"own_uid": 1001}, "not certainly ours"),  # 23
        ({"stuck": True}, "not released"),  # 18
        ({"work": replace(ORPHAN.work, process_busy_ratio=0.4)}, "busy"),
        ({"work": replace(ORPHAN.work, process_busy_ratio=UNREAD)}, "unknown"),  # 25
        ({"work": replace(ORPHAN.work, cpu_s=UNREAD)}, "unknown"),
        ({"work": replace(ORPHAN.work, driver_bytes=UNREAD)}, "unknown"),
        ({"work": replace(ORPHAN.work, driver_bytes=0)}, "holds too little"),
    ],
)
def test_18_to_27_orphans_that_are_not_ended(change: dict, reason: str):
    decision = orphan_after(1000, replace(ORPHAN, **change))
    assert (decision.action, decision.reason) == ("none", reason)


def test_an_orphan_on_which_all_is_off_says_so():
    assert orphan_after(1000, ORPHAN, replace(END, enabled=False)).reason == "off"


@pytest.mark.parametrize(
    "change",
    [
        {"unread_cpu": True},
        {"device": UNREAD},  # 25: MIG, 24: the driver does not tell
        {"held": UNREAD},
        {"training": UNREAD},
    ],
)
def test_24_and_25_whatever_is_unread_is_in_the_way_and_named(change: dict):
    world = World()
    for name, value in change.items():
        setattr(world, name, value)
    decision = world.run(1000)
    assert world.actions == []
    assert decision.reason == "unknown"
    assert any(UNREAD.reason in veto for veto in decision.vetoes)


def test_24_a_device_of_which_only_the_total_is_known_counts_as_at_most_that():
    world = World()
    idle = Work(cpu_s=1.0, device_busy_ratio=0.0, reported_bytes=GIB)
    for busy, expected in ((0.0, "idle"), (0.7, "background work")):
        world = World()
        for _ in range(5):
            world.sleep(10)
            decision = world.look(work=replace(idle, device_busy_ratio=busy))
        assert decision.activity == expected


def test_24_what_the_kernel_says_it_holds_counts_where_the_driver_does_not_list_it():
    work = Work(cpu_s=1.0, reported_bytes=8 * GIB)
    assert work.held_bytes == 8 * GIB
    assert replace(work, driver_bytes=9 * GIB).held_bytes == 9 * GIB
    assert isinstance(Work(cpu_s=1.0).held_bytes, Missing)


def test_26_remote_kernels_are_never_touched():
    world = World(remote=True)
    world.unread_cpu = True
    decision = world.run(1000)
    assert (decision.activity, decision.reason) == ("remote", "remote")
    assert world.actions == []


def test_a_kept_kernel_shows_for_how_long_it_is_really_idle():
    world = World()
    world.look()
    world.cell(5)
    ended_s = world.now_s
    world.keep = Keep(world.now_s, world.now_s + 300)
    kept = world.run(60)
    assert (kept.reason, kept.action) == ("keep", "none")
    assert kept.idle_s == pytest.approx(world.now_s - ended_s)
    world.keep = None  # ended early: the steps count from then on, the idle time from the cell
    ended_early_s = world.now_s
    while "shutdown" not in done(world):
        last = world.run(10)
    assert dict(world.actions)["shutdown"] >= ended_early_s + 90
    assert last.idle_s == pytest.approx(world.now_s - ended_s)


def test_29_a_keep_has_a_maximum():
    world = World(policy=replace(SHUTDOWN, keep_max_s=100))
    world.keep = Keep(world.now_s, world.now_s + 1e6)
    assert world.run(90).reason == "keep"
    world.run(250)
    assert dict(world.actions)["shutdown"] >= world.keep.since_s + 200


def test_29_the_decision_carries_its_evidence():
    world = World()
    world.sleep(10)
    while (decision := world.look()).action != "warn":
        world.sleep(10)
    assert decision.reason == "idle"
    assert "holds 1.00 GiB" in decision.evidence
    assert "device works 0 % of the time" in decision.evidence
    assert decision.sentence.startswith("work/a.ipynb is idle for")


@pytest.mark.parametrize("jump", ["gap", "wall", "back"])
def test_31_after_a_gap_or_a_jump_all_idle_clocks_begin_anew(jump: str):
    world = World()
    world.run(60)
    if jump == "gap":
        world.sleep(500)  # the server hung
    elif jump == "wall":
        world.wall_s += 8 * 3600  # the machine slept, or somebody set the clock
    else:
        world.wall_s -= 3600
    world.look()
    jumped_s = world.now_s
    world.run(150)
    assert dict(world.actions)["shutdown"] >= jumped_s + 100


def test_31_small_delays_do_not_begin_anew():
    world = World()
    for _ in range(12):
        world.sleep(25)
        world.look()
    assert done(world) == ["warn", "free", "shutdown"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idle_timeout_s": 0}, "idle_timeout_s must be above 0"),
        ({"idle_timeout_s": "1h"}, "idle_timeout_s takes a number"),
        ({"idle_timeout_s": True}, "takes a number"),
        ({"warn_before_s": -1}, "at least 0"),
        ({"keep_max_s": float("inf")}, "takes a number"),
        ({"cpu_ratio": 2}, "0 to 1"),
        ({"busy_timeout_s": 0}, "above 0"),
        ({"action": "kill"}, "action takes warn, free, offload, suspend or shutdown, not 'kill'"),
        ({"orphans": "shoot"}, "report or end"),
        ({"exempt": "a.ipynb"}, "list of path patterns"),
        ({"hook": 3}, "takes a function"),
        ({"kernelspecs": {"r": {"timeout": 3}}}, "has no option 'timeout'"),
        ({"kernelspecs": {"r": {"idle_timeout_s": -3}}}, "above 0"),
        ({"kernelspecs": {"r": {"orphans": "end"}}}, "has no option 'orphans'"),
    ],
)
def test_32_and_33_options_that_make_no_sense_are_one_sentence(options: dict, words: str):
    with pytest.raises(OptionError, match=words):
        Policy(**options)


# -- what a policy may say ----------------------------------------------------------------------------


def test_exempt_notebooks():
    world = World(policy=replace(SHUTDOWN, exempt=("work/*",)))
    assert world.run(1000).reason == "exempt"
    world = World(policy=replace(SHUTDOWN, exempt=("prod/*",)))
    world.run(200)
    assert done(world)[-1] == "shutdown"


def test_a_notebook_that_may_be_exempt_is_left_alone():
    world = World(policy=replace(SHUTDOWN, exempt=("prod/*",)), notebook=UNREAD)
    assert world.run(1000).reason == "unknown"
    world = World(notebook=UNREAD)
    world.run(200)
    assert done(world)[-1] == "shutdown"


def test_kernels_that_hold_little_are_left_alone():
    world = World(policy=replace(SHUTDOWN, min_held_bytes=2 * GIB))
    decision = world.run(1000)
    assert decision.reason == "holds too little"
    assert "1 GiB, and 2 count" in decision.sentence
    assert World(held=0).run(500).reason == "holds too little"


def test_kernels_without_a_device_are_ended_too_if_that_is_wanted():
    world = World(policy=replace(SHUTDOWN, min_held_bytes=0), held=0, device=UNREAD)
    world.run(200)
    assert done(world)[-1] == "shutdown"


def test_a_kernelspec_has_values_of_its_own():
    policy = replace(SHUTDOWN, kernelspecs={"python3": {"action": "warn"}, "r": {"enabled": False}})
    world = World(policy=policy)
    world.run(500)
    assert done(world) == ["warn"]
    assert policy.for_kernelspec("r").enabled is False
    assert policy.for_kernelspec("julia").action == "shutdown"


def fails(facts: KernelFacts) -> bool:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda facts: "the boss uses it", "the boss uses it"),
        (lambda facts: False, "against"),
        (lambda facts: None, "against"),
        (fails, r"failed \(ValueError: no\)"),
    ],
)
def test_a_hook_has_the_last_word(hook, words: str):
    world = World(policy=replace(SHUTDOWN, hook=hook))
    decision = world.run(500)
    assert (world.actions, decision.reason) == ([], "policy hook")
    assert re.search(words, decision.sentence)


def test_a_hook_that_says_yes_is_no_obstacle():
    asked = []
    world = World(policy=replace(SHUTDOWN, hook=lambda facts: asked.append(facts.kernel_id) or True))
    world.run(200)
    assert done(world) == ["warn", "free", "shutdown"]
    assert asked == ["k"] * 3, "asked only when something is to be done"


def test_a_reaper_that_is_off_says_so_and_still_says_what_goes_on():
    world = World(policy=replace(SHUTDOWN, enabled=False))
    decision = world.run(300)
    assert (decision.reason, decision.activity, world.actions) == ("off", "idle", [])


def test_everything_in_the_way_is_named():
    world = World(policy=replace(SHUTDOWN, exempt=("work/*",)), held=0)
    world.keep = Keep(world.now_s, world.now_s + 1e5)
    world.busy()
    world.run(20)
    assert len(world.look().vetoes) == 4


def test_training_goes_before_everything():
    world = World(training=True)
    world.busy()
    assert world.run(500).activity == "training"
    assert world.actions == []


def test_a_child_that_ends_counts_as_work():
    world = World()
    world.run(60)
    world.cpu_s -= 0.5
    assert world.run(10).activity == "background work"
