"""A look at devices and holders as the REST API tells it; the keys are those of server/protocol.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpuprof.records.codec import encode
from jupyter_gpuprof.records.devices import DeviceReading, Unattributed
from jupyter_gpuprof.records.idleness import Decision, Keep, Step
from jupyter_gpuprof.records.policy import Policy
from jupyter_gpuprof.records.reading import Missing, Number
from jupyter_gpuprof.records.sighting import KernelSight, OrphanSight, Sighting

Json = dict[str, Any]

_DEVICE = (
    "index", "uuid", "name", "state", "reason", "mig", "total_bytes", "used_bytes", "reserved_bytes",
    "utilisation_ratio", "used_includes_reserved", "gpm",
)  # fmt: skip


def devices_json(sighting: Sighting, now_s: float) -> Json:
    """The devices and who holds them.

    Args:
        sighting: of the last look.
        now_s: monotonic seconds of the same clock.
    """
    snapshot = sighting.snapshot
    rest = {other.device_uuid: other for other in sighting.attribution.unattributed}
    return {
        "state": snapshot.state,
        "reason": snapshot.reason,
        "driver": snapshot.driver,
        "look_ago_s": _ago(now_s, sighting.at_s),
        "devices": [_device(device, rest.get(device.uuid), sighting) for device in snapshot.devices],
    }


def holders_json(sighting: Sighting, now_s: float, acting: Mapping[str, str]) -> Json:
    """The kernels, what is left of dead ones, and what is neither.

    Args:
        sighting: of the last look.
        now_s: monotonic seconds of the same clock.
        acting: what is being done right now, by holder.
    """
    names = {device.uuid: device.name for device in sighting.snapshot.devices}
    return {
        "look_ago_s": _ago(now_s, sighting.at_s),
        "holders": [_holder(sight, names, now_s, sighting.at_s, acting) for sight in sighting.kernels],
        "orphans": [_orphan(sight, names, now_s, sighting.at_s, acting) for sight in sighting.orphans],
        "unattributed": [
            {
                "device_uuid": other.device_uuid,
                "held_bytes": encode(other.held_bytes),
                "why": other.why,
                "processes": encode(other.processes),
            }
            for other in sighting.attribution.unattributed
            if other.processes or not _nothing(other.held_bytes)
        ],
    }


def decisions_json(sighting: Sighting, now_s: float, acting: Mapping[str, str]) -> list[Json]:
    """What is decided about each holder and orphan."""
    decisions = [
        _decision(s.facts.kernel_id, s.decision, s.steps, now_s, sighting.at_s, acting)
        for s in sighting.kernels
    ]
    return decisions + [
        _decision(s.orphan_id, s.decision, s.steps, now_s, sighting.at_s, acting) for s in sighting.orphans
    ]


def policy_json(policy: Policy) -> Json:
    """The effective policy; of a hook only whether there is one."""
    values = {name: getattr(policy, name) for name in policy.__dataclass_fields__}
    values["hook"] = policy.hook is not None
    values["exempt"] = list(policy.exempt)
    values["kernelspecs"] = {name: dict(options) for name, options in policy.kernelspecs.items()}
    return values


def keep_json(keep: Keep | None, now_s: float) -> Json | None:
    """A keep that is in force; None for one that is over."""
    if keep is None or keep.until_s <= now_s:
        return None
    return {"until_in_s": keep.until_s - now_s, "why": keep.why}


def _device(device: DeviceReading, rest: Unattributed | None, sighting: Sighting) -> Json:
    answer = {name: encode(getattr(device, name)) for name in _DEVICE}
    answer["holders"] = [
        {
            "holder_id": sight.facts.kernel_id,
            "kernel_id": sight.facts.kernel_id,
            "path": _path(sight.facts.notebook),
            "held_bytes": encode(holding.held_bytes),
            "orphan": False,
        }
        for sight in sighting.kernels
        for holding in sight.holdings
        if holding.device_uuid == device.uuid
    ] + [
        {
            "holder_id": sight.orphan_id,
            "kernel_id": sight.facts.kernel_id,
            "path": _path(sight.facts.notebook),
            "held_bytes": encode(size),
            "orphan": True,
        }
        for sight in sighting.orphans
        for uuid, size in sight.held
        if uuid == device.uuid
    ]
    answer["unattributed"] = None
    if rest is not None:
        answer["unattributed"] = {
            "held_bytes": encode(rest.held_bytes),
            "why": rest.why,
            "processes": encode(rest.processes),
        }
    return answer


def _holder(
    sight: KernelSight, names: Mapping[str, str], now_s: float, at_s: float, acting: Mapping[str, str]
) -> Json:
    facts = sight.facts
    return {
        "holder_id": facts.kernel_id,
        "kernel_id": facts.kernel_id,
        "path": _path(facts.notebook),
        "kernelspec": facts.kernelspec,
        "remote": facts.process is None,
        "pid": None if facts.process is None else facts.process.pid,
        "state": sight.state,
        "holds": bool(sight.holdings),
        "held_bytes": encode(facts.work.held_bytes),
        "devices": [
            {
                "uuid": holding.device_uuid,
                "name": names.get(holding.device_uuid, ""),
                "held_bytes": encode(holding.held_bytes),
                "allocated_bytes": encode(holding.allocated_bytes),
                "reserved_bytes": encode(holding.reserved_bytes),
                "work_ratio": encode(holding.work_ratio),
                "pids": list(holding.pids),
            }
            for holding in sight.holdings
        ],
        "cpu_s": encode(facts.work.cpu_s),
        "open_requests": encode(facts.open_requests),
        "connections": encode(sight.connections),
        "idle_s": encode(sight.decision.idle_s),
        "keep": keep_json(facts.keep, now_s),
        "reaper": _decision(facts.kernel_id, sight.decision, sight.steps, now_s, at_s, acting),
    }


def _orphan(
    sight: OrphanSight, names: Mapping[str, str], now_s: float, at_s: float, acting: Mapping[str, str]
) -> Json:
    facts = sight.facts
    return {
        "orphan_id": sight.orphan_id,
        "pid": facts.process.pid,
        "kernel_id": facts.kernel_id,
        "path": _path(facts.notebook),
        "gone_ago_s": _ago(now_s, facts.gone_s),
        "certain": facts.recorded == facts.process and facts.process.uid == facts.own_uid,
        "held_bytes": encode(facts.work.held_bytes),
        "devices": [
            {"uuid": uuid, "name": names.get(uuid, ""), "held_bytes": encode(size)}
            for uuid, size in sight.held
        ],
        "state": sight.decision.activity,
        "reaper": _decision(sight.orphan_id, sight.decision, sight.steps, now_s, at_s, acting),
    }


def _decision(
    holder_id: str, decision: Decision, steps: tuple[Step, ...], now_s: float, at_s: float,
    acting: Mapping[str, str],
) -> Json:  # fmt: skip
    due_s = (
        decision.due_s if isinstance(decision.due_s, Missing) else max(decision.due_s - (now_s - at_s), 0.0)
    )
    return {
        "holder_id": holder_id,
        "action": decision.action,
        "activity": decision.activity,
        "reason": decision.reason,
        "sentence": decision.sentence,
        "vetoes": list(decision.vetoes),
        "evidence": list(decision.evidence),
        "idle_s": encode(decision.idle_s),
        "due_in_s": encode(due_s),
        "next_action": decision.next_action,
        "dry_run": decision.dry_run,
        "steps": [{"action": step.action, "ago_s": _ago(now_s, step.at_s)} for step in steps],
        "acting": acting.get(holder_id, ""),
    }


def _path(notebook: str | Missing) -> str:
    return "" if isinstance(notebook, Missing) else notebook


def _ago(now_s: float, then_s: float) -> float:
    return max(now_s - then_s, 0.0)


def _nothing(size: Number) -> bool:
    """A few MB are in use of an idle device, too."""
    return not isinstance(size, Missing) and size < 64 * 2**20
