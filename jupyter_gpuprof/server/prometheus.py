"""The monitor's answers in the text format of Prometheus, version 0.0.4.

Counters come from the ledger file, so that a restart of the server does not set them back. They count
from the beginning of the month (UTC), and begin anew with the next one, which Prometheus takes for the
reset that it is. Counting all that the ledger holds would not do: what is deleted of it when it is old
would look like a reset too, and the whole rest like new seconds.

What is not known has no sample: absent is not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, get_args

from jupyter_gpuprof import clock
from jupyter_gpuprof.errors import LedgerError
from jupyter_gpuprof.records.idleness import Action
from jupyter_gpuprof.records.ledger import STATES
from jupyter_gpuprof.server.protocol import Json, Monitor

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: More rows of the audit than a month has; were they not, the oldest would go uncounted.
_MOST_ROWS = 10_000

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, Any]]


def exposition(monitor: Monitor) -> str:
    """All metrics of a server.

    The ledger is left out, and said to be so, while its file cannot be read.

    Args:
        monitor: whom to ask.
    """
    page = _Page()
    status, devices = monitor.status(), monitor.devices()
    _server(page, status, devices)
    _devices(page, devices["devices"])
    _holders(page, monitor.holders())
    month_unix_s, now_unix_s = _month()
    try:
        # A second less than since the month began, so that no rounding takes in an hour of the last one.
        report = monitor.ledger("device", max(now_unix_s - month_unix_s - 1.0, 1e-3), None)
        audit = monitor.audit(_MOST_ROWS)
    except LedgerError:
        page.family("gpuprof_ledger_readable", "gauge", "Whether the ledger file can be read.", [({}, 0)])
    else:
        page.family("gpuprof_ledger_readable", "gauge", "Whether the ledger file can be read.", [({}, 1)])
        _seconds(page, report)
        _actions(page, audit, month_unix_s)
    return page.text()


def _server(page: _Page, status: Json, devices: Json) -> None:
    told = status["devices"]
    page.family(
        "gpuprof_info", "gauge", "Always 1; the labels say what the numbers come from.",
        [({"version": status["version"], "protocol": str(status["protocol"]), "driver": told["driver"],
           "allocation": status["allocation"], "simulated": str(told["simulated"]).lower()}, 1)],
    )  # fmt: skip
    page.family(
        "gpuprof_look_age_seconds", "gauge", "Time since the devices were looked at.",
        [({}, devices["look_ago_s"])],
    )  # fmt: skip


def _devices(page: _Page, devices: list[Json]) -> None:
    named = [({"uuid": d["uuid"], "name": d["name"]}, d) for d in devices if d["uuid"]]
    page.family(
        "gpuprof_device_up", "gauge", "Whether the device could be read.",
        [(labels, int(d["state"] == "ok")) for labels, d in named],
    )  # fmt: skip
    page.family(
        "gpuprof_device_memory_used_bytes", "gauge", "Device memory that processes use.",
        [(labels, d["used_bytes"]) for labels, d in named],
    )  # fmt: skip
    page.family(
        "gpuprof_device_memory_total_bytes", "gauge", "Device memory.",
        [(labels, d["total_bytes"]) for labels, d in named],
    )  # fmt: skip
    page.family(
        "gpuprof_busy_ratio", "gauge", "Share of the time before the last look in which the device worked.",
        [({**labels, "measure": measure}, ratio)
         for labels, d in named for measure, ratio in [_busy(d)]],
    )  # fmt: skip


def _busy(device: Json) -> tuple[str, Any]:
    """How busy was measured, and the number: the device's own counters are better than NVML's figure."""
    active = device["gpm"].get("active_ratio")
    if _known(active):
        return "gr_active", active
    return "util_nvml", device["utilisation_ratio"]


def _holders(page: _Page, holders: Json) -> None:
    states = Counter(holder["state"] for holder in holders["holders"] if holder["holds"])
    states["orphan"] = len(holders["orphans"])
    page.family(
        "gpuprof_holders", "gauge", "Kernels that hold device memory, and processes left of dead ones.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )  # fmt: skip


def _seconds(page: _Page, report: Json) -> None:
    samples = []
    for group in report["groups"]:
        name, _, uuid = group["key"].rpartition(", ")
        samples += [
            ({"uuid": uuid, "name": name, "state": state}, group["seconds"].get(state, 0.0))
            for state in STATES
        ]
    page.family(
        "gpuprof_device_seconds_total", "counter",
        "Seconds of each device by state since the month began (UTC); the states add up to all of them.",
        samples,
    )  # fmt: skip


def _actions(page: _Page, audit: Json, month_unix_s: float) -> None:
    # Nothing done is a zero and no gap, so that the first action is seen as a rise.
    done = Counter({(action, "done"): 0 for action in get_args(Action) if action != "none"})
    for row in audit["rows"]:
        if row["by"] == "reaper" and datetime.fromisoformat(row["at"]).timestamp() >= month_unix_s:
            done[row["action"], row["outcome"]] += 1
    page.family(
        "gpuprof_reaper_actions_total", "counter", "What the reaper did since the month began (UTC).",
        [({"action": action, "outcome": outcome}, n) for (action, outcome), n in sorted(done.items())],
    )  # fmt: skip


def _month() -> tuple[float, float]:
    """When the month began, and now, in seconds since 1970."""
    now_unix_s = clock.unix_ns() * 1e-9
    today = datetime.fromtimestamp(now_unix_s, timezone.utc)
    return datetime(today.year, today.month, 1, tzinfo=timezone.utc).timestamp(), now_unix_s


def _known(value: Any) -> bool:
    """Whether it is a number and not the reason why there is none."""
    return isinstance(value, (int, float))


class _Page:
    """Families of samples, each with its help and type once and before them."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, description: str, samples: Samples) -> None:
        """Add one; samples without a number are left out."""
        self._lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            if _known(value):
                inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                self._lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")

    def text(self) -> str:
        """The page."""
        return "\n".join(self._lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
