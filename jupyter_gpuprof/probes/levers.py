"""Which levers are on already: seen in a few backward passes, the optimizers and torch's switches.

A run looks at its first backward passes and at each kind of optimizer once; then the hooks have nothing
more to do with it. No object of the person's is kept.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from jupyter_gpuprof.probes.autogradgraph import GraphFacts, inside_backward
from jupyter_gpuprof.records.levers import KNOWN, Lever

if TYPE_CHECKING:
    from jupyter_gpuprof.probes.recorder import Recorder

#: Backward passes to look at: a step may have several losses, of models that differ.
LOOKS = 3
#: Batches or backward passes per optimizer step from which gradients are accumulated (a scaler skips some).
ACCUMULATES = 1.5

State = Literal["on", "off", "unknown", "not applicable"]
Told = tuple[State, str]

_HALF = {"bfloat16", "float16"}
_UNSEEN: Told = ("unknown", "no backward pass was seen")


@dataclass(frozen=True)
class _Optimizer:
    """What is kept of an optimizer."""

    name: str
    has_fused: bool
    fused: bool
    foreach: bool | None  # None leaves it to torch


class LeverProbe:
    """Looks for the levers of one run. Its methods never raise."""

    def __init__(self) -> None:
        self.graph = GraphFacts()
        self.looks_left = LOOKS
        self.optimizers: set[_Optimizer] = set()
        self.failure = ""

    @property
    def done(self) -> bool:
        """Whether enough was seen, or looking does not work here."""
        return bool(self.failure) or (self.looks_left <= 0 and bool(self.optimizers))

    def backward(self, tensors: Any) -> None:
        """A backward pass of these tensors is about to begin."""
        if self.looks_left <= 0:
            return
        try:
            self.looks_left -= not inside_backward()  # one that a checkpoint begins is part of another
            self.graph.look(tensors)
        except Exception as error:
            self._failed(error)

    def optimizer(self, optimizer: Any) -> None:
        """This optimizer made a step."""
        try:
            groups = optimizer.param_groups
            self.optimizers.add(
                _Optimizer(
                    name=type(optimizer).__name__,
                    has_fused=any("fused" in group for group in groups),
                    fused=all(group.get("fused") for group in groups),
                    foreach=groups[0].get("foreach") if groups else None,
                )
            )
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failure = f"looking failed ({type(error).__name__}: {error})"

    def reading(self, recorder: Recorder, device: Any | None) -> tuple[Lever, ...]:
        """Every lever of `records.levers.KNOWN` and its state.

        Args:
            recorder: the finished recording, for its counts.
            device: the `torch.device` that the run trained on; None is the CPU.
        """
        return tuple(self._lever(known, recorder, device) for known in KNOWN)

    def _lever(self, known: Lever, recorder: Recorder, device: Any | None) -> Lever:
        try:
            state, detail = self._told(known.id, recorder, device)
            setting = known.setting
            if known.id == "autocast" and (0, 0) < _capability(device) < (8, 0):
                setting = "autocast=float16"  # bfloat16 is only emulated there
        except Exception as error:
            return replace(known, state="unknown", detail=f"{type(error).__name__}: {error}")
        if state == "unknown" and self.failure:
            detail = self.failure
        return replace(known, state=state, detail=detail, setting=setting)

    def _told(self, lever: str, recorder: Recorder, device: Any | None) -> Told:
        if lever == "tf32":
            return self._tf32(device)
        if lever == "fused_optimizer":
            return self._fused(device)
        if lever == "accumulation":
            return _accumulation(recorder)
        if not self.graph.nodes:
            return _UNSEEN
        return {
            "autocast": self._autocast,
            "compile": self._compile,
            "channels_last": self._channels_last,
            "sdpa": self._attention,
            "activation_checkpointing": self._checkpoints,
        }[lever]()

    # -- seen in the graph -----------------------------------------------------------------------

    def _autocast(self) -> Told:
        graph = self.graph
        kept = graph.compiled_keeps
        half = sorted((graph.products | kept) & _HALF)
        if half and graph.parameters and graph.parameters <= _HALF:
            return "on", f"the parameters are in {half[0]}"
        if half:
            return "on", f"matrix products in {', '.join(half)}"
        if graph.products:
            return "off", f"matrix products in {', '.join(sorted(graph.products))}"
        if kept:
            return "off", f"the compiled graph keeps {', '.join(sorted(kept))}"
        return self._hidden() or ("not applicable", "no matrix products or convolutions were seen")

    def _compile(self) -> Told:
        if self.graph.compiled:
            return "on", "a compiled graph is part of the backward pass"
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is not None and dynamo.counters["stats"].get("unique_graphs"):
            return "unknown", "something was compiled in this process, but not what the backward pass shows"
        return "off", "no compiled graph in the backward pass"

    def _channels_last(self) -> Told:
        graph = self.graph
        if not graph.convolutions and not (graph.compiled and graph.formats):
            return self._hidden() or ("not applicable", "no convolutions over two dimensions were seen")
        if "channels_last" in graph.formats:
            return "on", "weights or inputs of convolutions are channels_last"
        if graph.formats or not self._hidden():
            return "off", "weights and inputs of convolutions are contiguous"
        return "unknown", "the weights of the convolutions were not seen"

    def _attention(self) -> Told:
        graph = self.graph
        if graph.fused_attention:
            return "on", ", ".join(sorted(graph.fused_attention))
        if graph.falls_back:
            return "off", "scaled_dot_product_attention has no fused form for these shapes, mask or dropout"
        if graph.attention:
            return "off", "a softmax between two matrix products"
        return self._hidden() or ("not applicable", "no attention was seen")

    def _checkpoints(self) -> Told:
        graph = self.graph
        if graph.checkpoints:
            return "on", ", ".join(sorted(graph.checkpoints))
        if graph.compiled:
            return "unknown", "it would be inside the compiled graph"
        if not graph.saves_seen:
            return "unknown", "this torch does not tell what operations save"
        return "off", "no operation is set to be computed again"

    def _hidden(self) -> Told | None:
        """Why something may be there though it was not seen."""
        if self.graph.compiled:
            return "unknown", "it would be inside the compiled graph"
        if "reentrant" in self.graph.checkpoints:
            return "unknown", "it would be inside a checkpoint"
        return None

    # -- seen elsewhere --------------------------------------------------------------------------

    def _tf32(self, device: Any | None) -> Told:
        if _capability(device) < (8, 0):
            return "not applicable", "only NVIDIA devices from Ampere on have it"
        torch = sys.modules["torch"]
        products = torch.get_float32_matmul_precision() != "highest"
        graph = self.graph
        if products or (graph.convolutions and graph.products and torch.backends.cudnn.allow_tf32):
            which = "matrix products" if products else "convolutions"
            return "on", f"{which} in float32 use it"
        if graph.products and graph.products <= _HALF:
            return "not applicable", "no matrix products in float32 were seen"
        return "off", "float32 matrix products are at the highest precision"

    def _fused(self, device: Any | None) -> Told:
        seen = sorted(self.optimizers, key=lambda one: one.name)
        if not seen:
            return "unknown", "no optimizer step was seen"
        if all(one.fused or "Fused" in one.name for one in seen):
            return "on", ", ".join(one.name for one in seen)
        slow = [one for one in seen if one.has_fused and not one.fused]
        if not slow:
            return "not applicable", f"{', '.join(one.name for one in seen)} has no fused form in torch"
        by_default = slow[0].foreach is None and device is not None and device.type in ("cuda", "xpu")
        how = "foreach" if slow[0].foreach or by_default else "a loop over the parameters"
        return "off", f"{slow[0].name}: {how}"


def _accumulation(recorder: Recorder) -> Told:
    steps = recorder.optimizer_steps
    if not steps:
        return "unknown", "no optimizer step was seen"
    batches = max((source.fetches for source in recorder.sources.all), default=0)
    per_step = recorder.backwards / steps
    if per_step >= ACCUMULATES and (not batches or batches / steps >= ACCUMULATES):
        return "on", f"{per_step:.1f} backward passes per optimizer step"
    return "off", "each batch has its optimizer step"


def _capability(device: Any | None) -> tuple[int, int]:
    """The compute capability of an NVIDIA device, (0, 0) of any other."""
    torch = sys.modules["torch"]
    if device is None or device.type != "cuda" or torch.version.hip is not None:
        return 0, 0
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)
