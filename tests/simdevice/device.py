"""What ``torch.sim`` is: the functions that torch looks for in a device module, and our switches."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager

import torch

from . import CAPACITY
from .build import native

_native = native()

simulated = True  # what our reports say of it

spin = _native.spin
set_copy_ms = _native.set_copy_ms
set_capacity = _native.set_capacity
set_capturing = _native.set_capturing
calls_while_capturing = _native.calls_while_capturing
is_current_stream_capturing = _native.is_capturing

Event = torch.Event
Stream = torch.Stream
current_device = torch.accelerator.current_device_index
set_device = torch.accelerator.set_device_index
current_stream = torch.accelerator.current_stream
synchronize = torch.accelerator.synchronize


def device(where: torch.device | int) -> AbstractContextManager[None]:
    return torch.accelerator.device_index(where if isinstance(where, int) else where.index)


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 2


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return _native.is_forked()


# Random numbers come from the CPU fallback, so the CPU's generator is the device's too.
def manual_seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def get_rng_state(device: object = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: object = None) -> None:
    torch.set_rng_state(state)


set_capacity(int(os.environ.get(CAPACITY, 1 << 30)))
torch.utils.rename_privateuse1_backend("sim")
torch._register_device_module("sim", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
