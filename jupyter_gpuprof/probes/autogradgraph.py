"""What the autograd graph of a loss tells: element types, attention, convolutions, checkpoints, compilation.

The graph is read just before it is used: afterwards what it saved is gone, and with it the traces of
activation checkpointing. Only names, element types and memory formats are kept, nothing of the person's.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: So many nodes are looked at, those nearest to the loss first.
MOST_NODES = 250
#: So many nodes may lie between the softmax of an attention and its two products.
BETWEEN = 24

_PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Addbmm", "Addmv", "Mv", "Linear")
_BATCHED = ("BmmBackward", "BaddbmmBackward")
_FUSED_ATTENTION = ("ScaledDotProduct", "Flash", "FlexAttention", "fMHA", "EfficientAttention")


@dataclass
class GraphFacts:
    """What was seen, over all graphs that were looked at.

    Args:
        nodes: how many nodes there were.
        products: element types of what matrix products and convolutions gave.
        parameters: element types of the leaves, parameters above all.
        compiled_keeps: element types of what compiled graphs keep for their backward pass.
        compiled: a compiled graph is part of it.
        checkpoints: calls of activation checkpointing, by their kind.
        saves_seen: torch tells what nodes saved, so that checkpointing without reentry would show.
        fused_attention: names of fused attention nodes.
        attention: a softmax between two batched products: attention that is not fused.
        falls_back: that attention is what `scaled_dot_product_attention` does where it has no fused form.
        convolutions: how many convolutions over two dimensions.
        formats: "channels_last" and "contiguous", as weights or inputs of convolutions are.
    """

    nodes: int = 0
    products: set[str] = field(default_factory=set)
    parameters: set[str] = field(default_factory=set)
    compiled_keeps: set[str] = field(default_factory=set)
    compiled: bool = False
    checkpoints: set[str] = field(default_factory=set)
    saves_seen: bool = False
    fused_attention: set[str] = field(default_factory=set)
    attention: bool = False
    falls_back: bool = False
    convolutions: int = 0
    formats: set[str] = field(default_factory=set)

    def look(self, tensors: Any) -> None:
        """Add what the graph behind these roots of a backward pass tells."""
        for node in _nodes(_roots(tensors)):
            self.nodes += 1
            name = node.name()
            if name == "torch::autograd::AccumulateGrad":
                self._leaf(node.variable)
                continue
            if "Convolution" in name:
                self.products |= _dtypes(node)
                self.convolutions += _dimensions(node) == 4
            elif name.startswith(_PRODUCTS):
                self.products |= _dtypes(node)
                if not self.attention and name.startswith(_BATCHED):
                    softmax = _attention_softmax(node)
                    self.attention = softmax is not None
                    self.falls_back = softmax is not None and softmax.name().startswith("Safe")
            elif any(word in name for word in _FUSED_ATTENTION):
                self.products |= _dtypes(node)
                self.fused_attention.add(name.removesuffix("0").removesuffix("Backward"))
            elif name.startswith("CompiledFunction"):
                self.compiled = True
                self.compiled_keeps |= _dtypes(node)
            elif name.startswith("CheckpointFunction"):
                self.checkpoints.add("reentrant")
            elif "not reentrant" in self.checkpoints:
                continue  # what else is saved tells nothing more
            for saved in _saved(node):
                self._saved(saved, name)

    def _leaf(self, leaf: Any) -> None:
        self.parameters.add(_word(leaf.dtype))
        self._format(leaf)

    def _saved(self, saved: Any, by: str) -> None:
        self.saves_seen = True
        if type(saved).__module__ == "torch.utils.checkpoint":
            self.checkpoints.add("not reentrant")
        elif hasattr(saved, "is_contiguous") and saved.is_floating_point():
            if by.startswith("CompiledFunction"):
                self.compiled_keeps.add(_word(saved.dtype))
            elif "Convolution" in by:
                self._format(saved)

    def _format(self, tensor: Any) -> None:
        """Whether a tensor of four dimensions is channels_last; with one channel or pixel it is both."""
        if tensor.dim() != 4:
            return
        plain = tensor.is_contiguous()
        if plain != tensor.is_contiguous(memory_format=sys.modules["torch"].channels_last):
            self.formats.add("contiguous" if plain else "channels_last")


def inside_backward() -> bool:
    """Whether a backward pass is running on this thread (a checkpoint that computes again begins another)."""
    return bool(sys.modules["torch"]._C._current_graph_task_id() != -1)


def _roots(tensors: Any) -> list[Any]:
    given = list(tensors) if isinstance(tensors, (tuple, list)) else [tensors]
    # A GradientEdge has a node where a tensor has its grad_fn.
    nodes = (getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in given)
    return [node for node in nodes if node is not None]


def _nodes(roots: list[Any], most: int = MOST_NODES) -> Iterator[Any]:
    """The nodes behind `roots`, nearest first."""
    waiting, seen = deque(roots), set(roots)
    while waiting and most > 0:
        node = waiting.popleft()
        most -= 1
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _attention_softmax(product: Any) -> Any | None:
    """The softmax behind this batched product, if there is another batched product behind that."""
    softmax = _nearest(product, "Softmax", "SafeSoftmax")
    return softmax if softmax is not None and _nearest(softmax, *_BATCHED) is not None else None


def _nearest(start: Any, *names: str) -> Any | None:
    """The nearest node of these names behind `start`, with no other product in between."""
    waiting, seen = deque([start]), {start}
    while waiting and len(seen) < BETWEEN:
        for node, _ in waiting.popleft().next_functions:
            if node is None or node in seen:
                continue
            name = node.name()
            if name.startswith(names):
                return node
            seen.add(node)
            if not name.startswith(_PRODUCTS):
                waiting.append(node)
    return None


def _dtypes(node: Any) -> set[str]:
    """Element types of what the node's operation gave, floating point only."""
    given = getattr(node, "_input_metadata", ())  # absent before torch 2.1
    return {_word(m.dtype) for m in given if m is not None and m.dtype.is_floating_point}


def _dimensions(node: Any) -> int:
    given = getattr(node, "_input_metadata", ())
    return len(given[0].shape) if given and given[0] is not None else 0


#: The names under which a type of node keeps what it saved.
_SAVED_NAMES: dict[type, tuple[str, ...]] = {}


def _saved(node: Any) -> Iterator[Any]:
    """What a node saved, packed as hooks left it: unpacking would compute a checkpoint again."""
    kind = type(node)
    names = _SAVED_NAMES.get(kind)
    if names is None:
        # A function written in Python inherits its one name; of its class there may be one for each graph.
        own = [name for name in vars(kind) if name.startswith("_raw_saved_")]
        names = tuple(own) or (("_raw_saved_tensors",) if hasattr(kind, "_raw_saved_tensors") else ())
        if own:
            _SAVED_NAMES[kind] = names
    for name in names:
        held = getattr(node, name, None)
        for saved in held if isinstance(held, tuple) else (held,):
            data = getattr(saved, "data", None)  # absent before torch 2.7 or so
            if data is not None:
                yield data


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
