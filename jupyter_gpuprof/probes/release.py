"""Lets go of device memory that only hidden references keep, and tells what still holds some."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import Any

from jupyter_gpuprof.probes import owndevice
from jupyter_gpuprof.probes.offload import by_root
from jupyter_gpuprof.probes.storages import leads_to_device, pieces
from jupyter_gpuprof.records.release import Held

#: Memory of the allocator that belongs to no tensor of Python.
UNSEEN = "(not visible from Python)"
_UNSEEN_WHY = "live graphs, captured graphs, work space of libraries"
#: Where Python and IPython keep the last exception, whose frames keep their variables.
_LAST = ("last_exc", "last_value", "last_traceback", "last_type")
#: The last three results.
_RECENT = ("_", "__", "___")
_FRAMES_OF_DEBUGGER = ("curframe", "botframe", "curframe_locals", "stack")


def drop_hidden(namespace: dict[str, Any], shell: Any, kind: str) -> int:
    """Drop what nobody asked to keep: the last traceback, and results of cells that hold device memory.

    Args:
        namespace: the notebook's variables, where IPython keeps ``_``, ``_5`` and ``Out``.
        shell: the IPython shell; None outside of one.
        kind: of the device, as torch calls it.

    Returns:
        How many results of cells were dropped.
    """
    for name in _LAST:
        vars(sys).pop(name, None)
    dropped = 0
    if shell is not None:
        for formatter in (getattr(shell, "InteractiveTB", None), getattr(shell, "SyntaxTB", None)):
            _forget_traceback(formatter)
        shell.last_execution_result = None
        dropped = _drop_results(namespace, shell, kind)
    gc.collect()
    return dropped


def still_held(namespace: Mapping[str, Any], devices: tuple[Any, ...]) -> tuple[Held, ...]:
    """What still has memory of the devices, by the variable that leads to it.

    Args:
        namespace: the notebook's variables.
        devices: all of one kind.
    """
    if not devices:
        return ()
    found, _ = pieces(namespace, lambda storage: storage.device in devices)
    for piece in found:
        piece.why = ""
    seen = sum(piece.allocated_bytes for piece in found)
    rest = sum(map(owndevice.allocated_bytes, devices)) - seen
    return (*by_root(found), *((Held(UNSEEN, rest, _UNSEEN_WHY),) if rest > 0 else ()))


def _forget_traceback(formatter: Any) -> None:
    for name in ("tb", "last_syntax_error"):
        if getattr(formatter, name, None) is not None:
            setattr(formatter, name, None)
    debugger = getattr(formatter, "pdb", None)
    for name in _FRAMES_OF_DEBUGGER:
        if getattr(debugger, name, None) is not None:
            setattr(debugger, name, [] if name == "stack" else None)


def _drop_results(namespace: dict[str, Any], shell: Any, kind: str) -> int:
    """Results of cells that lead to a device, under all their names; those that do not are kept."""
    results = namespace.get("_oh")
    if not isinstance(results, dict):
        return 0
    counted = [f"_{count}" for count in results]
    things = [*results.values(), *(namespace[name] for name in (*_RECENT, *counted) if name in namespace)]
    heavy = {id(thing): leads_to_device(thing, kind) for thing in things}
    for count in [count for count, thing in results.items() if heavy[id(thing)]]:
        del results[count]
    for names in (namespace, getattr(shell, "user_ns_hidden", {})):
        for name in counted:
            if heavy.get(id(names.get(name))):
                del names[name]
        names.update({name: "" for name in _RECENT if heavy.get(id(names.get(name)))})
    hook = getattr(shell, "displayhook", None)
    for name in _RECENT:
        if heavy.get(id(getattr(hook, name, None))):
            setattr(hook, name, "")
    return sum(heavy.values())
