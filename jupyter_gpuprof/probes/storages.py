"""The memory behind tensors: which pieces there are, which tensors share each, and who else holds it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpuprof.probes.reachable import Label, Walk

#: What goes by no variable's name.
NO_NAME = "(no variable leads to it)"
#: Allocators give out memory in multiples of this.
_ROUNDED_TO = 512

GRAPH = "a live graph, a library or another process may still need it (detach or delete the loss to let go)"
IN_CLASS = "tensors of class {} cannot be moved"
OF_KIND = "{} tensors cannot be moved"
FOREIGN = "its memory belongs to another library"
STORAGE = "a variable holds the storage itself"
ACCUMULATOR = "something hooked into its gradient accumulator would be cut off"


@dataclass
class Piece:
    """One storage and what is known of it.

    Args:
        storage: a `torch.UntypedStorage`.
        tensors: all tensors of Python that share it.
        root: the variable that leads to one of them, or `NO_NAME`.
        path: how.
        why: it cannot be moved; empty where it can.
    """

    storage: Any
    tensors: list[Any] = field(default_factory=list)
    root: str = NO_NAME
    path: str = NO_NAME
    why: str = ""

    @property
    def device(self) -> Any:
        """Where it is, a `torch.device`."""
        return self.storage.device

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return int(self.storage.nbytes())

    @property
    def allocated_bytes(self) -> int:
        """Its size as an allocator counts it."""
        return -(-self.size_bytes // _ROUNDED_TO) * _ROUNDED_TO


def pieces(
    namespace: Mapping[str, Any], wanted: Callable[[Any], bool], *, held: int = 0
) -> tuple[list[Piece], bool]:
    """The storages that tensors of this process have.

    Args:
        namespace: the notebook's variables, which give the names.
        wanted: tells by a storage whether it is asked for.
        held: how many references of ours there are to each of them.

    Returns:
        The pieces, and whether all that the variables lead to was looked at.
    """
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        found: dict[int, Piece] = {}
        known: set[int] = set()
        objects = gc.get_objects()
        queue = [thing for thing in objects if _is_tensor(thing)]
        accumulators = [thing for thing in objects if type(thing).__name__ == "AccumulateGrad"]
        del objects
        tensors = []
        while queue:
            tensor = queue.pop()
            if id(tensor) not in known:
                known.add(id(tensor))
                tensors.append(tensor)  # so that no id in `known` is given again
                queue += [other for _, other in _relatives(tensor)]
                _place(tensor, wanted, found)
        for accumulator in accumulators:
            _forbid(found, [getattr(accumulator, "variable", None)], ACCUMULATOR)
        for tensor in tensors:
            if _own_dispatch(tensor):
                inside = (value for value in vars(tensor).values() if _is_tensor(value))
                _forbid(found, inside, IN_CLASS.format(type(tensor).__name__))
        del tensors, queue
        complete = _name(namespace, found)
        usual = _usual_references() + held
        for piece in found.values():
            piece.why = piece.why or _why_not(torch, piece, usual)
        return list(found.values()), complete


def leads_to_device(thing: object, kind: str) -> bool:
    """Whether an object leads to a tensor on an accelerator of that kind."""
    return any(_device_type(tensor) == kind for _, _, tensor in Walk({"it": thing}, _is_tensor, _relatives))


def _is_tensor(thing: Any) -> bool:
    return issubclass(type(thing), sys.modules["torch"].Tensor)


def _device_type(tensor: Any) -> str:
    try:
        return str(tensor.device.type)
    except Exception:  # not made whole
        return ""


def _own_dispatch(tensor: Any) -> bool:
    tensor_class = sys.modules["torch"].Tensor
    return type(tensor).__torch_dispatch__ is not tensor_class.__torch_dispatch__


def _relatives(tensor: Any) -> Iterator[tuple[Label, Any]]:
    """The gradient and the tensor that this one is a view of, which may be known to torch alone."""
    try:
        if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
            yield ("attribute", "grad"), tensor.grad
        if tensor._base is not None:
            yield ("attribute", "_base"), tensor._base
    except Exception:
        return


def _place(tensor: Any, wanted: Callable[[Any], bool], found: dict[int, Piece]) -> None:
    """Put a tensor to its storage, if that is asked for."""
    try:
        storage = tensor.untyped_storage()
        if not storage.nbytes() or not wanted(storage) or not storage.data_ptr():
            return
    except Exception:  # sparse, made of other tensors, not made whole: it has none
        return
    piece = found.setdefault(storage._cdata, Piece(storage))
    piece.tensors.append(tensor)
    if _own_dispatch(tensor):
        piece.why = IN_CLASS.format(type(tensor).__name__)
    elif tensor.is_quantized:
        piece.why = OF_KIND.format("quantized")
    elif tensor.is_conj() or tensor.is_neg():
        piece.why = OF_KIND.format("conjugated")
    elif any(getattr(tensor, "names", ())):
        piece.why = OF_KIND.format("named")


def _forbid(found: dict[int, Piece], tensors: Iterable[Any], why: str) -> None:
    for tensor in tensors:
        try:
            piece = found.get(tensor.untyped_storage()._cdata)
        except Exception:
            continue
        if piece is not None:
            piece.why = why


def _name(namespace: Mapping[str, Any], found: dict[int, Piece]) -> bool:
    """Give each piece the first name that leads to it."""
    left = len(found)
    walk = Walk(namespace, _is_tensor, _relatives)
    for root, path, tensor in walk if left else ():
        try:
            piece = found.get(tensor.untyped_storage()._cdata)
        except Exception:
            continue
        if piece is not None and piece.root == NO_NAME:
            piece.root, piece.path = root, path
            left -= 1
            if not left:
                break
    return walk.complete


def _why_not(torch: Any, piece: Piece, usual: int) -> str:
    if not piece.storage.resizable():
        return FOREIGN
    if _references(piece) > usual:
        return STORAGE
    uses = torch._C._storage_Use_Count(piece.storage._cdata)
    return GRAPH if uses > len(piece.tensors) + 1 else ""  # and one by Python's own object of it


def _references(piece: Piece) -> int:
    return sys.getrefcount(piece.storage)


def _usual_references() -> int:
    """How many references there are to a storage that only a tensor and a `Piece` hold."""
    tensor = sys.modules["torch"].empty(1, device="cpu")
    return _references(Piece(tensor.untyped_storage()))
