"""Open requests of a kernel from its status messages."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpuprof.analysis.openrequests import NOT_KNOWN, OpenRequests

CELL = "execute_request"


def fresh() -> OpenRequests:
    tracker = OpenRequests()
    tracker.status("starting", "", "", 0.0)
    return tracker


def test_a_request_is_open_until_its_own_idle():
    tracker = fresh()
    tracker.status("busy", "cell", CELL, 1)
    tracker.status("busy", "sub", "create_subshell_request", 2)
    tracker.status("idle", "sub", "create_subshell_request", 2)
    assert tracker.count(2) == (1, 0)
    tracker.status("idle", "cell", CELL, 9)
    assert tracker.count(9) == (0, 0)
    assert tracker.last_end_s == 9


def test_cells_in_two_subshells():
    tracker = fresh()
    for name in ("a", "b"):
        tracker.status("busy", name, CELL, 1)
    tracker.status("idle", "a", CELL, 2)
    assert tracker.count(2) == (1, 0)


def test_late_comers_know_nothing_until_told():
    tracker = OpenRequests()
    assert tracker.count(0) == (NOT_KNOWN, 0)
    tracker.status("busy", "a", CELL, 1)
    assert tracker.count(1) == (1, 0), "what is open is known"
    tracker.status("idle", "a", CELL, 2)
    assert tracker.count(2) == (NOT_KNOWN, 0)
    tracker.confirm()
    assert tracker.count(2) == (0, 0)


def test_an_end_whose_beginning_was_missed_is_an_end():
    tracker = OpenRequests()
    tracker.status("idle", "a", CELL, 5)
    assert tracker.last_end_s == 5


def test_messages_of_our_own_are_no_use_and_change_no_version():
    tracker = fresh()
    version = tracker.version
    tracker.ours("x")
    tracker.status("busy", "x", CELL, 1)
    assert tracker.count(99) == (0, 0)
    tracker.status("idle", "x", CELL, 2)
    assert (tracker.last_end_s, tracker.version) == (None, version)


def test_a_restart_forgets_what_was_open():
    tracker = fresh()
    tracker.status("busy", "a", CELL, 1)
    version = tracker.version
    tracker.reset()
    assert tracker.count(2) == (NOT_KNOWN, 0)
    tracker.status("starting", "", "", 3)
    assert tracker.count(3) == (0, 0)
    assert tracker.version > version


def test_a_message_becomes_use_when_it_takes_long():
    tracker = fresh()
    tracker.status("busy", "w", "comm_msg", 0)
    assert tracker.count(1) == (0, 1)
    assert tracker.count(6) == (1, 0)
    tracker.status("idle", "w", "comm_msg", 6)
    assert tracker.last_end_s == 6
    tracker.status("busy", "v", "comm_msg", 7)
    tracker.status("idle", "v", "comm_msg", 8)
    assert tracker.last_end_s == 6


@given(st.lists(st.tuples(st.sampled_from(["busy", "idle", "starting", "?"]), st.sampled_from("abc"))))
def test_any_messages_leave_what_has_more_beginnings_than_ends(messages):
    tracker, counts, version = fresh(), Counter(), 0
    for i, (state, name) in enumerate(messages):
        tracker.status(state, name, CELL, float(i))
        if state == "starting":
            counts.clear()
        elif state != "?":
            counts[name] = int(state == "busy")
        assert tracker.version >= version
        version = tracker.version
    assert tracker.count(1e3) == (sum(counts.values()), 0)
