"""Let optimizers use their fused or their foreach form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("fused", "foreach")


def set_form(optimizer: Any, name: str, on: bool) -> str:
    """Switch the form "fused" or "foreach" of a living optimizer.

    Returns:
        Why it cannot be; "" if it was done.
    """
    kind = type(optimizer).__name__
    if name not in optimizer.defaults:
        return f"{name}: {kind} has no such form"
    if on and name == "fused" and (why := _why_not_fused(optimizer)):
        return f"fused: {kind} cannot: {why}"
    other = "foreach" if name == "fused" else "fused"
    for group in (optimizer.defaults, *optimizer.param_groups):
        group[name] = on
        if on and other in group:
            group[other] = False
    if name == "fused":
        optimizer._step_supports_amp_scaling = on
        for parameter, state in optimizer.state.items():
            if "step" in state and hasattr(state["step"], "device"):
                state["step"] = state["step"].to(parameter.device if on else "cpu")
    return ""


@contextmanager
def change_new_optimizers(name: str, on: bool, made: Callable[[str], None]) -> Iterator[None]:
    """Switch the form of each optimizer that is made meanwhile; `made` is told why it could not be."""
    from torch.optim import Optimizer

    original = Optimizer.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made(set_form(self, name, on))

    Optimizer.__init__ = __init__  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = original  # type: ignore[method-assign]


def line_of(optimizer: Any, name: str, models: dict[str, Any]) -> str:
    """What to write to get this optimizer.

    Args:
        optimizer: as it is now.
        name: of the optimizer.
        models: modules by their names.
    """
    kind = type(optimizer)
    groups = optimizer.param_groups
    words = ["..."]
    for model_name, model in models.items():
        if len(groups) == 1 and [id(p) for p in groups[0]["params"]] == [id(p) for p in model.parameters()]:
            words = [f"{model_name}.parameters()"]
            break
    parameters = inspect.signature(kind.__init__).parameters
    for key, parameter in parameters.items():
        value = groups[0].get("initial_lr", groups[0][key]) if key == "lr" else optimizer.defaults.get(key)
        plain = isinstance(value, (bool, int, float, str, tuple))
        if plain and value != parameter.default and (value is not False or key not in NAMES):
            words.append(f"{key}={value!r}")
    where = "torch.optim." if kind.__module__.startswith("torch.optim") else ""
    return f"{name} = {where}{kind.__name__}({', '.join(words)})"


def _why_not_fused(optimizer: Any) -> str:
    try:
        from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

        known = _get_fused_kernels_supported_devices()
    except ImportError:
        known = ["cuda"]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.device.type not in known:
                return f"not on {parameter.device.type}"
            if not parameter.is_floating_point():
                return f"not for parameters in {parameter.dtype}"
        if group.get("differentiable"):
            return "not when it is differentiable"
    return ""
