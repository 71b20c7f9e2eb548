"""Make the changes of ``%gpuprof try`` in the fresh process that reruns a cell. Nothing is undone there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jupyter_gpuprof.probes import loaderchanges, optimizerchanges
from jupyter_gpuprof.probes.reach import reachable
from jupyter_gpuprof.records.settings import Setting


class Applied:
    """What `apply` has done. Read it after the cell has run: the cell may have made loaders of its own.

    Args:
        contexts: to be entered around the cell.
    """

    def __init__(self) -> None:
        self.contexts: list[AbstractContextManager[Any]] = []
        self._lines: dict[str, None] = {}
        self._problems: dict[str, None] = {}
        self._missing: dict[str, str] = {}  # setting: what was not found for it

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to change for good."""
        return tuple(self._lines)

    @property
    def not_applied(self) -> tuple[str, ...]:
        """What could not be changed, and why."""
        return (*self._problems, *(f"{name}: {what}" for name, what in self._missing.items()))

    def lacks(self, setting: str, what: str) -> None:
        """For that setting nothing was found so far."""
        self._missing[setting] = what

    def done(self, setting: str, lines: Sequence[str] = ()) -> None:
        """Something was changed for it."""
        self._missing.pop(setting, None)
        self._lines |= dict.fromkeys(lines)

    def failed(self, setting: str, problems: Sequence[str]) -> None:
        """Something was found for it that could not be changed."""
        self._missing.pop(setting, None)
        self._problems |= dict.fromkeys(problems)


def apply(
    settings: Sequence[Setting],
    namespace: Mapping[str, Any],
    cache: Callable[[Any], tuple[Any, str]] | None = None,
) -> Applied:
    """Change what the namespace holds, and what the cell will make.

    Args:
        settings: the changes.
        namespace: what the cell will run in.
        cache: makes of a data set one that keeps its samples, and says how that is written.
    """
    applied = Applied()
    wanted: dict[str, Any] = {setting.name: setting.value for setting in settings}
    if "cache" in wanted and cache is not None:
        wanted["cache"] = cache
    if not wanted:
        return applied
    found = _Found(namespace)
    for name in _MODULE_CHANGES:
        if name in wanted:
            _MODULE_CHANGES[name](applied, found, wanted[name])
    for name in optimizerchanges.NAMES:
        if name in wanted:
            _change_optimizers(applied, found, name, bool(wanted[name]))
    for name in _SWITCHES:
        if name in wanted:
            _SWITCHES[name](applied, found, wanted[name])
    loader_settings = {name: wanted[name] for name in loaderchanges.NAMES if name in wanted}
    if loader_settings:
        _change_loaders(applied, found, loader_settings)
    return applied


class _Found:
    """The objects of torch that a namespace holds, and the names it has for things."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        from torch.nn import Module
        from torch.optim import Optimizer
        from torch.utils.data import DataLoader

        self._names = {
            id(value): name for name, value in reversed(list(namespace.items())) if name[:1] != "_"
        }
        things = list(reachable(namespace.values()))
        self.loaders = [thing for thing in things if issubclass(type(thing), DataLoader)]
        self.optimizers = [thing for thing in things if issubclass(type(thing), Optimizer)]
        modules = [thing for thing in things if issubclass(type(thing), Module)]
        inner = {id(part) for module in modules for part in module.modules() if part is not module}
        #: Modules with parameters that are part of no other.
        self.models = [m for m in modules if id(m) not in inner and any(True for _ in m.parameters())]

    def name_of(self, thing: object) -> str:
        """The name of a thing, "" if it has none."""
        name = self._names.get(id(thing), "")
        if not name and callable(thing):
            name = getattr(thing, "__name__", "")
        return name if name.isidentifier() else ""

    def device_type(self) -> str:
        """Where the models are."""
        import torch

        for model in self.models:
            return next(model.parameters()).device.type
        if hasattr(torch, "accelerator") and torch.accelerator.is_available():
            return torch.accelerator.current_accelerator().type  # type: ignore[union-attr]
        return "cuda" if torch.cuda.is_available() else "cpu"


def _change_loaders(applied: Applied, found: _Found, wanted: dict[str, Any]) -> None:
    what = ", ".join(wanted)

    def note(problems: list[str], lines: Sequence[str]) -> None:
        if problems:
            applied.failed(what, problems)
        if len(problems) < len(wanted):
            applied.done(what, lines)

    applied.lacks(what, "no DataLoader was found")
    for loader in found.loaders:
        problems = loaderchanges.rebuild(loader, wanted)
        name = found.name_of(loader)
        note(problems, loaderchanges.lines_of(loader, name, found.name_of) if name else ())
    applied.contexts.append(
        loaderchanges.change_new_loaders(
            wanted, lambda problems, lines: note(problems, () if found.loaders else lines)
        )
    )


def _change_optimizers(applied: Applied, found: _Found, setting: str, on: bool) -> None:
    def note(problem: str, lines: Sequence[str]) -> None:
        if problem:
            applied.failed(setting, [problem])
        else:
            applied.done(setting, lines)

    applied.lacks(setting, "no optimizer was found")
    models = {found.name_of(model): model for model in found.models if found.name_of(model)}
    for optimizer in found.optimizers:
        problem = optimizerchanges.set_form(optimizer, setting, on)
        name = found.name_of(optimizer)
        note(problem, [optimizerchanges.line_of(optimizer, name, models)] if name else ())
    lines = () if found.optimizers else (f"{setting}={on} in the optimizer's arguments",)
    applied.contexts.append(
        optimizerchanges.change_new_optimizers(setting, on, lambda problem: note(problem, lines))
    )


def _channels_last(applied: Applied, found: _Found, _: Any) -> None:
    import torch

    applied.lacks(
        "channels_last", "no model with convolutions over two dimensions was found outside the cell"
    )
    for model in found.models:
        if any(parameter.dim() == 4 for parameter in model.parameters()):
            model.to(memory_format=torch.channels_last)
            name = found.name_of(model) or "model"
            applied.done("channels_last", [f"{name} = {name}.to(memory_format=torch.channels_last)"])


def _compile(applied: Applied, found: _Found, mode: Any) -> None:
    applied.lacks("compile", "no model was found outside the cell")
    for model in found.models:
        name = found.name_of(model)
        if (
            type(model).__name__ == "OptimizedModule"
            or getattr(model, "_compiled_call_impl", None) is not None
        ):
            applied.failed("compile", [f"compile: {name or type(model).__name__} is compiled already"])
        elif mode is True:
            model.compile()
            applied.done("compile", [f"{name or 'model'}.compile()"])
        else:
            model.compile(mode=mode)
            applied.done("compile", [f'{name or "model"}.compile(mode="{mode}")'])


def _autocast(applied: Applied, found: _Found, dtype: Any) -> None:
    import torch

    device = found.device_type()
    try:
        # Around the whole cell, weights kept in half precision would outlive the optimizer's step.
        context = torch.autocast(device, getattr(torch, dtype), cache_enabled=False)
    except Exception as error:
        applied.failed("autocast", [f"autocast: {error}"])
        return
    applied.contexts.append(context)
    scaled = ", and torch.amp.GradScaler for the gradients" if dtype == "float16" else ""
    line = f'with torch.autocast("{device}", torch.{dtype}):  # around the forward pass and the loss{scaled}'
    applied.done("autocast", [line])


def _tf32(applied: Applied, _: _Found, on: Any) -> None:
    import torch

    if not torch.cuda.is_available():
        applied.failed("tf32", ["tf32: there is no NVIDIA device"])
        return
    precision = "high" if on else "highest"
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = on
    applied.done("tf32", [f'torch.set_float32_matmul_precision("{precision}")'])


def _cudnn_benchmark(applied: Applied, _: _Found, on: Any) -> None:
    import torch

    if not torch.backends.cudnn.is_available():
        applied.failed("cudnn_benchmark", ["cudnn_benchmark: there is no cuDNN"])
        return
    torch.backends.cudnn.benchmark = on
    applied.done("cudnn_benchmark", [f"torch.backends.cudnn.benchmark = {on}"])


_Change = Callable[[Applied, _Found, Any], None]
_MODULE_CHANGES: dict[str, _Change] = {"channels_last": _channels_last, "compile": _compile}
_SWITCHES: dict[str, _Change] = {
    "autocast": _autocast,
    "tf32": _tf32,
    "cudnn_benchmark": _cudnn_benchmark,
}
