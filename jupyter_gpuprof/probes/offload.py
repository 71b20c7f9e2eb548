"""Tensors to the host and back: the release of a device that loses nothing.

The bytes of a storage are copied once, and every tensor that shares it is made to look at the copy, in
place: the same objects, sizes, strides, flags, hooks and version counters, so that optimizers, tied
weights and views stay what they are. While they are away they are plain tensors of the host: what touches
them in between reads right values, and what mixes them with the device gets torch's own error.

A storage is moved only if all that hold it are known (see `storages`); the rest stays, with its reason.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyter_gpuprof.probes import hostmemory, machine, owndevice
from jupyter_gpuprof.probes.storages import NO_NAME, Piece, pieces
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.release import Held

_NO_VARIABLE = "only what the notebook's variables lead to is moved"

#: The share of the host's free memory that may be filled.
_MOST_OF_HOST = 0.9
_GIB = 2**30
#: Libraries whose arrays may share memory with a tensor without torch knowing.
_SHARE_UNSEEN = ("cupy", "numba.cuda")


@dataclass
class _Guest:
    """A storage that is on the host for now."""

    storage: Any
    device: Any


@dataclass(frozen=True)
class Moves:
    """What one way of the journey came to; `complete` if all that was to be moved was."""

    moved: tuple[Held, ...] = ()
    stayed: tuple[Held, ...] = ()
    complete: bool = True
    remarks: tuple[str, ...] = ()


class Offload:
    """Takes tensors from the devices to the host, and remembers where they belong.

    Both ways go storage by storage. An interrupt comes between two of them: each is either moved or not,
    and another call goes on from there.
    """

    def __init__(self) -> None:
        self._guests: list[_Guest] = []

    @property
    def away_bytes(self) -> int:
        """What is on the host for now."""
        return sum(int(guest.storage.nbytes()) for guest in self._guests)

    @property
    def devices(self) -> tuple[Any, ...]:
        """Where it belongs, each `torch.device` once."""
        return tuple(dict.fromkeys(guest.device for guest in self._guests))

    def take(
        self, namespace: Mapping[str, Any], devices: tuple[Any, ...], stop: Callable[[], bool] = lambda: False
    ) -> Moves:
        """Move what the variables lead to from the devices to the host.

        Args:
            namespace: the notebook's variables.
            devices: all of one kind.
            stop: asked before each storage; True ends the journey there.
        """
        torch = sys.modules["torch"]
        found, looked_at_all = pieces(namespace, lambda storage: storage.device in devices)
        nothing = _why_nothing(torch, devices)
        for piece in found:
            piece.why = nothing or piece.why or (_NO_VARIABLE if piece.root == NO_NAME else "")
        going = [piece for piece in found if not piece.why]
        short = _host_is_short(sum(piece.size_bytes for piece in going))
        for device in devices:
            owndevice.finish(device)
        gone = []
        for piece in going:
            piece.why = short or ("a cell began" if stop() else "")
            if not piece.why:
                device = piece.device
                piece.why = _move(torch, piece, "cpu", partial(self._arrived, device))
            if not piece.why:
                gone.append(piece)
        stayed = by_root(piece for piece in found if piece.why)
        return Moves(by_root(gone), stayed, len(gone) == len(going), _remarks(looked_at_all, gone))

    def give_back(self, namespace: Mapping[str, Any]) -> Moves:
        """Move all back to where it was, device by device; one without room for all gets nothing yet.

        Args:
            namespace: the notebook's variables, for the names.
        """
        torch = sys.modules["torch"]
        at_home = {guest.storage._cdata: guest.device for guest in self._guests}
        found, _ = pieces(namespace, lambda storage: storage._cdata in at_home, held=1)
        alive = {piece.storage._cdata for piece in found}
        self._guests = [guest for guest in self._guests if guest.storage._cdata in alive]
        for device in self.devices:
            mine = [piece for piece in found if at_home[piece.storage._cdata] == device]
            going = [piece for piece in mine if not piece.why]
            rooms, full = _make_room(torch, device, going)
            for piece in going:
                room = None if full else rooms.pop(0)
                piece.why = full or _move(torch, piece, device, partial(self._left, piece.storage), room)
            owndevice.finish(device)
        stayed = by_root(piece for piece in found if piece.why)
        return Moves(by_root(piece for piece in found if not piece.why), stayed, not stayed)

    def _arrived(self, device: Any, host: Any) -> None:
        self._guests.append(_Guest(host, device))

    def _left(self, host: Any, there: Any) -> None:
        self._guests = [guest for guest in self._guests if guest.storage is not host]


def _move(torch: Any, piece: Piece, device: Any, noted: Callable[[Any], None], room: Any = None) -> str:
    """Move one piece, into `room` where there is one, and note it; why it could not be moved, or ""."""
    try:
        there = _bytes(torch, piece.size_bytes, device) if room is None else room
        there.copy_(_bytes(torch, 0, piece.device).set_(piece.storage))
    except Exception as error:
        if not machine.is_out_of_memory(error) and "allocate" not in str(error):
            raise
        return f"no memory is left on {device}"
    storage = there.untyped_storage()
    with _unbroken():
        why = _look_at(torch, piece.tensors, storage)
        if not why:
            noted(storage)
            piece.storage = storage  # the old one is free now
    return why


def by_root(found: Iterable[Piece]) -> tuple[Held, ...]:
    """Pieces by the variable that leads to them, the largest first."""
    sums: dict[tuple[str, str], int] = {}
    for piece in found:
        key = piece.root, piece.why
        sums[key] = sums.get(key, 0) + piece.size_bytes
    largest = sorted(sums.items(), key=lambda item: -item[1])
    return tuple(Held(root, size, why) for (root, why), size in largest)


def _look_at(torch: Any, tensors: list[Any], storage: Any) -> str:
    """Make all tensors look at that storage instead of theirs, or none; why not, or ""."""
    done: list[tuple[Any, Any]] = []
    with torch._C.DisableTorchFunctionSubclass():
        try:
            views = [(tensor, _view(torch, tensor, storage)) for tensor in tensors]
            for tensor, view in views:
                before = tensor.data
                tensor.data = view
                done.append((tensor, before))
        except Exception as error:
            for tensor, before in done:
                tensor.data = before
            return f"torch cannot move it in place ({str(error).splitlines()[0][:120]})"
    return ""


def _view(torch: Any, tensor: Any, storage: Any) -> Any:
    """What the tensor shows, shown of another storage."""
    with torch.inference_mode(tensor.is_inference()):
        view = torch.empty(0, dtype=tensor.dtype, device=storage.device)
        view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
        return view


def _bytes(torch: Any, size: int, device: Any) -> Any:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _make_room(torch: Any, device: Any, going: list[Piece]) -> tuple[list[Any], str]:
    """Memory for all that goes to a device, or none and why not."""
    needed = sum(piece.allocated_bytes for piece in going)
    free = owndevice.free_bytes(device)
    if not isinstance(free, Missing) and needed > free:
        return [], f"{device} has {_gib(free)} free, and {_gib(needed)} are needed"
    rooms = []
    try:
        for piece in going:
            rooms.append(_bytes(torch, piece.size_bytes, device))
    except Exception as error:
        if not machine.is_out_of_memory(error):
            raise
        rooms.clear()
        owndevice.empty_cache((device,))
        return [], f"{device} has no room for {_gib(needed)}"
    return rooms, ""


def _host_is_short(needed: int) -> str:
    free = hostmemory.free_bytes()
    if isinstance(free, Missing) or needed <= free * _MOST_OF_HOST:
        return ""
    return f"the host has {_gib(free)} of memory free, and {_gib(needed)} and a reserve are needed"


def _why_nothing(torch: Any, devices: tuple[Any, ...]) -> str:
    """Why nothing at all can be moved, or ""."""
    if devices and devices[0].type == "mps":
        return "this device shares the memory of the host"
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return "a process group is up, whose buffers point at the tensors"
    if any(_is_captured_graph(type(thing)) for thing in gc.get_objects()):
        return "a captured graph is alive, which remembers the addresses of tensors"
    return ""


def _is_captured_graph(kind: type) -> bool:
    return kind.__name__.endswith("Graph") and str(kind.__module__).startswith(
        ("torch.cuda", "torch.xpu", "torch.accelerator")
    )


def _remarks(looked_at_all: bool, gone: list[Piece]) -> tuple[str, ...]:
    said = []
    if not looked_at_all:
        said.append("The variables lead to too many objects; not all were looked at.")
    for name in _SHARE_UNSEEN:
        if gone and name in sys.modules:
            said.append(f"Arrays of {name} that share memory with a tensor do not follow it.")
    return tuple(said)


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f} GiB" if size >= 0.01 * _GIB else f"{size / 2**20:.2f} MiB"


@contextmanager
def _unbroken() -> Iterator[None]:
    """An interrupt that comes in here is raised at the end."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    late: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: late.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if late and callable(before):
            before(*late[0])
