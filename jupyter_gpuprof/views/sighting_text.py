"""Devices, holders and the reaper as plain text, from the answers that the REST API gives, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.views.format import NOT_AVAILABLE, byte_size, clean, counted, percent, seconds, shorten
from jupyter_gpuprof.views.lines import bullet_lines, fitting, wrap

Json = dict[str, Any]

_NAME = 40
_ID = 8


def devices_text(answer: Json, width: int = 100) -> str:
    """The devices, one line each; see `server.protocol.Monitor.devices`."""
    if not answer["devices"]:
        what = "The devices are not known" if answer["state"] == "unknown" else "No device"
        return f"{what}: {clean(answer['reason']) or 'the driver lists none'}.\n"
    rows = [("#", "Device", "Memory used", "Of", "Work", "Held by")]
    for device in answer["devices"]:
        rows.append(
            (
                str(device["index"]),
                shorten(device["name"], 24),
                byte_size(_number(device["used_bytes"])),
                byte_size(_number(device["total_bytes"])),
                percent(_number(_work(device)), 0),
                _holders(device)
                if device["state"] == "ok"
                else f"{device['state']}: {clean(device['reason'])}",
            )
        )
    lines = fitting(rows, width, (0, 2, 3, 4), "", (3, 0))
    if answer["driver"]:
        lines.append(f"Driver {clean(answer['driver'])}")
    return "\n".join(lines) + "\n"


def _rest(other: Json) -> str:
    """What of a device belongs to no kernel of the server, as far as that is known."""
    held, uuid = other["held_bytes"], clean(other["device_uuid"])
    if isinstance(held, dict):
        return f"What others hold of {uuid} is not known ({clean(held['missing'])})"
    processes = f" ({counted(len(other['processes']), 'process')})" if other["processes"] else ""
    return f"{byte_size(_number(held))} of {uuid} belong to none of these kernels{processes}"


def holders_text(answer: Json, width: int = 100) -> str:
    """The kernels and what is left of dead ones; see `server.protocol.Monitor.holders`."""
    rows = [("Notebook", "Kernel", "State", "Holds", "Idle", "Reaper")]
    for holder in answer["holders"]:
        rows.append(
            (
                _notebook(holder["path"]) or "(no notebook)",
                holder["kernel_id"][:_ID],
                holder["state"],
                byte_size(_number(holder["held_bytes"])),
                seconds(_number(holder["idle_s"])),
                _next(holder["reaper"]),
            )
        )
    for orphan in answer["orphans"]:
        rows.append(
            (
                _notebook(orphan["path"]) or "(no notebook)",
                f"pid {orphan['pid']}",
                "orphan: its kernel is gone",
                byte_size(_number(orphan["held_bytes"])),
                NOT_AVAILABLE,
                _next(orphan["reaper"]),
            )
        )
    lines = fitting(rows, width, (3, 4), "", (5, 4)) if len(rows) > 1 else ["No kernel."]
    rest = [_rest(other) for other in answer["unattributed"]]
    return "\n".join([*lines, *(bullet_lines(rest, width) if rest else [])]) + "\n"


def reaper_text(answer: Json, policy: str, width: int = 100) -> str:
    """The policy and what is decided now; see `server.protocol.Monitor.reaper`.

    Args:
        answer: of the monitor.
        policy: the policy in one line.
        width: of the lines.
    """
    lines = wrap(policy[:1].upper() + policy[1:] + ".", width)
    lines += bullet_lines((decision["sentence"] for decision in answer["decisions"]), width)
    lines += bullet_lines(answer["warnings"], width)
    return "\n".join(lines) + "\n"


def audit_lines(audit: Iterable[Json], width: int = 100) -> list[str]:
    """What was done, newest first."""
    rows: list[Sequence[str]] = [
        (row["at"][:19].replace("T", " "), row["action"], row["outcome"], shorten(row["sentence"], 200))
        for row in audit
    ]
    if not rows:
        return ["Nothing was done yet."]
    return fitting([("When (UTC)", "What", "Outcome", "Why"), *rows], width, (), "", ())


def _holders(device: Json) -> str:
    said = [
        f"{_notebook(h['path']) or h['kernel_id'][:_ID]}{' (orphan)' if h['orphan'] else ''}"
        f" {byte_size(_number(h['held_bytes']))}"
        for h in device["holders"]
    ]
    rest = device["unattributed"]
    if rest is not None:
        size = _number(rest["held_bytes"])
        if isinstance(size, Missing) or size >= 64 * 2**20:
            said.append(f"others {byte_size(size)}")
    return ", ".join(said) or "nobody"


def _notebook(path: str) -> str:
    """The end of a long path is what tells notebooks apart."""
    cleaned = clean(path)
    return cleaned if len(cleaned) <= _NAME else "…" + cleaned[1 - _NAME :]


def _work(device: Json) -> Any:
    gpm = device["gpm"]
    return device["utilisation_ratio"] if "missing" in gpm else gpm["active_ratio"]


def _next(decision: Json) -> str:
    due = _number(decision["due_in_s"])
    if isinstance(due, Missing) or decision["next_action"] == "none":
        return str(decision["reason"])
    return f"{decision['next_action']} in {seconds(due)}"


def _number(value: Any) -> Any:
    """A number of an answer, or what is missing."""
    return Missing(str(value["missing"])) if isinstance(value, dict) else value
