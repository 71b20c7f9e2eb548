"""Make an ordinary single-device cell data-parallel without changing it: in the rank's own process only.

Models are replicated in place, so that every reference to them stays right; which models is told by the
optimizers: those whose parameters they update. Loaders give each rank its part of the data (`shards`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

#: What tells a process which accelerators it may see, by kind.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "hip": "HIP_VISIBLE_DEVICES", "xpu": "ZE_AFFINITY_MASK"}
#: The process group's backend by the kind of device.
_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}


def see_one_device(kind: str, index: int) -> None:
    """Let this process see one accelerator only, before torch is imported.

    So ``"cuda"``, ``"cuda:0"`` and tensors that were shipped from the kernel's device 0 all mean the rank's
    own device.
    """
    variable = _VISIBLE.get(kind)
    if variable is None:
        return
    visible = [name for name in os.environ.get(variable, "").split(",") if name]
    os.environ[variable] = visible[index] if index < len(visible) else str(index)


def join(kind: str, timeout_s: float) -> None:
    """Join the process group that the launcher's environment describes."""
    import torch

    torch.distributed.init_process_group(_BACKENDS.get(kind, "gloo"), timeout=timedelta(seconds=timeout_s))


def leave() -> None:
    """Leave it, if it is still there."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class Replicas:
    """Keeps the trained models of this process the same on all ranks.

    Args:
        find_unused: let the reduction cope with parameters that a step does not use (it costs time).
    """

    def __init__(self, *, find_unused: bool = False) -> None:
        self._find_unused = find_unused
        self.models: list[Any] = []

    def replicate_living(self) -> None:
        """Replicate the models of all optimizers that there are."""
        import torch

        for optimizer in _living(torch.optim.Optimizer):
            self.replicate(optimizer)

    def watch_optimizers(self) -> None:
        """Replicate the models of optimizers that the cell makes, as it makes them."""
        import torch

        original, replicas = torch.optim.Optimizer.__init__, self

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            replicas.replicate(optimizer)

        torch.optim.Optimizer.__init__ = __init__  # type: ignore[method-assign,assignment]

    def replicate(self, optimizer: Any) -> None:
        """Replicate the outermost modules that hold what an optimizer updates."""
        from torch.distributed._composable.replicate import replicate

        updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for model in _roots(updated):
            if any(model is known for known in self.models):
                continue
            kind = type(model)
            replicate(model, find_unused_parameters=self._find_unused, broadcast_buffers=False)
            model.__class__ = kind  # the hooks do it; the class of torch's that goes with them refuses copies
            type(replicate.state(model)).__reduce__ = _alone  # type: ignore[method-assign,assignment]
            self.models.append(model)

    def disagreement(self) -> str:
        """Why the ranks' models are no longer the same, or ""; a collective call."""
        import torch

        if not self.models:
            return "no model with an optimizer was found, so that its gradients cannot be reduced"
        for model in self.models:
            sums = torch.stack([p.detach().double().sum().cpu() for p in model.parameters()])
            device = next(model.parameters()).device
            mine = sums.to(device)
            all_sums = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
            torch.distributed.all_gather(all_sums, mine)
            if any(not torch.equal(all_sums[0], other) for other in all_sums[1:]):
                return (
                    "the ranks' models differ at the end: the cell does not call the model as a whole, "
                    "so its gradients were not reduced"
                )
        return ""


class _Alone:
    """Stands in a copy of a model for what keeps the ranks' models the same: a copy is its process's own."""

    _init_args = _init_kwargs = None
    _no_sync = False

    def __init__(self) -> None:
        self._ddp = self

    def _pre_forward(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def _post_forward(self, output: Any) -> Any:
        return output


def _alone(state: Any) -> Any:
    return _Alone, ()


def _roots(updated: set[int]) -> Iterator[Any]:
    """Modules with one of these parameters that are part of no other module."""
    import torch

    holders = [
        module
        for module in _living(torch.nn.Module)
        if any(id(p) in updated and p.requires_grad for p in module.parameters())
    ]
    inner = {id(child) for module in holders for child in module.modules() if child is not module}
    for module in holders:
        if id(module) not in inner:
            yield module


def _living(kind: type) -> list[Any]:
    """All objects of a kind in this process."""
    found = []
    for thing in gc.get_objects():
        try:
            if isinstance(thing, kind):
                found.append(thing)
        except Exception:  # a proxy whose class cannot be asked
            continue
    return found


def world() -> tuple[int, int]:
    """Rank and number of ranks by the launcher's environment."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def names_of_frameworks(values: Iterable[Any]) -> list[str]:
    """Frameworks among these objects that distribute the work by themselves."""
    return sorted({name for value in values for kind in type(value).__mro__ if (name := _framework(kind))})


def _framework(kind: type) -> str:
    package, name = kind.__module__.partition(".")[0], kind.__name__
    if package == "accelerate" and name == "Accelerator":
        return "Accelerate"
    if package in ("lightning", "pytorch_lightning") and name in ("Trainer", "Fabric"):
        return "Lightning"
    return "Hugging Face Trainer" if package == "transformers" and name == "Trainer" else ""
