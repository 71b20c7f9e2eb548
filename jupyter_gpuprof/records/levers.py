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
