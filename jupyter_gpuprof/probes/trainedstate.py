"""What a cell would put into a checkpoint: the objects with a state that its variables lead to."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpuprof.probes import machine, owndevice
from jupyter_gpuprof.probes.reachable import Walk
from jupyter_gpuprof.records.spot import StatePart

RANDOM = "random states"
#: torch's classes of tensors in parts.
_SHARDS = ("DTensor", "ShardedTensor")


@dataclass(frozen=True)
class Stateful:
    """An object with a state, by the variable that leads to it."""

    name: str
    kind: str
    thing: Any


def find_state(namespace: Mapping[str, Any]) -> list[Stateful]:
    """Models, optimizers, schedules, scalers and whatever else can save and load its state.

    A model inside of another one is part of that; a model of which nothing is trained is left out.

    Args:
        namespace: the variables to look at.
    """
    torch = machine.import_torch()
    if torch is None:
        return []
    found: list[Stateful] = []
    for _, path, thing in Walk(namespace, lambda thing: bool(_kind(torch, thing))):
        kind = _kind(torch, thing)
        alike = [other.name for other in found if other.kind == kind]
        if not any(path.startswith((f"{name}.", f"{name}[")) for name in alike):
            found.append(Stateful(path, kind, thing))
    return _trained(found)


def state_of(found: list[Stateful]) -> dict[str, Any]:
    """The state of each by its name, and the random states, as tensors and plain data.

    Tensors are the objects' own: nothing is copied. What only looks as if it had a state is left out.
    """
    states: dict[str, Any] = {}
    for one in found:
        try:
            states[one.name] = one.thing.state_dict()
        except Exception:
            if one.kind != "other":
                raise
    return {**states, RANDOM: _random_states()}


def parts_of(found: list[Stateful], state: Mapping[str, Any]) -> tuple[StatePart, ...]:
    """What the checkpoint holds, and how much of each; a tensor that two share counts once."""
    seen: set[int] = set()
    kinds = {one.name: one.kind for one in found}
    return tuple(
        StatePart(name, kinds.get(name, RANDOM), sum(_new_bytes(part, seen))) for name, part in state.items()
    )


def is_shard(value: Any) -> bool:
    """Whether it is a tensor of which each rank holds a part."""
    return isinstance(value, sys.modules["torch"].Tensor) and type(value).__name__ in _SHARDS


def is_sharded(state: Any) -> bool:
    """Whether a state holds such tensors."""
    if isinstance(state, Mapping):
        return any(map(is_sharded, state.values()))
    return any(map(is_sharded, state)) if isinstance(state, (list, tuple)) else is_shard(state)


def parameter_bytes(found: list[Stateful]) -> int:
    """The parameters of the models, each once."""
    parameters = {id(p): p for one in found if one.kind == "model" for p in one.thing.parameters()}
    return sum(_size_bytes(parameter) for parameter in parameters.values())


def without_state(found: list[Stateful]) -> list[str]:
    """Optimizers that hold none yet."""
    return [one.name for one in found if one.kind == "optimizer" and not one.thing.state]


def finish_devices() -> None:
    """Wait for what is queued on the devices of this process, so that a save does not have to."""
    for device in owndevice.used_devices():
        owndevice.finish(device)


def _kind(torch: Any, thing: Any) -> str:
    """What it is by its class alone; "" for what has no state to save."""
    kind = type(thing)
    if issubclass(kind, type):
        return ""
    if issubclass(kind, torch.nn.Module):
        return "model"
    if issubclass(kind, torch.optim.Optimizer):
        return "optimizer"
    if issubclass(kind, torch.optim.lr_scheduler.LRScheduler):
        return "schedule"
    if issubclass(kind, torch.amp.GradScaler):
        return "scaler"
    can = (getattr(kind, name, None) for name in ("state_dict", "load_state_dict"))
    return "other" if all(map(callable, can)) else ""


def _trained(found: list[Stateful]) -> list[Stateful]:
    """Without models that are part of another one, or of which nothing is trained.

    An average of weights has parameters of its own, and stays.
    """
    groups = (group for one in found if one.kind == "optimizer" for group in one.thing.param_groups)
    stepped = {id(parameter) for group in groups for parameter in group["params"]}
    parameters = {
        one.name: {id(p) for p in one.thing.parameters() if p.requires_grad or id(p) in stepped}
        for one in found
        if one.kind == "model"
    }
    kept: set[str] = set()
    covered: set[int] = set()
    for name in sorted(parameters, key=lambda name: -len(parameters[name])):
        if parameters[name] - covered:
            kept.add(name)
            covered |= parameters[name]
    return [one for one in found if one.kind != "model" or one.name in kept]


def _random_states() -> dict[str, Any]:
    torch = sys.modules["torch"]
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = (str(name), keys.tolist(), *rest)
    for device in owndevice.used_devices():
        states[str(device)] = torch.get_device_module(device).get_rng_state(device)
    return states


def _new_bytes(part: Any, seen: set[int]) -> Iterator[int]:
    """Sizes of the tensors in nested containers whose storage was not seen yet."""
    if isinstance(part, sys.modules["torch"].Tensor):
        key = _storage(part)
        if key not in seen:
            seen.add(key)
            yield _size_bytes(part)
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _new_bytes(value, seen)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _new_bytes(value, seen)


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except Exception:  # sparse, or made of other tensors
        return id(tensor)


def _size_bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
