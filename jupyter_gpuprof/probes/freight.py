"""How objects of torch travel to another process: what plain pickle would copy twice, refuse or forget.

* A storage is written from where it lies, without a copy (from a device: one storage at a time), and
  views of one storage still share it afterwards.
* A DataLoader leaves its running workers at home.
* A compiled module or function is compiled again where it arrives, with the same options.
"""

from __future__ import annotations

import sys
from pickle import PickleBuffer
from types import FunctionType
from typing import Any


class TorchFreight:
    """Reduces objects of torch for one pickler.

    Args:
        data: False leaves the contents of storages out; it only shows whether all can be pickled.
    """

    def __init__(self, *, data: bool = True) -> None:
        self._data = data
        self._storages: dict[int, Any] = {}
        self._copied: PickleBuffer | None = None

    def reduce(self, thing: object) -> Any:
        """What a pickler's ``reducer_override`` returns for `thing`; NotImplemented for anything else."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "UntypedStorage"):  # half imported
            return NotImplemented
        kind = type(thing)
        if kind is torch.storage.TypedStorage:
            untyped = thing._untyped_storage  # type: ignore[attr-defined]
            same = self._storages.setdefault(untyped._cdata, untyped)
            return _typed_storage, (same, thing.dtype)  # type: ignore[attr-defined]
        if kind is torch.UntypedStorage:
            return self._storage(thing)
        if kind is torch.Generator:
            return _generator, (str(thing.device), thing.get_state())  # type: ignore[attr-defined]
        if kind is FunctionType and "_torchdynamo_orig_callable" in vars(thing):
            return _compile, (thing._torchdynamo_orig_callable, _options(thing))  # type: ignore[attr-defined]
        if issubclass(kind, torch.nn.Module):
            return _reduce_module(thing)
        loader = sys.modules.get("torch.utils.data")
        if loader and issubclass(kind, loader.DataLoader) and vars(thing).get("_iterator") is not None:
            return _reduce_loader(thing)
        return NotImplemented

    def _storage(self, storage: Any) -> Any:
        import torch

        if self._copied is not None:
            self._copied.release()  # it is written; the pickler would keep it to its end
            self._copied = None
        here = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        if not self._data or not here.numel():
            return _load_storage, (bytearray(), str(storage.device), False)
        numbers: Any = here.cpu().numpy()
        buffer = PickleBuffer(numbers)
        if storage.device.type != "cpu":
            self._copied = buffer
        return _load_storage, (
            buffer,
            str(storage.device),
            storage.device.type == "cpu" and storage.is_pinned(),
        )


def _load_storage(data: bytearray, device: str, pinned: bool) -> Any:
    import torch

    there = torch.empty(len(data), dtype=torch.uint8, device=device, pin_memory=pinned)
    if data:
        there.copy_(torch.frombuffer(data, dtype=torch.uint8))
        data.clear()  # the unpickler would keep it to its end
    return there.untyped_storage()


def _typed_storage(untyped: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _generator(device: str, state: Any) -> Any:
    import torch

    generator = torch.Generator(device)
    generator.set_state(state)
    return generator


def _reduce_loader(loader: Any) -> Any:
    function, args, state, *more = loader.__reduce_ex__(5)
    if isinstance(state, dict) and "_iterator" in state:
        state = {**state, "_iterator": None}
    return (function, args, state, *more)


def _reduce_module(module: Any) -> Any:
    """A parametrized one, whose own pickling refuses, or a compiled one.

    One that was compiled in place forgets it when it is pickled.
    """
    from torch.nn.utils import parametrize

    if parametrize.is_parametrized(module) and type(module).__name__.startswith("Parametrized"):
        before = parametrize.type_before_parametrizations(module)
        return before.__new__, (before,), dict(vars(module)), None, None, _set_and_parametrize
    if type(module).__qualname__ == "OptimizedModule":
        return _compile, (module._orig_mod, _options(module))
    compiled = vars(module).get("_compiled_call_impl")
    if compiled is None:
        return NotImplemented
    function, args, state, *more = module.__reduce_ex__(5)
    more = [*more, None, None][:2]
    return (function, args, (state, _options(compiled)), *more, _set_and_compile)


def _compile(thing: Any, options: dict[str, Any]) -> Any:
    import torch

    return torch.compile(thing, **options)


def _set_and_parametrize(module: Any, state: dict[str, Any]) -> None:
    from torch.nn.utils import parametrize

    vars(module).update(state)
    parametrize._inject_new_class(module)
    for name in module.parametrizations:
        parametrize._inject_property(module, name)


def _set_and_compile(module: Any, state: Any) -> None:
    module.__setstate__(state[0])
    module.compile(**state[1])


def _options(compiled: Any) -> dict[str, Any]:
    """What ``torch.compile`` was told, as far as its result still knows; the mode is among the options."""
    context = vars(compiled).get("dynamo_ctx") or _closed_over(compiled).get("self")
    found = {
        "fullgraph": bool(getattr(context, "fullgraph", False)),
        "dynamic": getattr(context, "_dynamic", None),
    }
    backend = getattr(context, "callback", None)
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    name = getattr(backend, "compiler_name", None)
    if name == "inductor":
        found["options"] = dict(backend.config) or None  # type: ignore[union-attr]
    elif name is not None:
        import torch._dynamo

        known = torch._dynamo.list_backends(exclude_tags=())
        found["backend"] = name if name in known else backend.compiler_fn  # type: ignore[union-attr]
    return found


def _closed_over(function: Any) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, cells, strict=False)
        if not _is_empty(cell)
    }


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False
