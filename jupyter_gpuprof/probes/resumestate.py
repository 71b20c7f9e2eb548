"""The state that a resumed run needs, as tensors and plain data: collected, written, read and put back.

What is written can be read without running anything that the file says (``weights_only``): whatever is not a
tensor, a number, text or a container of these is refused when it is saved, not when it is needed.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pickle import UnpicklingError
from typing import Any, BinaryIO

from jupyter_gpuprof.errors import UsageError
from jupyter_gpuprof.probes import owndevice

_SCALARS = (bool, int, float, complex, str, bytes, type(None))


class Staging:
    """Copies a state, so that training may go on while the copy is written.

    The memory for it is kept from one save to the next; of an accelerator's tensors it is page-locked.
    """

    def __init__(self) -> None:
        self._copies: dict[Any, Any] = {}
        self._taken: dict[Any, Any] = {}

    def copy(self, state: Any) -> Any:
        """The copy; overwritten by the next one.

        Raises:
            UsageError: a part of it is no plain data.
        """
        self._taken = {}
        copied = plain(state, self._copy_tensor)
        self._copies = self._taken
        return copied

    def _copy_tensor(self, tensor: Any) -> Any:
        torch = sys.modules["torch"]
        tensor = tensor.detach()
        if tensor.layout != torch.strided:
            return tensor.to("cpu", copy=True)
        key = tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device
        if not tensor.numel():
            return tensor.to("cpu", copy=True)
        if key in self._taken:
            return self._taken[key]  # two names of one tensor
        copy = self._copies.get(key)
        if copy is None:
            locked = tensor.device.type == "cuda"
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=locked)
        copy.copy_(tensor)
        self._taken[key] = copy
        return copy


def plain(state: Any, of_tensor: Any = lambda tensor: tensor.detach(), path: str = "") -> Any:
    """A state as tensors and plain containers.

    Args:
        state: what a ``state_dict()`` gave.
        of_tensor: what a tensor becomes.
        path: where it is, for the message.

    Raises:
        UsageError: a part of it is something else, which could only be loaded by running code.
    """
    torch = sys.modules["torch"]
    if isinstance(state, torch.Tensor):
        if type(state) not in (torch.Tensor, torch.nn.Parameter):
            raise UsageError(
                f"{path} is a {type(state).__name__}, of which this process may hold a part only.",
                "Save sharded models with torch.distributed.checkpoint.",
            )
        return of_tensor(state)
    if isinstance(state, _SCALARS) and type(state).__module__ == "builtins":
        return state
    if isinstance(state, (torch.Size, torch.dtype, torch.device)):
        return state
    kind = type(state)
    if isinstance(state, Mapping):
        items = {
            plain(key, of_tensor, f"a key of {path}"): plain(value, of_tensor, f"{path}[{key!r}]")
            for key, value in state.items()
        }
        return kind(items) if kind in (OrderedDict, Counter) else items
    if kind in (list, tuple, set):
        return kind(plain(value, of_tensor, f"{path}[{i}]") for i, value in enumerate(state))
    if kind.__module__ == "numpy" and hasattr(state, "item") and getattr(state, "ndim", None) == 0:
        return state.item()
    raise UsageError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}, and loading one would run code of the file.",
        "Let its state_dict() give tensors, numbers, text and containers of these.",
    )


def write(state: Any, file: Any) -> None:
    """Write a plain state from the beginning of the file to its end."""
    sys.modules["torch"].save(state, file)


def read(file: BinaryIO) -> Any:
    """Read what `write` wrote, into the host's memory; runs nothing of what it says.

    Raises:
        ValueError: it holds something else than tensors and plain data, or this torch cannot read it.
    """
    import torch

    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None


def random_states() -> dict[str, Any]:
    """Those of Python, numpy, torch and every device in use, as they are now."""
    torch = sys.modules["torch"]
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = (str(name), torch.from_numpy(keys.astype("int64")), *rest)
    for device in owndevice.used_devices():
        states[str(device)] = torch.get_device_module(device).get_rng_state(device)
    return states


def restore_random(states: Mapping[str, Any]) -> list[str]:
    """Put random states back.

    Returns:
        Devices of which a state was saved, and which this process does not have.
    """
    torch = sys.modules["torch"]
    absent = []
    for name, state in states.items():
        if name == "python":
            random.setstate(state)
        elif name == "torch":
            torch.set_rng_state(state)
        elif name == "numpy":
            if "numpy" in sys.modules:
                kind, keys, *rest = state
                sys.modules["numpy"].random.set_state((kind, keys.numpy().astype("uint32"), *rest))
        else:
            try:
                device = torch.device(name)
                torch.get_device_module(device).set_rng_state(state, device)
            except Exception:
                absent.append(name)
    return absent


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    torch = sys.modules["torch"]
    return {"python": sys.version.split()[0], "torch": str(torch.__version__)}


def launched_ranks() -> int:
    """How many processes a launcher says that there are."""
    try:
        return int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 1
