"""Calls whose begin and end are marked: writing a checkpoint, copying a batch to the device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from jupyter_gpuprof.probes.recorder import Recorder

#: Puts a wrapper in place of an attribute, until everything is undone.
Replace = Callable[[Any, str, Callable[[Any], Any]], None]
#: The run to record into, on its training thread.
Mine = Callable[[], Recorder | None]


def patch_saving(replace: Replace, mine: Mine) -> None:
    """Mark saves of torch, and of safetensors and torch.distributed.checkpoint where they are imported."""
    import torch

    saving = _between(mine, "begin_save", "end_save")
    replace(torch, "save", saving)
    distributed = sys.modules.get("torch.distributed.checkpoint")
    for name in ("save", "async_save"):
        if hasattr(distributed, name):
            replace(distributed, name, saving)
    safetensors = sys.modules.get("safetensors.torch")
    if safetensors is not None and hasattr(safetensors, "serialize_file"):
        replace(safetensors, "serialize_file", saving)


def saving(mine: Mine, work: Callable[[], None]) -> None:
    """Do work of ours that is part of a checkpoint, marked as such."""
    _between(mine, "begin_save", "end_save")(work)()


def patch_copies(replace: Replace, mine: Mine) -> None:
    """Mark ``tensor.to`` and ``tensor.cuda`` of host tensors to a device."""
    import torch

    def wrap(original: Any) -> Any:
        marked = _between(mine, "begin_copy", "end_copy")(original)

        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if tensor.device.type != "cpu" or _stays(args, kwargs):
                return original(tensor, *args, **kwargs)
            return marked(tensor, *args, **kwargs)

        return call

    for name in ("to", "cuda"):
        replace(torch.Tensor, name, wrap)


def _between(mine: Mine, begin: str, end: str) -> Callable[[Any], Any]:
    """A wrapper that marks the begin and the end of a call on the training thread."""

    def wrap(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            recorder = mine()
            if recorder is None:
                return original(*args, **kwargs)
            begun = False
            try:
                begun = recorder.simple(begin)
            except Exception as error:
                recorder.failed(error)
            try:
                return original(*args, **kwargs)
            finally:
                if begun:
                    try:
                        recorder.simple(end)
                    except Exception as error:
                        recorder.failed(error)

        return call

    return wrap


def _stays(args: Any, kwargs: Any) -> bool:
    """Whether ``tensor.to(*args)`` of a host tensor only changes its type or stays on the host."""
    import torch

    target = kwargs.get("device", args[0] if args else None)
    if target is None or isinstance(target, torch.dtype):
        return "device" not in kwargs and bool(args or kwargs)
    if isinstance(target, torch.Tensor):
        target = target.device
    return str(target).startswith("cpu")
