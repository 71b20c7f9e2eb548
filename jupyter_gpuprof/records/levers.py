"""Settings that make a step cheaper, and whether they are on already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Lever:
    """One lever.

    Args:
        id: its short name ("autocast", "tf32", "channels_last", "compile", "fused_optimizer",
            "accumulation", "activation_checkpointing", "sdpa").
        name: for a person.
        state: whether it is on; "unknown" when it could not be told, "not applicable" when it cannot help
            here (TF32 on a CPU, channels_last without convolutions).
        detail: what was seen.
        helps_when: the condition under which it helps.
        setting: how ``%gpuprof try`` calls it, or "".
    """

    id: str
    name: str
    state: Literal["on", "off", "unknown", "not applicable"]
    detail: str = ""
    helps_when: str = ""
    setting: str = ""


def _known(id: str, name: str, helps_when: str, setting: str = "") -> Lever:
    return Lever(id, name, "unknown", "nobody looked", helps_when, setting)


#: Every lever that is looked for, those first that most often bring most.
KNOWN = (
    _known(
        "autocast",
        "mixed precision (autocast)",
        "matrix products or convolutions take most of the step",
        "autocast=bfloat16",
    ),
    _known("tf32", "TF32", "matrix products stay in float32", "tf32=True"),
    _known(
        "compile",
        "torch.compile",
        "the step consists of many small operations whose shapes repeat",
        "compile=True",
    ),
    _known(
        "channels_last",
        "channels_last",
        "convolutions run in half precision or TF32 on tensor cores",
        "channels_last=True",
    ),
    _known(
        "sdpa",
        "fused attention (scaled_dot_product_attention)",
        "sequences are long: the attention matrix is never written to memory",
    ),
    _known(
        "fused_optimizer",
        "fused optimizer",
        "the model has many parameters and updating them is a visible part of the step",
        "fused=True",
    ),
    _known(
        "accumulation",
        "gradient accumulation",
        "a larger batch per optimizer step is wanted than memory holds; it makes no sample cheaper",
    ),
    _known(
        "activation_checkpointing",
        "activation checkpointing",
        "memory limits the batch, and a larger batch is faster: the forward pass is computed twice",
    ),
)
