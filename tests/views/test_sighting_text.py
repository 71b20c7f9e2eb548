"""Devices and holders as a person reads them."""

from __future__ import annotations

from jupyter_gpuprof.views.sighting_text import audit_lines, devices_text, holders_text, reaper_text

GIB = 2**30
DECISION = {
    "reason": "not idle long enough", "sentence": "Kernel k is idle for 5 s.", "due_in_s": 55.0,
    "next_action": "warn",
}  # fmt: skip


def device(**values: object) -> dict:
    return {
        "index": 0, "uuid": "GPU-0", "name": "H200", "state": "ok", "reason": "", "mig": False,
        "total_bytes": 140 * GIB, "used_bytes": 3 * GIB, "reserved_bytes": 0, "utilisation_ratio": 0.12,
        "used_includes_reserved": False, "gpm": {"missing": "old"}, "unattributed": None, "holders": [],
        **values,
    }  # fmt: skip


def test_devices():
    holders = [
        {"holder_id": "k", "kernel_id": "k", "path": "a.ipynb", "held_bytes": GIB, "orphan": False},
        {
            "holder_id": "7-1.0",
            "kernel_id": "gone",
            "path": "",
            "held_bytes": {"missing": "?"},
            "orphan": True,
        },
    ]
    others = {"held_bytes": 2 * GIB, "why": "", "processes": []}
    text = devices_text(
        {"state": "ok", "reason": "", "driver": "580", "devices": [
            device(holders=holders, unattributed=others),
            device(index=1, state="lost", reason="off\x1b[31m the bus", utilisation_ratio={"missing": ""}),
        ]}
    )  # fmt: skip
    assert "3.0 GiB  140 GiB  12 %  a.ipynb 1.0 GiB, gone (orphan) n/a, others 2.0 GiB" in text
    assert "n/a  lost: off [31m the bus" in text
    assert text.endswith("Driver 580\n")


def test_no_device_is_one_sentence():
    answer = {"state": "no device", "reason": "there is no driver", "driver": "", "devices": []}
    assert devices_text(answer) == "No device: there is no driver.\n"


def test_holders_orphans_and_the_rest():
    holder = {
        "path": "/very/long/path/to/somewhere/over/the/rainbow/a.ipynb", "kernel_id": "0123456789",
        "state": "idle", "held_bytes": GIB, "idle_s": 5.0, "reaper": DECISION,
    }  # fmt: skip
    orphan = {"path": "", "pid": 7, "held_bytes": GIB, "reaper": {**DECISION, "due_in_s": {"missing": "x"}}}
    rest = {"device_uuid": "GPU-0", "held_bytes": GIB, "why": "", "processes": [{}]}
    text = holders_text({"holders": [holder], "orphans": [orphan], "unattributed": [rest]}, 140)
    assert "over/the/rainbow/a.ipynb  01234567  idle" in text
    assert "warn in 55.0 s" in text
    assert "(no notebook)" in text
    assert "pid 7" in text
    assert "1.0 GiB of GPU-0 belong to none of these kernels (1 process)" in text
    unknown = {**rest, "held_bytes": {"missing": "the driver does not answer"}}
    told = holders_text({"holders": [], "orphans": [], "unattributed": [unknown]})
    assert "What others hold of GPU-0 is not known (the driver does not answer)" in told
    assert all(len(line) <= 70 for line in holders_text(
        {"holders": [holder], "orphans": [orphan], "unattributed": []}, 70).splitlines())  # fmt: skip
    assert holders_text({"holders": [], "orphans": [], "unattributed": []}) == "No kernel.\n"


def test_the_reaper():
    text = reaper_text(
        {"decisions": [DECISION], "warnings": ["Two cullers are on"]}, "reaper on: action warn"
    )
    assert text == "Reaper on: action warn.\n  - Kernel k is idle for 5 s.\n  - Two cullers are on\n"
    assert audit_lines([]) == ["Nothing was done yet."]
    row = {"at": "2026-01-31T09:30:00+00:00", "action": "warn", "outcome": "done", "sentence": "It was idle."}
    assert audit_lines([row])[1] == "2026-01-31 09:30:00  warn  done     It was idle."
